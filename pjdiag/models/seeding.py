"""Random numbers from a seed, without a trace in the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's generators, of the CPU and of CUDA, start from ``seed``; they are put back after.

    >>> with seeded(3):
    ...     first = torch.rand(2)
    >>> with seeded(3):
    ...     again = torch.rand(2)
    >>> int((first == again).sum())
    2
    """
    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if started else []
    with torch.random.fork_rng(devices=devices):
        if devices or not torch.cuda.is_available():
            torch.manual_seed(seed)
        else:  # CUDA would keep the seed until it is first used, by the caller perhaps
            torch.default_generator.manual_seed(seed)
        yield
