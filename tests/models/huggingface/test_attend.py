"""Attention by blocks against the same sums written out whole, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pjdiag.models.huggingface import attend as module
from pjdiag.models.huggingface.attend import Terms, attend
from pjdiag.models.huggingface.masks import MaskRule

BATCH, HEADS, WIDTH = 2, 4, 5


def written_out(q: Tensor, k: Tensor, v: Tensor, rule: MaskRule, terms: Terms) -> Tensor:
    """One row after the other, one key after the other, in plain loops over pairs."""
    groups = q.shape[1] // k.shape[1]
    rows = []
    for i in range(q.shape[2]):
        logits = []
        for j in range(k.shape[2]):
            lag = rule.offset + i - j
            kept = torch.full((q.shape[0], q.shape[1]), True)
            if rule.causal and lag < 0:
                kept[:] = False
            if rule.window is not None and abs(lag) >= rule.window:
                kept[:] = False
            if rule.present is not None:
                kept &= rule.present[:, j, None]
            keys = k[:, :, j].repeat_interleave(groups, 1)
            logit = terms.scale * (q[:, :, i] * keys).sum(-1)
            if terms.softcap is not None:
                logit = terms.softcap * torch.tanh(logit / terms.softcap)
            if terms.bias_by_lag is not None and lag >= 0:
                logit = logit + terms.bias_by_lag[:, lag]
            if terms.position_bias is not None:
                logit = logit + terms.position_bias[:, :, i, j]
            if terms.table is not None and terms.table.dtype == torch.bool:
                kept &= terms.table[:, :, i, j]
            elif terms.table is not None:
                logit = logit + terms.table[:, :, i, j]
            logits.append(torch.where(kept, logit, torch.finfo(logit.dtype).min))
        whole = torch.stack(logits, -1)
        if terms.sinks is not None:
            whole = torch.cat([whole, terms.sinks[None, :, None].expand(len(q), -1, 1)], -1)
        weights = torch.softmax(whole, -1)[..., : k.shape[2]]
        rows.append((weights[..., None] * v.repeat_interleave(groups, 1)).sum(2))
    return torch.stack(rows, 2)


def seen_by_all(rule: MaskRule, queries: int, keys: int) -> Tensor:
    """``[B, T_q]``: rows that see a key at least."""
    keep = rule.table(queries, keys, "cpu")
    return keep.any(-1).expand(BATCH, 1, queries)[:, 0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, MaskRule, dict[str, Any], int]:
    keys = draw(st.integers(1, 17))
    queries = draw(st.integers(1, keys))
    causal = draw(st.booleans())
    window = draw(st.none() | st.integers(1, 8))
    present = None
    if draw(st.booleans()):
        present = torch.ones(BATCH, keys, dtype=torch.bool)
        present[1, : draw(st.integers(0, keys - 1))] = False
    rule = MaskRule(causal, window, keys - queries, present)
    wanted = {
        name: draw(st.booleans()) for name in ("bias_by_lag", "softcap", "sinks", "position_bias")
    }
    return queries, keys, rule, wanted, draw(st.integers(0, 2**20))


@settings(max_examples=100)
@given(cases(), st.sampled_from([1, 2, 4]), st.sampled_from([None, "bool", "added"]))
def test_every_combination_is_the_sum_written_out(
    case: tuple[int, int, MaskRule, dict[str, Any], int], kv_heads: int, table: str | None
) -> None:
    queries, keys, rule, wanted, seed = case
    torch.manual_seed(seed)
    double = {"dtype": torch.float64}
    q = torch.randn(BATCH, HEADS, queries, WIDTH, **double, requires_grad=True)
    k = torch.randn(BATCH, kv_heads, keys, WIDTH, **double, requires_grad=True)
    v = torch.randn(BATCH, kv_heads, keys, 3, **double, requires_grad=True)
    bias = torch.randn(HEADS, keys, **double, requires_grad=True)
    sinks = torch.randn(HEADS, **double, requires_grad=True)
    own = None
    if table is not None:
        own = torch.rand(BATCH, 1, queries, keys) < 0.8
        own[..., 0] = True
        own = own if table == "bool" else torch.randn(own.shape, **double)
    terms = Terms(
        scale=0.7,
        bias_by_lag=bias if wanted["bias_by_lag"] else None,
        softcap=1.5 if wanted["softcap"] else None,
        sinks=sinks if wanted["sinks"] else None,
        position_bias=torch.randn(1, HEADS, queries, keys, **double)
        if wanted["position_bias"]
        else None,
        table=own,
    )
    whole = written_out(q, k, v, rule, terms)
    least, module.LEAST_ROWS, blocks, module.BLOCK_ELEMENTS = (
        module.LEAST_ROWS, 5, module.BLOCK_ELEMENTS, 1,
    )  # fmt: skip
    try:
        found = attend(q, k, v, rule, terms)  # five rows a block
    finally:
        module.LEAST_ROWS, module.BLOCK_ELEMENTS = least, blocks
    assert found.isfinite().all()
    counted = seen_by_all(rule, queries, keys)[:, None, :, None]
    if table == "bool":
        counted = counted & (rule.table(queries, keys, "cpu") & own).any(-1)[..., None]
    weights = torch.randn(whole.shape, **double) * counted
    torch.testing.assert_close(found * counted, whole * counted, rtol=1e-9, atol=1e-9)
    given_to = [x for x in (q, k, v, terms.bias_by_lag, terms.sinks) if x is not None]
    ours = torch.autograd.grad((found * weights).sum(), given_to, allow_unused=True)
    theirs = torch.autograd.grad((whole * weights).sum(), given_to, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:  # no row counted, or no lag of the past
            assert (other if one is None else one) is None or not (
                other if one is None else one
            ).any()
        else:
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    q = torch.zeros(1, 1, 400, 4)
    for bias in (None, torch.zeros(1, 400)):
        torch.manual_seed(0)
        found = attend(q, q, torch.ones_like(q), MaskRule(True), Terms(1.0, bias, dropout=0.25))
        assert abs(float(found[:, :, 100:].mean()) - 1) < 0.01
        assert float(found.std()) > 0.02


@pytest.mark.parametrize("rule", [MaskRule(True), MaskRule(True, window=3), MaskRule(False)])
def test_narrow_types_keep_their_type(rule: MaskRule) -> None:
    q = torch.randn(1, 4, 20, 8, dtype=torch.bfloat16)
    for terms in (Terms(0.3), Terms(0.3, softcap=3.0), Terms(0.3, sinks=torch.zeros(4))):
        found = attend(q, q[:, :2], q[:, :2], rule, terms)
        assert found.dtype == torch.bfloat16
        exact = attend(*(x.double() for x in (q, q[:, :2], q[:, :2])), rule, terms)
        assert float((found - exact).abs().max()) < 0.03


def test_memory_stays_linear_beyond_a_window() -> None:
    """A window of 64 in 16,384 tokens: a table of all pairs would take a gigabyte."""
    q = torch.randn(1, 1, 16384, 4)
    with torch.no_grad():
        found = attend(q, q, q, MaskRule(True, window=64), Terms(0.5))
        last = attend(q[:, :, -1:], q, q, MaskRule(True, 64, 16383), Terms(0.5))
    torch.testing.assert_close(found[:, :, -1:], last, rtol=1e-5, atol=1e-6)
