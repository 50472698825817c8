"""What a run that needs the last logits only will take, and whether its weights are sound."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.checkpoint.native import is_native, is_research, model_config
from pjdiag.diagnostics.in_model_contexts import Ids
from pjdiag.diagnostics.loss_engines import MLP_WIDTH, STREAM_WIDTH, not_finite
from pjdiag.diagnostics.measured_loss import everywhere
from pjdiag.diagnostics.progress import Estimate
from pjdiag.diagnostics.run_cost import (
    HEAD_COPIES,
    WindowPlan,
    memory_available,
    memory_needed,
    require_memory,
    seconds_needed,
)
from pjdiag.diagnostics.runner import Runner
from pjdiag.results import Skipped

HEAVY = 2**36
"""Weights times tokens from which on a run with few pairs of tokens takes time all the same."""


def estimated(reading: Reading, model: Runner, ids: Ids, plans: Sequence[WindowPlan]) -> Estimate:
    """Time and memory. Raises UsageError where the memory is not there."""
    available = memory_available()
    needed = 0
    for plan in plans:
        own = _memory(reading, model, plan)
        require_memory(own, plan.length * plan.batch, available)
        needed = max(needed, own)

    def run(length: int) -> None:
        model.next_log_probabilities(np.resize(ids, (1, length)), ids[None, :1])

    return Estimate(seconds_needed(run, plans) or _of_the_weights(reading, run, plans), needed)


def _of_the_weights(
    reading: Reading, run: Callable[[int], None], plans: Sequence[WindowPlan]
) -> float | None:
    """Seconds by the time of one context; None where all is over in a moment anyway."""
    weights = sum(math.prod(header.shape) for header in reading.checkpoint.headers.values())
    tokens = sum(plan.windows * plan.length for plan in plans)
    if weights * tokens < HEAVY:
        return None
    length = min(plan.length for plan in plans)
    run(max(1, length // 4))  # the first call of a process is slow
    started = time.perf_counter()
    run(length)
    return (time.perf_counter() - started) / length * tokens


def _memory(reading: Reading, model: Runner, plan: WindowPlan) -> int:
    """Bytes of the largest batch; an upper estimate, linear in T."""
    checkpoint = reading.checkpoint
    if is_native(checkpoint) or is_research(checkpoint):
        return memory_needed(model_config(checkpoint), plan, plan.batch)
    heads = max(layer.num_heads.value for layer in reading.layers)
    width = max(layer.num_heads.value * layer.head_dim.value for layer in reading.layers)
    tokens = plan.length * plan.batch
    head = HEAD_COPIES * plan.batch * model.head_positions(plan.length) * model.vocabulary
    return 4 * (tokens * ((STREAM_WIDTH + MLP_WIDTH) * width + 12 * heads) + head) + 2**26


def bad_weights(reading: Reading, model: Runner) -> list[Skipped]:
    """Entries that name the tensors with NaN or infinity; empty where there are none."""
    running: Any = model
    bad = [f"{name} holds {count}" for name, count in not_finite(running.model).items()]
    if not bad:
        return []
    return everywhere(reading, f"{', '.join(bad[:3])} values that are NaN or infinite")
