"""What a run over long windows will take: time from a short trial, memory from the shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pjdiag.errors import UsageError
from pjdiag.models.config import ModelConfig

TRIAL_LENGTHS = (512, 2048)
QUICK = 2**26
"""Pairs of tokens below which a run is over before a trial would pay."""
BATCH_TOKENS = 16384
"""Tokens read at once where --batch is not given: as many windows as they hold, at least one."""
HEAD_COPIES = 4
"""Logits of one chunk, their logarithm and what the loss makes of them."""
MEMORY_INFORMATION = Path("/proc/meminfo")


@dataclass(frozen=True)
class WindowPlan:
    """Windows of one length."""

    length: int
    windows: int
    batch: int


def memory_needed(config: ModelConfig, plan: WindowPlan, head_tokens: int) -> int:
    """Bytes that the largest batch of ``plan`` needs; an upper estimate, linear in T.

    Per token: the residual stream, its norm, queries, keys, values, their transforms, the mixed
    values by blocks and whole, and the wide layer of the MLP before and after its GELU.
    """
    wide = config.embed_dim * (14 + 2 * config.mlp_ratio)
    tokens = plan.length * min(plan.batch, plan.windows)
    figures = 12 * config.num_heads  # three statistics in float64, and the kernel's terms
    head = HEAD_COPIES * min(tokens, head_tokens) * config.vocab_size
    kernel = 4 * (config.max_order + 1) * config.num_heads * plan.length
    return 4 * (tokens * (wide + figures) + head + kernel) + 2**26


def memory_available(information: Path = MEMORY_INFORMATION) -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = information.read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None


def require_memory(needed: int, length: int, available: int | None) -> None:
    """Raises UsageError where ``needed`` bytes for windows of ``length`` are not there."""
    if available is not None and needed > available:
        raise UsageError(
            f"{length} tokens at once need about {needed / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available",
            "pass a shorter --length or a smaller --batch",
        )


def seconds_needed(run: Callable[[int], object], plans: Sequence[WindowPlan]) -> float | None:
    """Seconds for ``plans``, from timing ``run`` on one window of two short lengths.

    A window of T tokens costs ``a T + b T^2``. None where all is over in a moment anyway.
    """
    pairs = sum(plan.windows * plan.length**2 for plan in plans)
    if pairs < QUICK:
        return None
    longest = max(plan.length for plan in plans)
    short, long = (min(length, longest) for length in TRIAL_LENGTHS)
    run(min(short, 32))  # the first call of a process is slow
    first, second = _timed(run, short) / short, _timed(run, long) / long
    slope = max(0.0, (second - first) / (long - short)) if long > short else 0.0
    start = max(0.0, first - slope * short)
    return sum(plan.windows * plan.length * (start + slope * plan.length) for plan in plans)


def _timed(run: Callable[[int], object], length: int) -> float:
    started = time.perf_counter()
    run(length)
    return time.perf_counter() - started
