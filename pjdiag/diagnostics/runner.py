"""What can run: a checkpoint as tokens in, attention and losses out."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pjdiag.adapters.protocol import Reading
from pjdiag.adapters.registry import registrations
from pjdiag.checkpoint.live import LiveCheckpoint
from pjdiag.checkpoint.lora import MERGED
from pjdiag.checkpoint.native import is_native, is_research
from pjdiag.diagnostics.adapter_runner import AdapterRunner
from pjdiag.diagnostics.module_runner import ModuleRunner
from pjdiag.diagnostics.runner_models import ByteRunner, TransformersRunner
from pjdiag.diagnostics.token_data import Data, TokenData, array_ids
from pjdiag.errors import AdapterError, MissingDependencyError, pip_install

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

__all__ = ["Observe", "Runner", "TokenData", "Unit", "runner", "runs_in_transformers", "tokens_of"]

Observe: TypeAlias = "Callable[[int, RunningAttention], None]"
Unit: TypeAlias = Literal["byte", "token"]


class Runner(Protocol):
    """A model that reads tokens."""

    @property
    def unit(self) -> Unit:
        """What a token is."""

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""

    @property
    def precision(self) -> str:
        """Type of the values that run through the model, ``float32``."""

    def tokens(self, path: str | os.PathLike[str]) -> TokenData:
        """A text file, or a ``.npy`` file of token ids, as tokens.

        An array is ``[N]`` or ``[N, T]`` of integers; -1 is padding. Raises DataError for a file
        that cannot be read or turned into tokens, and for an id outside the vocabulary.
        """

    def run(
        self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observe
    ) -> None:
        """Reads ``ids`` ``[B, T]``, padding where ``present`` is False; ``observe`` is told of
        each layer's attention.

        Raises AdapterError where a layer's attention cannot be observed.
        """

    def losses(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[B, T]`` nats of the token after each position, from ``ids`` ``[B, T + 1]``.

        Raises AdapterError for a model that predicts no next token.
        """

    def next_log_probabilities(
        self, ids: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """``[B, C]``: log-probability of each of ``candidates`` ``[B, C]`` as the token after
        ``ids`` ``[B, T]``.

        Raises AdapterError for a model that predicts no next token.
        """

    def head_positions(self, length: int) -> int:
        """Positions of ``length`` tokens whose logits ``next_log_probabilities`` computes."""

    def positions_at_once(self, batch: int, length: int) -> int:
        """Positions of ``batch`` windows whose logits ``losses`` has in memory at once."""

    def fresh(self, seed: int) -> Runner:
        """The same architecture, freshly initialised."""


def runner(reading: Reading, *, allow_pickle: bool = False) -> Runner:
    """What runs the checkpoint of ``reading``; the model is loaded at its first use.

    Native and PJ-RoPE research checkpoints read bytes; Hugging Face folders and GGUF files run in
    transformers, in float32. A model in memory runs as it is. An adapter with the method
    ``running_model`` brings its own. Raises AdapterError for any other,
    and MissingDependencyError without torch.
    """
    checkpoint = reading.checkpoint
    if isinstance(checkpoint, LiveCheckpoint):
        if is_native(checkpoint) and checkpoint.run is None and checkpoint.fresh is None:
            return ByteRunner(checkpoint, initialised=checkpoint.module)
        return ModuleRunner(checkpoint, checkpoint.module)
    if checkpoint.format.endswith(MERGED):
        raise AdapterError(
            "a base model with the changes of an adapter is read here, and not run",
            "merge it with peft (merge_and_unload), save the model and pass its folder",
        )
    native = is_native(checkpoint) or is_research(checkpoint)
    brought = None if native else _brought(reading)
    if brought is not None:
        return AdapterRunner(reading.adapter, brought)
    if not native and not runs_in_transformers(checkpoint.path, checkpoint.config):
        raise AdapterError(
            f"the adapter {reading.adapter} brings no model that can run; expected a native or "
            "PJ-RoPE research checkpoint, or a folder that transformers can load",
            "see `pjdiag inspect` for what the weights alone say",
        )
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("running a model needs torch", pip_install("torch"))
    return ByteRunner(checkpoint) if native else TransformersRunner(checkpoint, allow_pickle)


def tokens_of(model: Runner, data: Data) -> TokenData:
    """A file as ``model`` reads it, or an array of its token ids. Raises DataError."""
    if isinstance(data, str | os.PathLike):
        return model.tokens(data)
    return array_ids(data, model.vocabulary)


def _brought(reading: Reading) -> Any | None:
    """The model that the adapter itself makes of its reading; None where it brings none."""
    for entry in registrations():
        if entry.adapter is not None and entry.adapter.name == reading.adapter:
            reader = getattr(entry.adapter, "reader", entry.adapter)  # a map stands for a class
            make = getattr(reader, "running_model", None)
            return None if make is None else make(reading)
    return None


def missed_layers(model: Runner) -> dict[int, str]:
    """Why layers of the last run were not observed, where the runner knows."""
    return dict(model.missed) if isinstance(model, ModuleRunner) else {}


def runs_in_transformers(path: Path, config: Mapping[str, Any]) -> bool:
    """Whether this is a GGUF file, or comes with a ``config.json`` that names a model type."""
    return path.suffix == ".gguf" or isinstance(config.get("model_type"), str)
