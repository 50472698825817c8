"""What a run that needs the last logits only will take, and whether its weights are sound."""

from __future__ import annotations

from collections.abc import Sequence
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
    value_bytes,
)
from pjdiag.diagnostics.runner import Runner
from pjdiag.results import Skipped


def estimated(reading: Reading, model: Runner, ids: Ids, plans: Sequence[WindowPlan]) -> Estimate:
    """Time and memory. Raises UsageError where the memory is not there."""
    available = memory_available()
    needed = 0
    for plan in plans:
        own = _memory(reading, model, plan)
        require_memory(own, plan.length * plan.batch, available)
        needed = max(needed, own)

    def run(length: int, windows: int) -> None:
        context = np.resize(ids, (1, length)).repeat(windows, axis=0)
        model.next_log_probabilities(context, ids[None, :1].repeat(windows, axis=0))

    return Estimate(seconds_needed(run, plans), needed)


def _memory(reading: Reading, model: Runner, plan: WindowPlan) -> int:
    """Bytes of the largest batch; an upper estimate, linear in T."""
    checkpoint = reading.checkpoint
    if is_native(checkpoint) or is_research(checkpoint):
        return memory_needed(model_config(checkpoint), plan, plan.batch)
    heads = max(layer.num_heads.value for layer in reading.layers)
    width = max(layer.num_heads.value * layer.head_dim.value for layer in reading.layers)
    tokens = plan.length * plan.batch
    head = HEAD_COPIES * plan.batch * model.head_positions(plan.length) * model.vocabulary
    stream = tokens * ((STREAM_WIDTH + MLP_WIDTH) * width + 12 * heads)
    return value_bytes(model.precision) * (stream + head) + 2**26


def bad_weights(reading: Reading, model: Runner) -> list[Skipped]:
    """Entries that name the tensors with NaN or infinity; empty where there are none."""
    running: Any = model
    bad = [f"{name} holds {count}" for name, count in not_finite(running.model).items()]
    if not bad:
        return []
    return everywhere(reading, f"{', '.join(bad[:3])} values that are NaN or infinite")
