"""How far attention moves where a part of its logits is removed, on a sample of the queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjdiag.models.ablation import LayerChange
from pjdiag.models.running import RunningAttention

ELEMENTS = 2**21
"""Logits that are in memory at once."""
SMALL = 0.5
"""Largest change, in logits, that is summed in its second-order form."""


def sampled_queries(windows: int, length: int, wanted: int, seed: Sequence[int]) -> Tensor:
    """``[windows, n]`` positions below ``length``, drawn evenly; about ``wanted`` in all.

    >>> sampled_queries(4, 128, 32, [0]).shape
    torch.Size([4, 8])
    """
    each = min(length, -(-wanted // windows))
    rng = np.random.default_rng(list(seed))
    return torch.from_numpy(rng.integers(0, length, (windows, each)))


@torch.no_grad()
def attention_kl(
    seen: RunningAttention, changes: Sequence[LayerChange], queries: Tensor
) -> NDArray[np.float64]:
    """``[len(changes), H]`` nats: means over windows and queries of ``KL(p || p')``.

    p is the attention of a query, p' that of the same queries and keys without the part that a
    change removes. ``queries`` ``[B, n]`` are positions. Logits are formed in float64.

    >>> flat = torch.zeros(1, 1, 2, 1)
    >>> seen = RunningAttention(flat, flat, torch.tensor([[0.0, 1.0]]), 1.0)
    >>> lost = LayerChange(torch.ones(1).bool(), whole_bias=True)
    >>> attention_kl(seen, [lost], torch.tensor([[1]])).round(6).tolist()
    [[0.110944]]
    """
    total = torch.zeros(len(changes), seen.queries.shape[1], dtype=torch.float64)
    for windows, positions in _pieces(seen, queries):
        rows = _Rows.of(seen, windows, positions)
        before = rows.logits(seen)
        weights, normaliser = before.softmax(-1), before.logsumexp(-1)
        for index, change in enumerate(changes):
            lost = rows.lost(change, seen)
            total[index] += _divergence(before, weights, normaliser, lost).sum((0, 2))
    found: NDArray[np.float64] = (total / queries.numel()).numpy()
    return found


def _pieces(seen: RunningAttention, queries: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some windows at once, or of a long one some of its queries."""
    heads, length = seen.queries.shape[1:3]
    at_once = max(1, ELEMENTS // (heads * length))
    windows = max(1, at_once // queries.shape[1])
    for first in range(0, len(queries), windows):
        chosen = slice(first, first + windows)
        for part in torch.split(queries[chosen], at_once, dim=1):
            yield chosen, part


@dataclass(frozen=True)
class _Rows:
    """Rows of the logits of B windows: n queries of each against all keys."""

    queries: Tensor
    """``[B, H, n, D]``."""
    keys: Tensor
    """``[B, H, T, D]``."""
    places: Tensor
    """``[B, H, n, T]``: where the bias of each logit stands in ``_by_lag``'s line."""
    keep: Tensor
    """``[B, 1, n, T]``."""

    @classmethod
    def of(cls, seen: RunningAttention, windows: slice, positions: Tensor) -> _Rows:
        """The rows of ``positions`` ``[B, n]``."""
        length = seen.keys.shape[2]
        index = positions[:, None, :, None].expand(-1, seen.queries.shape[1], -1, 1)
        every = seen.queries[windows]
        queries = every.gather(2, index.expand(-1, -1, -1, every.shape[-1])).double()
        keys = seen.keys[windows].double()
        lags = positions[..., None] - torch.arange(length)
        keep = lags >= 0 if seen.causal else torch.ones_like(lags, dtype=torch.bool)
        if seen.window is not None:
            keep = keep & (lags.abs() < seen.window)
        if seen.present is not None:
            keep = keep & seen.present[windows, None]
        heads = queries.shape[1]
        keys = keys.repeat_interleave(heads // keys.shape[1], dim=1)
        side = torch.where(lags >= 0, lags, heads * length - lags)[:, None]
        places = side + length * torch.arange(heads)[:, None, None]
        places = places.masked_fill(~keep[:, None], 2 * heads * length)
        return cls(queries, keys, places, keep[:, None])

    def logits(self, seen: RunningAttention) -> Tensor:
        """``[B, H, n, T]``, minus infinity where a key is not seen."""
        found = self._products(self.queries, seen)
        every = torch.ones(self.queries.shape[1], dtype=torch.bool)
        bias = self._by_lag(seen.bias_by_lag, seen.bias_ahead, every)
        return (found if bias is None else found + bias).masked_fill(~self.keep, -torch.inf)

    def lost(self, change: LayerChange, seen: RunningAttention) -> Tensor:
        """What the logits lose, ``[B, H, n, T]``; 0 where a key is not seen."""
        total: Tensor | float = 0.0
        if change.channels is not None:
            left = change.products(self.queries, self.keys, self.keys)[0]
            total = self._products(self.queries, seen) - self._products(left, seen)
        behind, ahead = change.line, None
        if change.whole_bias:
            behind, ahead = seen.bias_by_lag, seen.bias_ahead
        bias = self._by_lag(behind, ahead, change.heads)
        if bias is not None:
            total = bias + total
        return torch.as_tensor(total, dtype=torch.float64).masked_fill(~self.keep, 0.0)

    def _products(self, queries: Tensor, seen: RunningAttention) -> Tensor:
        found = seen.scale * queries @ self.keys.mT
        return found if seen.softcap is None else seen.softcap * torch.tanh(found / seen.softcap)

    def _by_lag(self, behind: Tensor | None, ahead: Tensor | None, heads: Tensor) -> Tensor | None:
        """``[B, H, n, T]``: 0 for other ``heads``, keys ahead without ``ahead``, keys not seen."""
        if behind is None and ahead is None:
            return None
        length = self.keys.shape[2]
        none = torch.zeros(len(heads), length, dtype=torch.float64)
        sides = [
            none if line is None else (line[:, :length].double() * heads[:, None])
            for line in (behind, ahead)
        ]
        line = torch.cat([*(side.flatten() for side in sides), none[0, :1]])
        return line[self.places]


def _divergence(before: Tensor, weights: Tensor, normaliser: Tensor, lost: Tensor) -> Tensor:
    """``KL(softmax b || softmax(b - C)) = E[C] + log E[e^{-C}]`` over the last axis.

    C is centred on its mean. A small one is summed without its first order, which cancels; under
    a large one keys count whose weight was too small for a number.
    """
    centred = lost - (weights * lost).sum(-1, keepdim=True)  # unseen keys have no weight
    if bool(centred.abs().max() < SMALL):
        excess = torch.expm1(-centred).add_(centred)
        found = torch.log1p(excess.mul_(weights).sum(-1))
    else:
        found = (before - centred).logsumexp(-1) - normaliser
    return found.clamp(min=0.0)
