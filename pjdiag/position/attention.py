"""Exact causal attention under a kernel of the lag, without a T x T bias in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

BLOCK_ROWS = 1024


def lag_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias_by_lag: Tensor | None = None,
    scale: float | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Tensor:
    """Causal attention ``softmax_j(scale q_i . k_j + b(i - j)) v_j`` over ``j <= i``.

    ``q``, ``k`` are ``[B, H, T, D]``, ``v`` is ``[B, H, T, E]``, the result is ``[B, H, T, E]``.
    ``bias_by_lag`` is ``[H, T]`` in logits (b at the lags 0..T-1), or None for no bias; ``scale``
    is 1/sqrt(D) where it is None. Gradients reach every argument, the kernel included. Without
    gradients memory is linear in T; with them the logits of every block are kept.

    Raises ValueError where the shapes do not fit.

    >>> flat = torch.zeros(1, 1, 3, 2)
    >>> value = torch.tensor([[[[0.0], [3.0], [6.0]]]])
    >>> lag_attention(flat, flat, value).flatten().tolist()
    [0.0, 1.5, 3.0]
    >>> only_self = torch.tensor([[0.0, -1e9, -1e9]])
    >>> lag_attention(flat, flat, value, only_self).flatten().tolist()
    [0.0, 3.0, 6.0]
    """
    check_shapes(q, k, v, bias_by_lag)
    if block_rows < 1:
        raise ValueError(f"block_rows is {block_rows}; expected at least 1")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    value_width = v.shape[-1]
    q, k, v = _one_width(q, k, v)
    if bias_by_lag is None:
        out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        out = torch.cat(
            [
                _attend(q[:, :, start:stop].flip(-2), k[:, :, :stop], v[:, :, :stop], mask, scale)
                for start, stop, mask in _reversed_masks(bias_by_lag.to(q.dtype), block_rows)
            ],
            dim=-2,
        )
    return out[..., :value_width]


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of reversed queries under their mask, in the order of the positions again."""
    if mask.requires_grad:  # no fused kernel trains its mask, and their fallback is slower
        out = torch.softmax((scale * q) @ k.transpose(-1, -2) + mask, dim=-1) @ v
    else:
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask[None], scale=scale)
    return out.flip(-2)


def _reversed_masks(bias_by_lag: Tensor, block_rows: int) -> Iterator[tuple[int, int, Tensor]]:
    """Blocks of queries ``start..stop-1``, last one first, with their additive mask.

    Row n stands for query ``i = stop-1-n``, so its lag to key j is ``stop-1 - (n+j)``: it depends
    on n + j alone. The mask ``[H, rows, stop]`` is then a view with strides (1, 1) of one line
    ``b(T-1) .. b(0), -inf ..``, where -inf stands for keys of the future.
    """
    heads, length = bias_by_lag.shape
    future = bias_by_lag.new_full((heads, min(block_rows, length) - 1), -torch.inf)
    line = torch.cat([bias_by_lag.flip(-1), future], dim=-1)
    for start in range(0, length, block_rows):
        stop = min(start + block_rows, length)
        mask = line.as_strided(
            (heads, stop - start, stop), (line.stride(0), 1, 1), storage_offset=length - stop
        )
        yield start, stop, mask


def _one_width(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors padded with zero channels to a common width, as the fused kernels want."""
    width = max(tensor.shape[-1] for tensor in tensors)
    return tuple(
        pad(tensor, (0, width - tensor.shape[-1])) if tensor.shape[-1] < width else tensor
        for tensor in tensors
    )


def check_shapes(q: Tensor, k: Tensor, v: Tensor, bias_by_lag: Tensor | None) -> None:
    """Raises ValueError where the shapes are not those of ``lag_attention``."""
    if q.ndim != 4 or q.shape != k.shape or v.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; "
            "expected [B, H, T, D], [B, H, T, D], [B, H, T, E]"
        )
    if bias_by_lag is not None and bias_by_lag.shape != q.shape[1:3]:
        raise ValueError(
            f"bias_by_lag is {tuple(bias_by_lag.shape)}; expected [H, T] = {tuple(q.shape[1:3])}"
        )
