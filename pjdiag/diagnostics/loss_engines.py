"""What measures losses: a byte-level model of this package, or whatever a runner runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pjdiag.adapters.protocol import Reading
from pjdiag.checkpoint.native import is_native, is_research, load_model, model_config
from pjdiag.diagnostics.adapter_runner import parameter_precision
from pjdiag.diagnostics.run_cost import HEAD_COPIES, WindowPlan, memory_needed, value_bytes
from pjdiag.diagnostics.runner import runner, tokens_of
from pjdiag.diagnostics.runner_models import TransformersRunner
from pjdiag.diagnostics.token_data import Data, TokenData, array_ids
from pjdiag.diagnostics.windows import read_bytes
from pjdiag.errors import AdapterError, DataError, MissingDependencyError, UsageError, pip_install

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

BYTE_VOCABULARY = 256
MLP_WIDTH = 12
"""Widths of the residual stream that a gated MLP of usual size has in memory at once."""
STREAM_WIDTH = 14
"""As many again for the stream itself, queries, keys, values and what is mixed of them."""
FEWEST_TOKENS = 3


@dataclass(frozen=True)
class Text:
    """Data to predict, as tokens; a row is a text of its own."""

    rows: NDArray[np.int64]
    """``[rows, N]``."""
    path: str
    digest: str
    size: int
    """Bytes of the text; for an array of ids of the file, or of the array in memory."""
    unit: str
    """``byte`` or ``token``."""
    plain: bool = True
    """Whether this is a text, not an array of ids."""

    def longest_window(self) -> int:
        """The largest T of which one window of T + 1 tokens fits."""
        return int(self.rows.shape[1]) - 1

    @property
    def bytes_per_token(self) -> float | None:
        """Mean length of a token; None for an array of ids."""
        return self.size / self.rows.size if self.plain else None


@dataclass(frozen=True)
class Losses:
    """What a model makes of B windows of T + 1 tokens."""

    by_position: NDArray[np.float64]
    """``[B, T]`` nats."""
    attention: Mapping[int, NDArray[np.float64]] | None
    """Layer -> ``[H, spans, 3]``: entropy, mean distance, sink mass; None: not asked for."""


class Engine(Protocol):
    """A model that reads windows."""

    @property
    def precision(self) -> str:
        """Type of the values that run through the model, ``float32``."""

    def text(self, data: Data) -> Text:
        """A file or an array of ids as tokens. Raises DataError."""

    def evaluate(
        self, tokens: NDArray[np.integer], spans: Sequence[tuple[int, int]] | None
    ) -> Losses:
        """Losses of windows ``[B, T + 1]``; attention over ``spans`` where they are given."""

    def memory(self, plan: WindowPlan) -> int:
        """Bytes that the largest batch of ``plan`` needs; an upper estimate."""

    def bad_weights(self) -> dict[str, int]:
        """Tensors with values that are not finite, and how many."""


def engine(reading: Reading, *, allow_pickle: bool = False) -> Engine:
    """What runs the checkpoint of ``reading``.

    Raises AdapterError for a checkpoint of which no model can be built, UsageError for a native
    one that does not read bytes, MissingDependencyError without torch.
    """
    if is_native(reading.checkpoint) or is_research(reading.checkpoint):
        return ByteEngine(reading)
    return RunnerEngine(reading, allow_pickle)


class ByteEngine:
    """A native or a PJ-RoPE research model."""

    def __init__(self, reading: Reading) -> None:
        self.config = model_config(reading.checkpoint)
        if self.config.vocab_size != BYTE_VOCABULARY:
            raise UsageError(
                f"the model reads {self.config.vocab_size} different tokens; a text has bytes, of "
                f"which there are {BYTE_VOCABULARY}",
                "pass a byte-level checkpoint",
            )
        try:
            from pjdiag.models import evaluation  # reading a configuration needs no torch
        except ImportError as error:
            raise MissingDependencyError("running it needs torch", pip_install("torch")) from error
        self._evaluate, self._head_tokens = evaluation.evaluate, evaluation.HEAD_TOKENS
        self.model = load_model(reading.checkpoint)

    @property
    def precision(self) -> str:
        """That of the model's parameters."""
        return parameter_precision(self.model)

    def text(self, data: Data) -> Text:
        """The bytes of a file, or an array of them."""
        if not isinstance(data, str | os.PathLike):
            return _text(array_ids(data, BYTE_VOCABULARY), data, "byte")
        found = read_bytes(data)
        size = len(found.tokens)
        return Text(found.tokens.astype(np.int64)[None], found.path, found.digest, size, "byte")

    def evaluate(
        self, tokens: NDArray[np.integer], spans: Sequence[tuple[int, int]] | None
    ) -> Losses:
        """One pass gives losses and attention."""
        found = self._evaluate(self.model, tokens, spans)
        return Losses(
            found.losses, None if found.attention is None else dict(enumerate(found.attention))
        )

    def memory(self, plan: WindowPlan) -> int:
        """From the shapes of the model."""
        return memory_needed(self.config, plan, self._head_tokens)

    def bad_weights(self) -> dict[str, int]:
        """From the parameters."""
        return not_finite(self.model)


class RunnerEngine:
    """A Hugging Face model, patched or not."""

    def __init__(self, reading: Reading, allow_pickle: bool = False) -> None:
        self.runner = runner(reading, allow_pickle=allow_pickle)
        self.width = max(layer.num_heads.value * layer.head_dim.value for layer in reading.layers)
        self.sinks = any(layer.sinks.value for layer in reading.layers)
        self._heads = max(layer.num_heads.value for layer in reading.layers)

    @property
    def precision(self) -> str:
        """The runner's."""
        return self.runner.precision

    def text(self, data: Data) -> Text:
        """A text through the folder's tokenizer, the ids of a ``.npy`` file, or an array of ids."""
        return _text(tokens_of(self.runner, data), data, self.runner.unit)

    def evaluate(
        self, tokens: NDArray[np.integer], spans: Sequence[tuple[int, int]] | None
    ) -> Losses:
        """Losses from one pass, attention from another."""
        ids = np.asarray(tokens, dtype=np.int64)
        losses = self.runner.losses(ids)
        if spans is None:
            return Losses(losses, None)
        if self.sinks:
            raise AdapterError(
                "the attention of this model has sinks, logits without a key; what is left of it "
                "is no distribution over tokens",
                "leave --attention out",
            )
        from pjdiag.models.evaluation import attention_by_span

        layers: dict[int, NDArray[np.float64]] = {}

        def observe(index: int, seen: RunningAttention) -> None:
            layers[index] = attention_by_span(seen, spans).cpu().numpy()

        self.runner.run(ids[:, :-1], None, observe)
        return Losses(losses, layers)

    def memory(self, plan: WindowPlan) -> int:
        """From the heads and the vocabulary; the MLP is taken to be of usual size."""
        batch = min(plan.batch, plan.windows)
        tokens = plan.length * batch
        per_token = (STREAM_WIDTH + MLP_WIDTH) * self.width + 12 * self._heads
        positions = self.runner.positions_at_once(batch, plan.length)
        head = HEAD_COPIES * batch * positions * self.runner.vocabulary
        tables = 0
        if isinstance(self.runner, TransformersRunner):
            tables = self.runner.tables(batch, plan.length)
        return value_bytes(self.precision) * (tokens * per_token + head) + tables + 2**26

    def bad_weights(self) -> dict[str, int]:
        """From the parameters."""
        running: Any = self.runner
        return not_finite(running.model)


def not_finite(model: Any) -> dict[str, int]:
    """Parameters with NaN or infinity, and how many values."""
    counts = {name: int((~value.isfinite()).sum()) for name, value in model.named_parameters()}
    return {name: count for name, count in counts.items() if count}


def _text(found: TokenData, data: Data, unit: str) -> Text:
    _require_whole(found)
    rows = found.ids if found.ids.ndim == 2 else found.ids[None]
    if not isinstance(data, str | os.PathLike):
        return Text(rows, found.path, found.digest, np.asarray(data).nbytes, unit, plain=False)
    size = os.stat(data).st_size  # noqa: PTH116  a path of any kind
    return Text(rows, found.path, found.digest, size, unit, plain=not str(data).endswith(".npy"))


def _require_whole(found: TokenData) -> None:
    if found.present is not None:
        raise DataError(
            f"{found.path} has padding; the loss is that of whole windows",
            "save sequences of one length, or one text as an array [N]",
        )
    if found.ids.shape[-1] < FEWEST_TOKENS:
        raise DataError(
            f"{found.path} holds {found.ids.shape[-1]} tokens; expected at least {FEWEST_TOKENS}",
            "pass a longer text",
        )
