"""The runners: a byte-level model of this package, and any model that transformers builds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pjdiag.arguments import require_path
from pjdiag.checkpoint import Checkpoint
from pjdiag.checkpoint.native import load_model
from pjdiag.checkpoint.patched import is_patched, load_patched
from pjdiag.diagnostics.adapter_runner import parameter_precision
from pjdiag.diagnostics.run_cost import memory_available
from pjdiag.diagnostics.token_data import TokenData, read_ids, read_text
from pjdiag.diagnostics.windows import read_bytes
from pjdiag.errors import DataError, UsageError

if TYPE_CHECKING:
    from pjdiag.models.causal_lm import CausalLM
    from pjdiag.models.running import RunningAttention

Observe = Callable[[int, "RunningAttention"], None]
BYTES = 256
TABLE_COPIES = 3
"""Logits, weights and their product, of a model that builds its attention whole."""


@dataclass(frozen=True)
class ByteRunner:
    """A native or a PJ-RoPE research model, read from bytes."""

    checkpoint: Checkpoint
    initialised: CausalLM | None = None
    """A model to run instead of the checkpoint's own."""
    unit: Literal["byte", "token"] = "byte"

    @cached_property
    def model(self) -> CausalLM:
        """The model, in evaluation mode."""
        return self.initialised or load_model(self.checkpoint)

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return self.model.config.vocab_size

    @property
    def precision(self) -> str:
        """That of a model in memory; one from a checkpoint is made in float32."""
        return "float32" if self.initialised is None else parameter_precision(self.initialised)

    def tokens(self, path: str | os.PathLike[str]) -> TokenData:
        """A file's bytes, or the ids of a ``.npy`` file."""
        require_path(path, "data")
        if Path(path).suffix == ".npy":
            return read_ids(path, self.vocabulary)
        if self.vocabulary != BYTES:
            raise DataError(
                f"the model reads {self.vocabulary} different tokens; a text holds {BYTES} bytes",
                "pass token ids as a .npy file",
            )
        text = read_bytes(path)
        return TokenData(text.tokens.astype(np.int64), text.path, text.digest)

    def run(
        self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observe
    ) -> None:
        """Tells ``observe`` of each layer. Padding must be at the end: this model has no mask."""
        import torch

        from pjdiag.models.capture import observed_attention

        if present is not None and (present[:, 1:] > present[:, :-1]).any():
            raise UsageError(
                "padding comes before a token, and this model has no mask for it",
                "put the padding at the end of each sequence",
            )
        device = next(self.model.parameters()).device
        mask = None if present is None else torch.from_numpy(present).to(device)

        def tell(index: int, seen: RunningAttention) -> None:
            observe(index, seen if mask is None else replace(seen, present=mask))

        with torch.no_grad(), observed_attention(self.model, tell):
            self.model.hidden(torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device))

    def losses(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[B, T]`` nats, from ``ids`` ``[B, T + 1]``."""
        from pjdiag.models.evaluation import evaluate

        return evaluate(self.model, ids).losses

    def next_log_probabilities(
        self, ids: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """``[B, C]``, from ``ids`` ``[B, T]`` and ``candidates`` ``[B, C]``."""
        from pjdiag.models.evaluation import next_log_probabilities

        return next_log_probabilities(self.model, ids, candidates)

    def head_positions(self, length: int) -> int:
        """The last one only."""
        del length
        return 1

    def positions_at_once(self, batch: int, length: int) -> int:
        """As many as ``evaluate`` takes."""
        from pjdiag.models.evaluation import HEAD_TOKENS

        return min(length, max(1, HEAD_TOKENS // batch))

    def fresh(self, seed: int) -> ByteRunner:
        """The same architecture, freshly initialised."""
        from pjdiag.models.causal_lm import CausalLM

        return replace(self, initialised=CausalLM(self.model.config, seed).eval())


@dataclass(frozen=True)
class TransformersRunner:
    """A model of a Hugging Face folder or GGUF file, in float32."""

    checkpoint: Checkpoint
    allow_pickle: bool = False
    initialised: Any = None
    """A model to run instead of the checkpoint's own."""
    unit: Literal["byte", "token"] = "token"

    @cached_property
    def model(self) -> Any:
        """The model, in evaluation mode and behind the observed attention."""
        from pjdiag.models.huggingface import execution, loading

        if self.initialised is not None:
            return self.initialised
        values = sum(math.prod(header.shape) for header in self.checkpoint.headers.values())
        _require(4 * values, "the weights in float32", "run it on a machine with more memory")
        if is_patched(self.checkpoint):
            return load_patched(
                self.checkpoint, precision="float32", allow_pickle=self.allow_pickle
            )
        model = loading.load(self.checkpoint.path, allow_pickle=self.allow_pickle)
        return execution.prepared(model)

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        from pjdiag.models.huggingface import execution

        return execution.vocabulary(self.model)

    @property
    def precision(self) -> str:
        """What the model is loaded in."""
        return "float32"

    def tokens(self, path: str | os.PathLike[str]) -> TokenData:
        """A text through the checkpoint's tokenizer, or the ids of a ``.npy`` file."""
        from pjdiag.models.huggingface import loading

        require_path(path, "data")
        if Path(path).suffix == ".npy":
            return read_ids(path, self.vocabulary)
        tokenizer = loading.tokenizer(self.checkpoint.path)
        if tokenizer is None:
            raise DataError(
                f"there is no tokenizer beside {self.checkpoint.path.name} to read {path} with",
                "pass token ids as a .npy file",
            )
        text, digest = read_text(path)
        with loading.quiet():
            found = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ids = np.asarray(found, dtype=np.int64)
        if not ids.size or ids.max() >= self.vocabulary:
            largest = ids.max() if ids.size else "none"
            raise DataError(
                f"the tokenizer makes {ids.size} tokens of {path}, the largest id is {largest}; "
                f"the model knows 0 to {self.vocabulary - 1}",
                "pass a text, and check that the tokenizer belongs to the model",
            )
        return TokenData(ids, str(path), digest)

    def run(
        self, ids: NDArray[np.int64], present: NDArray[np.bool_] | None, observe: Observe
    ) -> None:
        """Tells ``observe`` of each layer."""
        from pjdiag.models.huggingface import execution

        self._require_tables(*ids.shape)
        execution.run(self.model, ids, present, observe)

    def losses(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[B, T]`` nats, from ``ids`` ``[B, T + 1]``."""
        from pjdiag.models.huggingface import execution

        self._require_tables(len(ids), ids.shape[1] - 1)
        return execution.losses(self.model, ids)

    def next_log_probabilities(
        self, ids: NDArray[np.int64], candidates: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """``[B, C]``, from ``ids`` ``[B, T]`` and ``candidates`` ``[B, C]``."""
        from pjdiag.models.huggingface import execution

        self._require_tables(*ids.shape)
        return execution.next_log_probabilities(self.model, ids, candidates)

    def head_positions(self, length: int) -> int:
        """The last one only, where the architecture lets its head be split."""
        from pjdiag.models.huggingface import execution

        return 1 if execution.splits_head(self.model) else length

    def positions_at_once(self, batch: int, length: int) -> int:
        """As many as fit, where the architecture lets its head be split; else all."""
        from pjdiag.models.huggingface import execution

        return execution.positions_at_once(self.model, batch, length)

    def fresh(self, seed: int) -> TransformersRunner:
        """The same architecture, freshly initialised."""
        from pjdiag.models.huggingface import execution

        return replace(self, initialised=execution.fresh(self.model, seed))

    def tables(self, batch: int, length: int) -> int:
        """Bytes of a layer's ``T x T`` tables, which some architectures build whole; else 0."""
        from pjdiag.models.huggingface import execution
        from pjdiag.models.huggingface.attention import is_attached

        if is_attached(self.model):
            return 0
        return 4 * TABLE_COPIES * batch * execution.num_heads(self.model) * length**2

    def _require_tables(self, batch: int, length: int) -> None:
        needed = self.tables(batch, length)
        if needed:
            what = (
                f"the attention tables of {length:,} tokens, which this architecture builds whole,"
            )
            _require(needed, what, "pass a shorter --length or --batch 1")


def _require(needed: int, what: str, hint: str) -> None:
    available = memory_available()
    if available is not None and needed > available:
        raise UsageError(
            f"{what} need about {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB "
            "are available",
            hint,
        )
