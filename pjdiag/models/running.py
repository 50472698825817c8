"""One layer's attention as it is seen while a model runs, whatever the architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor


@dataclass(frozen=True)
class RunningAttention:
    """What a layer's attention is made of while the model runs: tensors, not copies.

    The logit of query i and key j is ``softcap tanh(scale q_i . k_j / softcap) + b(i - j)``, over
    the keys that ``causal``, ``window`` and ``present`` leave. B windows, H heads, T tokens.
    """

    queries: Tensor
    """``[B, H, T, D]`` after the position transform and any norm of the queries."""
    keys: Tensor
    """``[B, H_kv, T, D]``; query head h reads key head ``h // (H // H_kv)``."""
    bias_by_lag: Tensor | None
    """``[H, T]`` in logits, at the lags d = i - j >= 0; None: no bias."""
    scale: float
    bias_ahead: Tensor | None = None
    """``[H, T]`` in logits, for keys j = i + d; where attention looks ahead and has a bias."""
    causal: bool = True
    window: int | None = None
    """Keys seen, the token itself included; without causality as many on either side."""
    softcap: float | None = None
    """In logits; None: no soft cap."""
    present: Tensor | None = None
    """``[B, T]``, False on padding; None: no padding."""


Observer: TypeAlias = Callable[[int, RunningAttention], None]
"""Told of each layer's index and attention, while the layer runs."""
