"""Exact attention under a mask rule and a bias, by blocks of queries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import scaled_dot_product_attention

from pjdiag.models.huggingface.masks import MaskRule
from pjdiag.position.attention import lag_attention

BLOCK_ELEMENTS = 2**24
"""Logits (or entries of a mask) that a block of queries has at once, over batch and heads."""
LEAST_ROWS, MOST_ROWS = 16, 1024


@dataclass(frozen=True)
class Terms:
    """What the logits are made of beside queries and keys, and what happens to them."""

    scale: float
    bias_by_lag: Tensor | None = None
    """``[H, N]`` logits at the lags 0..N-1; keys ahead have none."""
    softcap: float | None = None
    sinks: Tensor | None = None
    """``[H]``, the logit of a key without a value."""
    position_bias: Tensor | None = None
    """``[1 or B, 1 or H, T_q, T_k]`` logits."""
    table: Tensor | None = None
    """``[1 or B, 1 or H, T_q, T_k]``: a mask, True = keep, or added to the logits."""
    dropout: float = 0.0

    @property
    def bare(self) -> bool:
        """Whether a fused kernel can form the logits from queries and keys alone."""
        return self.bias_by_lag is None and self.position_bias is None and self.fused

    @property
    def fused(self) -> bool:
        """Whether a fused kernel can follow with a mask added."""
        return self.softcap is None and self.sinks is None


def attend(q: Tensor, k: Tensor, v: Tensor, rule: MaskRule, terms: Terms) -> Tensor:
    """``[B, H, T_q, E]`` from ``q`` ``[B, H, T_q, D]``, ``k`` ``[B, H_kv, T_k, D]`` and ``v``.

    Memory is linear in T without gradients, unless a table or a position bias is given. Rows of
    padding attend to something finite.

    >>> q = torch.zeros(1, 2, 3, 4)
    >>> v = torch.tensor([[[[0.0], [3.0], [6.0]]]])
    >>> attend(q, q[:, :1], v, MaskRule(causal=True, window=2), Terms(1.0))[0, 0].flatten().tolist()
    [0.0, 1.5, 4.5]
    """
    queries, keys = q.shape[2], k.shape[2]
    windowed = not rule.reaches_all(queries, keys)
    aligned = rule.offset == 0 and queries == keys
    if terms.bare and terms.table is None and not windowed:
        if not rule.causal or (rule.present is None and queries == 1):
            present = rule.present
            return _fused(q, k, v, None if present is None else present[:, None, None], terms)
        if aligned and rule.present is None:
            return _fused(q, k, v, None, terms, causal=True)
    if _is_lag_attention(rule, terms) and aligned and terms.bias_by_lag is not None:
        line = terms.bias_by_lag[:, :keys]
        seen = rule.keep(torch.arange(keys, device=line.device))
        if windowed and seen is not None:
            line = line.masked_fill(~seen, -torch.inf)
        return lag_attention(q, repeated(k, q), repeated(v, q), line, terms.scale)
    k, v = (k, v) if terms.bare else (repeated(k, q), repeated(v, q))
    return torch.cat(
        [_block(q, k, v, rule, terms, start, stop) for start, stop in _blocks(q, k, terms)], dim=2
    )


def _is_lag_attention(rule: MaskRule, terms: Terms) -> bool:
    plain = rule.causal and rule.present is None and terms.fused and not terms.dropout
    return plain and terms.position_bias is None and terms.table is None


def repeated(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values with one head for each query head."""
    groups = q.shape[1] // x.shape[1]
    if groups == 1:
        return x
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, groups, length, width).flatten(1, 2)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, terms: Terms, causal: bool = False
) -> Tensor:
    return scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=terms.dropout,
        is_causal=causal,
        scale=terms.scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )


def _blocks(q: Tensor, k: Tensor, terms: Terms) -> Iterator[tuple[int, int]]:
    """Blocks of queries whose logits, or whose mask alone, fit ``BLOCK_ELEMENTS``."""
    length = q.shape[2]
    copies = 1 if terms.bare else q.shape[0] * q.shape[1]
    rows = max(LEAST_ROWS, min(MOST_ROWS, BLOCK_ELEMENTS // (copies * k.shape[2])))
    for start in range(0, length, rows):
        yield start, min(start + rows, length)


def _block(
    q: Tensor, k: Tensor, v: Tensor, rule: MaskRule, terms: Terms, start: int, stop: int
) -> Tensor:
    """The queries ``start..stop-1``.

    Rows are reversed: row n is the query ``stop-1-n``, so its lag to key j depends on n + j alone
    and the bias is a view of one line.
    """
    first, last = _keys_in_reach(rule, start, stop, k.shape[2])
    queries = q[:, :, start:stop].flip(2)
    keys, values = k[:, :, first:last], v[:, :, first:last]
    highest = rule.offset + stop - 1 - first  # lag of row 0 to the first key
    rows = torch.arange(stop - start, device=q.device)
    lags = highest - rows[:, None] - torch.arange(last - first, device=q.device)
    keep = rule.keep(lags)
    if rule.present is not None:
        here = rule.present[:, None, None, first:last]
        keep = here if keep is None else here & keep
    added = []
    if terms.bias_by_lag is not None:
        added.append(_bias_view(terms.bias_by_lag, lags.shape, highest)[None])
    for given in (terms.position_bias, terms.table):
        part = None if given is None else given[:, :, start:stop, first:last].flip(2)
        if part is not None and part.dtype == torch.bool:
            keep = part if keep is None else keep & part
        elif part is not None:
            added.append(part)
    if terms.fused and not any(part.requires_grad for part in added):
        mask = _one_mask(added, keep, q.dtype)
        return _fused(queries, keys, values, mask, terms).flip(2)
    logits = (terms.scale * queries) @ keys.mT
    return (_weights(logits, added, keep, terms).to(v.dtype) @ values).flip(2)


def _keys_in_reach(rule: MaskRule, start: int, stop: int, keys: int) -> tuple[int, int]:
    """First key and one past the last that any query of the block may see."""
    first, last = 0, keys
    if rule.window is not None:
        first = max(0, rule.offset + start - rule.window + 1)
        if not rule.causal:
            last = min(keys, rule.offset + stop - 1 + rule.window)
    if rule.causal:
        last = min(keys, rule.offset + stop)
    return min(first, keys - 1), max(last, 1)


def _bias_view(bias_by_lag: Tensor, shape: torch.Size, highest: int) -> Tensor:
    """``[H, rows, keys]``: b at the lag ``highest - n - j``, 0 ahead of the query."""
    rows, keys = shape
    behind = bias_by_lag[:, : highest + 1].flip(-1)
    ahead = bias_by_lag.new_zeros(len(bias_by_lag), max(0, rows + keys - 2 - highest))
    line = torch.cat([behind, ahead], dim=-1)
    return line.as_strided((line.shape[0], rows, keys), (line.stride(0), 1, 1))


def _one_mask(added: list[Tensor], keep: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """One mask for a fused kernel: boolean where nothing is added to the logits."""
    if not added:
        return keep
    total = sum(added[1:], added[0]).to(dtype)
    return total if keep is None else total.masked_fill(~keep, torch.finfo(dtype).min)


def _weights(logits: Tensor, added: list[Tensor], keep: Tensor | None, terms: Terms) -> Tensor:
    """Attention weights ``[B, H, rows, keys]`` in float32, or wider."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if terms.softcap is not None:
        logits = terms.softcap * torch.tanh(logits / terms.softcap)
    for part in added:
        logits = logits + part
    if keep is not None:
        logits = logits.masked_fill(~keep, torch.finfo(logits.dtype).min)
    if terms.sinks is not None:
        sinks = terms.sinks.to(logits.dtype).view(1, -1, 1, 1)
        logits = torch.cat([logits, sinks.expand(*logits.shape[:-1], 1)], dim=-1)
        return drop(torch.softmax(logits, dim=-1)[..., :-1], terms.dropout)
    return drop(torch.softmax(logits, dim=-1), terms.dropout)


def default_scale(q: Tensor) -> float:
    """1/sqrt(D)."""
    return 1 / math.sqrt(q.shape[-1])
