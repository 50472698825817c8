"""What the attention of a ``CausalLM`` really does with a sequence, caught while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pjdiag.models.causal_lm import CausalLM, CausalSelfAttention
from pjdiag.models.running import Observer, RunningAttention


@dataclass(frozen=True)
class CapturedAttention:
    """One layer's attention over one sequence of T tokens, in float32."""

    queries: NDArray[np.float32]
    """``[H, T, D]`` before the position transform."""
    keys: NDArray[np.float32]
    """``[H, T, D]`` before the position transform."""
    values: NDArray[np.float32]
    """``[H, T, D]``."""
    logits: NDArray[np.float32]
    """``[H, T, T]``, query by key, before the softmax; only keys that are no later count."""
    mixed: NDArray[np.float32]
    """``[H, T, D]``, the values mixed by the attention, before the output projection."""


def captured_attention(
    model: CausalLM, tokens: NDArray[np.integer[Any]]
) -> list[CapturedAttention]:
    """Every layer's attention while ``model`` reads ``tokens`` ``[T]``.

    The logits are formed from the positioned queries and keys and the bias of this very run.

    >>> from pjdiag.models.config import ModelConfig
    >>> model = CausalLM(ModelConfig(embed_dim=16, num_heads=2, layers=1))
    >>> captured_attention(model, np.arange(5))[0].logits.shape
    (2, 5, 5)
    """
    attentions = _attentions(model)
    with torch.no_grad(), _recording(attentions) as records:
        model(torch.from_numpy(np.asarray(tokens, dtype=np.int64))[None])
        return [
            _captured(attention, record)
            for attention, record in zip(attentions, records, strict=True)
        ]


@contextmanager
def observed_attention(model: CausalLM, observe: Observer) -> Iterator[None]:
    """Calls ``observe`` with each layer's index and attention as soon as the layer has run.

    >>> from pjdiag.models.config import ModelConfig
    >>> model = CausalLM(ModelConfig(embed_dim=16, num_heads=2, layers=2))
    >>> with observed_attention(model, lambda index, seen: print(index, seen.keys.shape)):
    ...     _ = model(torch.zeros(1, 5, dtype=torch.long))
    0 torch.Size([1, 2, 5, 8])
    1 torch.Size([1, 2, 5, 8])
    """
    handles = []

    def watch(index: int, attention: CausalSelfAttention) -> None:
        seen: dict[str, Any] = {}

        def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
            return lambda *called: seen.update({name: called[-1]})

        def done(*_: Any) -> None:
            queries, keys = seen["positioner"]
            observe(index, RunningAttention(queries, keys, seen.get("pj_bias"), attention.scale))
            seen.clear()

        for name, part in attention.named_children():
            if name in ("positioner", "pj_bias"):
                handles.append(part.register_forward_hook(keep(name)))
        handles.append(attention.register_forward_hook(done))

    try:
        for index, attention in enumerate(_attentions(model)):
            watch(index, attention)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _attentions(model: CausalLM) -> list[CausalSelfAttention]:
    return [module for module in model.modules() if isinstance(module, CausalSelfAttention)]


@contextmanager
def _recording(attentions: list[CausalSelfAttention]) -> Iterator[list[dict[str, Any]]]:
    """Inputs and outputs of the parts of each attention, by the part's name."""
    records: list[dict[str, Any]] = [{} for _ in attentions]
    handles = []

    def record(into: dict[str, Any], name: str, part: nn.Module) -> None:
        def keep(_: nn.Module, given: tuple[Any, ...], made: Any) -> None:
            into[name] = (given, made)

        handles.append(part.register_forward_hook(keep))

    try:
        for attention, into in zip(attentions, records, strict=True):
            for name, part in attention.named_children():
                record(into, name, part)
        yield records
    finally:
        for handle in handles:
            handle.remove()


def _captured(attention: CausalSelfAttention, record: dict[str, Any]) -> CapturedAttention:
    (queries, keys, positions), (turned_queries, turned_keys) = record["positioner"]
    projected = record["qkv"][1]
    length = positions.shape[0]
    values = projected.view(1, length, 3, attention.num_heads, -1)[:, :, 2].transpose(1, 2)
    (mixed,), _ = record["out_proj"]
    logits = attention.scale * turned_queries @ turned_keys.transpose(-1, -2)
    if "pj_bias" in record:
        by_lag: Tensor = record["pj_bias"][1]
        lags = (positions[:, None] - positions[None, :]).long().clamp(min=0)
        logits = logits + by_lag[:, lags]
    return CapturedAttention(
        queries[0].numpy(),
        keys[0].numpy(),
        values[0].numpy(),
        logits[0].numpy(),
        mixed.view(length, attention.num_heads, -1).transpose(0, 1).numpy(),
    )
