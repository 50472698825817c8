"""What a run over long windows will take: time from a short trial, memory from the shapes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pjdiag.adapters.protocol import Reading
from pjdiag.errors import UsageError
from pjdiag.models.config import ModelConfig

TRIAL_LENGTHS = (512, 2048)
TRIAL_TOKENS = 2048
"""Tokens of a trial, where so many are read at once: one short window alone is far slower."""
Run = Callable[[int, int], object]
"""Reads, of a length, so many windows at once."""
SHORT_TRIAL = 0.25
"""Seconds."""
MOMENT = 1.0
"""Seconds of a run that needs no closer estimate."""
BATCH_TOKENS = 16384
"""At most so many tokens are read at once where --batch is not given."""
BATCH_WORK = 2**38
"""Weights times tokens that are read at once: some ten seconds, which a stopped run loses."""
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


def value_bytes(precision: str) -> int:
    """Bytes of one value on the way through a model; 4 at least, as losses are of float32.

    >>> value_bytes("float64"), value_bytes("bfloat16")
    (8, 4)
    """
    return 8 if "float64" in precision else 4


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


def number_of_weights(reading: Reading) -> int:
    """Values in the tensors of the checkpoint."""
    return sum(math.prod(header.shape) for header in reading.checkpoint.headers.values())


def usual_batch(length: int, weights: int) -> int:
    """Windows of ``length`` tokens read at once where nobody says: fewer of a larger model.

    >>> usual_batch(512, 200_000), usual_batch(512, 135_000_000), usual_batch(512, 7_000_000_000)
    (32, 3, 1)
    """
    return max(1, min(BATCH_TOKENS, BATCH_WORK // max(weights, 1)) // length)


def plans_left(plans: Sequence[WindowPlan], finished: Mapping[int, int]) -> list[WindowPlan]:
    """``plans`` without the windows that are ``finished``, by length.

    >>> plans_left([WindowPlan(64, 9, 4), WindowPlan(128, 5, 4)], {64: 8, 128: 5})
    [WindowPlan(length=64, windows=1, batch=4)]
    """
    left = [replace(plan, windows=plan.windows - finished[plan.length]) for plan in plans]
    return [plan for plan in left if plan.windows]


def seconds_needed(run: Run, plans: Sequence[WindowPlan]) -> float | None:
    """Seconds for ``plans``, from timing ``run`` on windows of two short lengths.

    A window of T tokens costs ``a T + b T^2``, read with as many others as in the run itself, up
    to ``TRIAL_TOKENS`` at once. None where all is over in a moment, or no sooner after a trial
    than without it.
    """
    tokens = sum(plan.windows * plan.length for plan in plans)
    longest = max(plan.length for plan in plans)
    short, long = (min(length, longest) for length in TRIAL_LENGTHS)
    at_once = min(TRIAL_TOKENS, max(plan.length * min(plan.batch, plan.windows) for plan in plans))
    if tokens <= 2 * max(short, at_once):
        return None
    run(min(short, 32), 1)  # the first call of a process is slow
    first = _timed(run, short, max(1, at_once // short)) / short
    if long == short or tokens * first * longest / short < MOMENT:
        rough = tokens * first
        return rough if rough >= MOMENT else None
    second = _timed(run, long, max(1, at_once // long)) / long
    slope = max(0.0, (second - first) / (long - short))
    start = max(0.0, first - slope * short)
    return sum(plan.windows * plan.length * (start + slope * plan.length) for plan in plans)


def _timed(run: Run, length: int, windows: int) -> float:
    """Seconds of one window among ``windows``; a short trial is made twice, for the first call of
    a shape is slow too.
    """
    found: list[float] = []
    while not found or (len(found) < 2 and found[0] < SHORT_TRIAL):
        started = time.perf_counter()
        run(length, windows)
        found.append(time.perf_counter() - started)
    return min(found) / windows
