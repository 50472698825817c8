"""Where causal attention looks: entropy, mean distance and sink mass of every row, by tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pjdiag.position.attention import check_shapes

TILE_KEYS = 1024
TILE_ELEMENTS = 2**19
"""Logits that are in memory at once; two such tiles fit a core's cache."""
MASKED = -1e30
"""Stands for minus infinity: 0 times it is 0."""


@dataclass(frozen=True)
class AttentionStatistics:
    """Statistics of the attention distribution ``p_j`` of every query, in float64."""

    entropy: Tensor
    """``-sum_j p_j ln p_j`` in nats, ``[B, H, T]``."""
    mean_distance: Tensor
    """``sum_j p_j (i - j)`` in tokens, ``[B, H, T]``."""
    sink_mass: Tensor
    """``p_0``, the share on the first position, ``[B, H, T]``."""


@torch.no_grad()
def attention_statistics(
    q: Tensor,
    k: Tensor,
    bias_by_lag: Tensor | None = None,
    scale: float | None = None,
    tile_keys: int = TILE_KEYS,
    tile_elements: int = TILE_ELEMENTS,
    *,
    softcap: float | None = None,
) -> AttentionStatistics:
    """Statistics of ``softmax_j(scale q_i . k_j + b(i - j))`` over ``j <= i``.

    With ``softcap`` c the products are ``c tanh(scale q_i . k_j / c)``, before the bias.
    Arguments as for ``attention.lag_attention``; no gradient is recorded. Logits are formed in
    float32 (float64 for float64 inputs), one tile at a time, and summed by an online softmax, so
    memory is O(T). Float32 logits are rounded, by 1e-5 where they reach a hundred. Raises
    ValueError where the shapes do not fit.

    >>> flat = torch.zeros(1, 1, 4, 2)
    >>> found = attention_statistics(flat, flat)
    >>> found.mean_distance.flatten().tolist(), found.sink_mass.flatten().tolist()[:2]
    ([0.0, 0.5, 1.0, 1.5], [1.0, 0.5])
    """
    check_shapes(q, k, k, bias_by_lag)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dtype = torch.promote_types(q.dtype, torch.float32)
    heads, length = q.shape[1:3]
    if bias_by_lag is None:
        bias_by_lag = q.new_zeros(heads, length)
    line = bias_by_lag.to(dtype).clamp(min=MASKED).flip(-1)
    rows = max(16, tile_elements // (heads * min(tile_keys, length)))
    rows = min(rows, length)
    line = torch.cat([line, line.new_full((heads, rows - 1), MASKED)], dim=-1)
    tiles = _Tiles(line, length, rows, min(tile_keys, length), softcap)
    found = [
        torch.cat(list(tiles.statistics(queries * scale, keys)), dim=-1)
        for queries, keys in zip(q.to(dtype), k.to(dtype), strict=True)
    ]
    entropy, mean_distance, sink_mass = torch.stack(found, dim=1)
    return AttentionStatistics(entropy, mean_distance, sink_mass)


class _Tiles:
    """The tiles of one sequence's logits; two buffers serve them all."""

    def __init__(
        self, line: Tensor, length: int, rows: int, keys: int, softcap: float | None
    ) -> None:
        self._softcap = softcap
        self._line = line
        """``[H, T + rows - 1]``: b(T-1) .. b(0), then MASKED for keys of the future."""
        self._length, self._rows, self._keys = length, rows, keys
        size = line.shape[0] * rows * keys
        self._logits, self._weights = line.new_empty(size), line.new_empty(size)
        self._offsets = torch.arange(keys, dtype=line.dtype, device=line.device)

    def statistics(self, q: Tensor, k: Tensor) -> Iterator[Tensor]:
        """``[3, H, rows]`` for one block of queries after the other; q, k are ``[H, T, D]``."""
        for start in range(0, self._length, self._rows):
            stop = min(start + self._rows, self._length)
            yield self._block(q[:, start:stop].flip(1), k, start, stop).flip(-1)

    def _block(self, q: Tensor, k: Tensor, start: int, stop: int) -> Tensor:
        """Rows in reverse order, so that the bias is a view: row n is the query stop-1-n."""
        top = torch.full_like(q[..., 0], MASKED)
        total = torch.zeros_like(top, dtype=torch.float64)
        log_sum, lag_sum = total.clone(), total.clone()
        positions = torch.arange(stop - 1, start - 1, -1, dtype=torch.float64, device=q.device)
        for first in range(0, stop, self._keys):
            last = min(first + self._keys, stop)
            logits = self._tile(q, k[:, first:last], stop, first)
            new_top = torch.maximum(top, logits.amax(-1))
            weights = self._buffer(self._weights, logits.shape)
            torch.exp(logits.sub_(new_top[..., None]), out=weights)
            tile_sum = weights.sum(-1).double()
            tile_keys = (weights.flatten(0, 1) @ self._offsets[: last - first]).view_as(top)
            tile_log = weights.mul_(logits).sum(-1).double()
            drop = (top - new_top).double()
            kept = drop.exp()
            # log_sum is the sum of w ln w with w relative to the largest logit so far
            log_sum = kept * (log_sum + drop * total) + tile_log
            lag_sum = kept * lag_sum + (positions - first) * tile_sum - tile_keys
            total, top = kept * total + tile_sum, new_top
        first_key = self._capped((q @ k[:, 0, :, None])[..., 0])
        first_key = first_key + self._line[:, self._length - stop :][:, : stop - start]
        sink = (first_key - top).double().exp() / total
        return torch.stack([total.log() - log_sum / total, lag_sum / total, sink])

    def _tile(self, q: Tensor, k: Tensor, stop: int, first: int) -> Tensor:
        shape = (*q.shape[:2], k.shape[1])
        bias = self._line.as_strided(
            shape, (self._line.stride(0), 1, 1), storage_offset=self._length - stop + first
        )
        logits = self._buffer(self._logits, shape)
        if self._softcap is None:
            return torch.baddbmm(bias, q, k.mT, out=logits)
        return self._capped(torch.bmm(q, k.mT, out=logits)).add_(bias)

    def _capped(self, products: Tensor) -> Tensor:
        """The soft cap, in place."""
        if self._softcap is None:
            return products
        return products.div_(self._softcap).tanh_().mul_(self._softcap)

    @staticmethod
    def _buffer(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
        return buffer[: math.prod(shape)].view(shape)
