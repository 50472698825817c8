"""A model that the caller has in memory, as a runner: of transformers, or of any code."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pjdiag.checkpoint.live import LiveCheckpoint
from pjdiag.diagnostics.adapter_runner import parameter_precision
from pjdiag.diagnostics.token_data import PADDING, TokenData, read_ids
from pjdiag.errors import AdapterError, DataError, PjdiagError

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

Observe = Callable[[int, "RunningAttention"], None]
ANY_ID = 2**31 - 1
"""Number of token ids where a model does not tell it."""
RUN = "pass run=, a function of the model and the token ids [B, T] that calls it once"
RESETS = ("reset_parameters", "_reset_parameters")


@dataclass(frozen=True)
class ModuleRunner:
    """Runs a live model as it is; its mode, its configuration and its attention are given back."""

    checkpoint: LiveCheckpoint
    model: Any
    unit: Literal["byte", "token"] = "token"
    missed: dict[int, str] = field(default_factory=dict)
    """Why layers were not observed in the last run."""

    @property
    def inner(self) -> Any | None:
        """The outermost model of transformers within, the model itself included."""
        transformers = sys.modules.get("transformers")
        if transformers is None:
            return None
        known = transformers.PreTrainedModel
        return next((part for part in self.model.modules() if isinstance(part, known)), None)

    @property
    def vocabulary(self) -> int:
        """Number of different tokens; a very large one where the model does not tell."""
        inner = self.inner
        if inner is None:
            return ANY_ID
        from pjdiag.models.huggingface import execution

        return execution.vocabulary(inner)

    @property
    def precision(self) -> str:
        """That of the model's parameters."""
        return parameter_precision(self.model)

    def tokens(self, path: str | os.PathLike[str]) -> TokenData:
        """The ids of a ``.npy`` file."""
        if Path(path).suffix != ".npy":
            raise DataError(
                f"a model in memory comes without a tokenizer to read {path} with",
                "pass token ids, as an array or a .npy file",
            )
        return read_ids(path, self.vocabulary)

    def run(
        self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observe
    ) -> None:
        """Tells ``observe`` of each layer.

        Raises AdapterError for a model that cannot be observed or does not run on these ids.
        """
        self.missed.clear()
        with _evaluated(self.model):
            if self.inner is not None:
                self._run_transformers(self.inner, ids, present, observe)
            else:
                self._run_module(ids, present, observe)

    def _run_transformers(
        self,
        inner: Any,
        ids: NDArray[np.int64],
        present: NDArray[np.bool_] | None,
        observe: Observe,
    ) -> None:
        from pjdiag.models.huggingface import execution
        from pjdiag.models.huggingface.attention import observed

        with _attached(inner):
            if self.checkpoint.run is None:
                execution.run(inner, ids, present, observe)
            else:
                with observed(inner, observe):
                    self._call(ids, present)

    def _run_module(
        self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observe
    ) -> None:
        from pjdiag.models.multihead import multihead_modules, observed_multihead

        if not multihead_modules(self.model):
            raise AdapterError(
                f"{type(self.model).__name__} has no attention that can be observed; expected "
                "torch.nn.MultiheadAttention, or a model of transformers",
                "call nn.MultiheadAttention in its attention layers",
            )
        if present is not None and self.checkpoint.run is None:
            raise AdapterError(
                f"how {type(self.model).__name__} is told of padding is not known",
                f"{RUN}; the ids are {PADDING} on padding",
            )
        told: list[int] = []

        def tell(index: int, seen: RunningAttention) -> None:
            told.append(index)
            observe(index, seen)

        with observed_multihead(self.model, tell, self.missed.__setitem__):
            self._call(ids, present)
        if not told and not self.missed:
            raise AdapterError(
                f"running {type(self.model).__name__} called none of its attention layers", RUN
            )

    def _call(self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None) -> None:
        """One pass over ``ids``. What the model's own code raises comes as an AdapterError."""
        import torch

        from pjdiag.models.huggingface.rotary_state import original_frequencies

        marked = ids if present is None else np.where(present, ids, PADDING)
        device = next((p.device for p in self.model.parameters()), None)
        tokens = torch.from_numpy(np.ascontiguousarray(marked)).to(device)
        try:
            with torch.no_grad(), original_frequencies(self.model):
                if self.checkpoint.run is None:
                    self.model(tokens)
                else:
                    self.checkpoint.run(self.model, tokens)
        except PjdiagError:
            raise
        except Exception as error:
            raise AdapterError(
                f"{type(self.model).__name__} does not run on token ids {list(ids.shape)}: "
                f"{type(error).__name__}: {error}",
                RUN,
            ) from error

    def losses(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[B, T]`` nats, from ``ids`` ``[B, T + 1]``, of a causal model of transformers."""
        from pjdiag.models.huggingface import execution

        predictor = self._predictor()
        with _evaluated(self.model):
            return execution.losses(predictor, ids)

    def next_log_probabilities(
        self, ids: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """``[B, C]``, from ``ids`` ``[B, T]`` and ``candidates`` ``[B, C]``; as ``losses``."""
        import torch

        from pjdiag.models.huggingface import execution

        predictor = self._predictor()
        with _evaluated(self.model), torch.no_grad():
            return execution.next_log_probabilities(predictor, ids, candidates)

    def head_positions(self, length: int) -> int:
        """The last one only, where the architecture lets its head be split."""
        from pjdiag.models.huggingface import execution

        return 1 if execution.splits_head(self._predictor()) else length

    def positions_at_once(self, batch: int, length: int) -> int:
        """As many as fit, where the architecture lets its head be split; else all."""
        from pjdiag.models.huggingface import execution

        return execution.positions_at_once(self._predictor(), batch, length)

    def _predictor(self) -> Any:
        if self.inner is None:
            raise AdapterError(
                f"whether {type(self.model).__name__} predicts the next token is not known",
                "pass a causal model of transformers",
            )
        return self.inner

    def fresh(self, seed: int) -> ModuleRunner:
        """The same architecture with other weights.

        By the caller's own function, else as transformers makes it, else by what the modules
        reset themselves with. Raises AdapterError where some parameter would keep its values.
        """
        from pjdiag.models.seeding import seeded

        with seeded(seed):
            made = self._made(seed)
        return ModuleRunner(self.checkpoint, made)

    def _made(self, seed: int) -> Any:
        if self.checkpoint.fresh is not None:
            return self.checkpoint.fresh()
        if self.inner is self.model:
            from pjdiag.models.huggingface import execution

            return execution.fresh(self.model, seed)
        return _redrawn(self.model)


def _redrawn(module: Any) -> Any:
    made = copy.deepcopy(module)
    for part in reversed(list(made.modules())):  # what is within goes first
        reset = next((getattr(part, name) for name in RESETS if hasattr(part, name)), None)
        if reset is not None:
            reset()
    for (name, old), new in zip(module.named_parameters(), made.parameters(), strict=True):
        varies = old.numel() > 1 and bool((old != old.flatten()[0]).any())
        if varies and old.equal(new):
            raise AdapterError(
                f"{name} has no reset_parameters beside it, and a copy would keep its values",
                "pass fresh=, a function that makes the model anew",
            )
    return made


@contextmanager
def _evaluated(module: Any) -> Iterator[None]:
    """Evaluation mode; every part has its own mode back afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def _attached(model: Any) -> Iterator[None]:
    """``model`` behind the observed attention; it has its own configuration back afterwards."""
    from transformers import PretrainedConfig

    from pjdiag.models.huggingface.attention import attach, behind_interface, detach, is_attached

    if is_attached(model) or not behind_interface(model):
        yield
        return
    own = [
        (part, name, value)
        for part in model.modules()
        for name, value in vars(part).items()
        if isinstance(value, PretrainedConfig)
    ]
    attach(model)
    try:
        yield
    finally:
        detach(model)
        for part, name, value in own:
            setattr(part, name, value)
