"""Running a model with and without parts of its positions, over one batch of windows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.loss_engines import ByteEngine, Engine, RunnerEngine, Text
from pjdiag.diagnostics.module_runner import ModuleRunner
from pjdiag.diagnostics.progress import Estimate
from pjdiag.diagnostics.run_cost import (
    WindowPlan,
    memory_available,
    require_memory,
    seconds_needed,
)
from pjdiag.diagnostics.runner import Observe
from pjdiag.diagnostics.runner_models import TransformersRunner
from pjdiag.diagnostics.window_plans import window_tokens
from pjdiag.errors import AdapterError

if TYPE_CHECKING:
    from pjdiag.models.ablated_lm import AblatedLM
    from pjdiag.models.ablation import LayerChange

Losses = NDArray[np.float64]

PROJECTED = 0.25
"""Of the time of a layer, its projections, which are kept where it is the first to change."""
KL_MEMORY = 2**27
"""Bytes of the sampled logits and what their divergence makes of them."""


class AblationEngine(Protocol):
    """A model that can lose parts of its positions."""

    predicts: bool
    """Whether it predicts the next token: otherwise there is attention, and no loss."""
    sinks: bool
    """Whether attention has logits without a key."""

    def whole(self, tokens: NDArray[np.integer], observe: Observe) -> Losses | None:
        """``[B, T]`` nats of windows ``[B, T + 1]``; None where it predicts no token."""

    def without(self, tokens: NDArray[np.integer], changes: Mapping[int, LayerChange]) -> Losses:
        """The same of a model without ``changes``, by layer."""

    def share(self, first: int) -> float:
        """Of the time of a whole pass, that of one without parts from layer ``first`` on."""

    def memory(self, plan: WindowPlan) -> int:
        """Bytes that the largest batch of ``plan`` needs; an upper estimate."""


def ablation_engine(engine: Engine, starts: Collection[int]) -> AblationEngine:
    """The model of ``engine``; ``starts`` are the layers that are the first to lose something."""
    if isinstance(engine, RunnerEngine):
        if isinstance(engine.runner, ModuleRunner):
            raise AdapterError(
                "parts of the positions are not taken out of a model in memory",
                "save it with save_pretrained and pass the folder"
                if engine.runner.inner is not None
                else "see pjdiag.kernel(model, ids) for what its attention does with the lag",
            )
        if not isinstance(engine.runner, TransformersRunner):
            raise AdapterError(
                "parts of the positions are taken out of native, PJ-RoPE research and Hugging Face "
                "checkpoints only",
                "leave --data out, for what the weights alone say",
            )
        return _Transformers(engine, loses=bool(starts))
    if not isinstance(engine, ByteEngine):
        raise TypeError(f"{type(engine).__name__} runs no model")
    return _Native(engine, starts)


def estimated(
    engine: AblationEngine, text: Text, plans: Sequence[WindowPlan], passes: Mapping[int, float]
) -> Estimate:
    """Time and memory of ``passes`` of the whole model over every window, by its length.

    Raises UsageError where the memory is not there.
    """
    available = memory_available()
    needed = 0
    for plan in plans:
        own = engine.memory(plan)
        require_memory(own, plan.length * plan.batch, available)
        needed = max(needed, own)
    repeated = [
        WindowPlan(plan.length, round(plan.windows * passes[plan.length]), plan.batch)
        for plan in plans
    ]

    def once(length: int, windows: int) -> None:
        engine.whole(window_tokens(text, np.zeros((windows, 2), dtype=np.int64), length), _nobody)

    return Estimate(seconds_needed(once, repeated), needed)


class _Native:
    """A model of this package; its layers before the first change are read once a batch."""

    def __init__(self, engine: ByteEngine, starts: Collection[int]) -> None:
        self._engine, self._starts = engine, frozenset(starts)
        self._entered: tuple[Any, AblatedLM] | None = None
        self.predicts, self.sinks = True, False

    def whole(self, tokens: NDArray[np.integer], observe: Observe) -> Losses:
        from pjdiag.models.ablated_lm import AblatedLM

        model = AblatedLM(self._engine.model, self._starts)
        losses = model.whole(tokens, observe)
        self._entered = tokens, model
        return losses

    def without(self, tokens: NDArray[np.integer], changes: Mapping[int, LayerChange]) -> Losses:
        if self._entered is None or self._entered[0] is not tokens:
            self.whole(tokens, _nobody)  # its losses were kept by an earlier run
        entered: Any = self._entered
        losses: Losses = entered[1].without(changes)
        return losses

    def share(self, first: int) -> float:
        layers = self._engine.config.layers
        return (layers - first - PROJECTED) / layers

    def memory(self, plan: WindowPlan) -> int:
        width = self._engine.config.embed_dim
        tokens = plan.length * min(plan.batch, plan.windows)
        kept = 6 * len(self._starts) + 4  # states, wide queries and keys, values; a control's keys
        return self._engine.memory(plan) + 4 * tokens * width * kept + KL_MEMORY


class _Transformers:
    """A Hugging Face model; every change is a pass of its own."""

    def __init__(self, engine: RunnerEngine, *, loses: bool) -> None:
        from pjdiag.models.ablated_transformers import require_removable
        from pjdiag.models.huggingface.execution import predicts_next

        self._engine = engine
        running: Any = engine.runner
        self._model = running.model
        self.predicts, self.sinks = predicts_next(self._model), engine.sinks
        if self.predicts and loses:
            require_removable(self._model)

    def whole(self, tokens: NDArray[np.integer], observe: Observe) -> Losses | None:
        from pjdiag.models.huggingface.attention import observed
        from pjdiag.models.huggingface.execution import losses

        ids = np.asarray(tokens, dtype=np.int64)
        if not self.predicts:
            self._engine.runner.run(ids[:, :-1], None, observe)
            return None
        if observe is _nobody:
            return losses(self._model, ids)
        with observed(self._model, observe):
            return losses(self._model, ids)

    def without(self, tokens: NDArray[np.integer], changes: Mapping[int, LayerChange]) -> Losses:
        from pjdiag.models.ablated_transformers import ablated
        from pjdiag.models.huggingface.execution import losses

        with ablated(self._model, changes):
            return losses(self._model, np.asarray(tokens, dtype=np.int64))

    def share(self, _: int) -> float:
        return 1.0

    def memory(self, plan: WindowPlan) -> int:
        tokens = plan.length * min(plan.batch, plan.windows)
        return self._engine.memory(plan) + 4 * tokens * 4 * self._engine.width + KL_MEMORY


def _nobody(*_: Any) -> None:
    """Observes nothing."""
