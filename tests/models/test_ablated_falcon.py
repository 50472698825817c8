"""Attention that is Falcon's own without a part: against every logit, written out by hand."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.falcon import modeling_falcon
from transformers.models.gpt_neox_japanese import modeling_gpt_neox_japanese as neox_japanese
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from pjdiag.errors import AdapterError
from pjdiag.models.ablated_transformers import ablated
from pjdiag.models.ablation import LayerChange
from tests.models.huggingface.tiny import LENGTH, MODELS, Tiny, output, padded, tokens

HEADS, WIDTH = 4, 8
SLOPES = 0.25 ** torch.arange(1.0, HEADS + 1)
ROTARY = ["falcon", "falcon_many_heads", "falcon_groups"]
KINDS = [*ROTARY, "falcon_alibi", "falcon_alibi_shared"]
EVERY, SOME = torch.ones(HEADS, dtype=torch.bool), torch.tensor([False, True, True, False])
PAIRS = torch.tensor([False, True, False, True] * 2)
"""Two of the four frequencies, in the half layout."""


def tiny(name: str) -> Tiny:
    shared = {"alibi": True, "multi_query": True}
    other = Tiny("FalconConfig", "FalconForCausalLM", shared)
    return other if name == "falcon_alibi_shared" else MODELS[name]


def change(model: Any, heads: Tensor) -> LayerChange:
    if model.config.alibi:
        return LayerChange(heads, whole_bias=True)
    return LayerChange(heads, channels=PAIRS)


def parts(attention: Any, hidden: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values ``[B, H, T, D]`` of the three layouts."""
    rows = attention.query_key_value(hidden).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
    config = attention.config
    if config.new_decoder_architecture:  # [2 queries | key | value] twice
        return rows[:, [0, 1, 4, 5]], rows[:, [2, 2, 6, 6]], rows[:, [3, 3, 7, 7]]
    if config.multi_query:
        return rows[:, :4], rows[:, [4] * 4], rows[:, [5] * 4]
    return rows[:, 0::3], rows[:, 1::3], rows[:, 2::3]


def written_out(
    attention: Any,
    lost: LayerChange | None,
    present: Tensor,
    times: int,
    hidden: Tensor,
    **given: Any,
) -> tuple[Tensor, None]:
    """One attention module, its logits formed entry by entry."""
    q, k, v = parts(attention, hidden)
    length = hidden.shape[1]
    lags = torch.arange(length)[:, None] - torch.arange(length)
    if attention.config.alibi:
        part = -times * SLOPES[:, None, None] * lags.clamp(min=0) / WIDTH**0.5
        logits = q @ k.mT / WIDTH**0.5 + part
    else:
        q, k = apply_rotary_pos_emb(q, k, *given["position_embeddings"])
        logits, part = q @ k.mT / WIDTH**0.5, q[..., PAIRS] @ k[..., PAIRS].mT / WIDTH**0.5
    if lost is not None:
        if lost.signs is not None and attention.config.alibi:
            part = part * lost.signs[:, lags.clamp(min=0)]
        elif lost.signs is not None:
            part = part * lost.signs[:, None]
        logits = logits - part * lost.heads[:, None, None]
    keep = (lags >= 0) & present[:, None, None]
    weights = logits.masked_fill(~keep, -1e30).softmax(-1)
    return attention.dense((weights @ v).transpose(1, 2).flatten(2)), None


def by_hand(model: Any, changes: dict[int, LayerChange], **inputs: Tensor) -> Tensor:
    """Logits of a Falcon all of whose attention is written out."""
    other = copy.deepcopy(model)
    times = 1 if model.config._attn_implementation == "sdpa" else 2  # eager adds its table twice
    present = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    for index, block in enumerate(other.transformer.h):
        attention = block.self_attention
        attention.forward = partial(written_out, attention, changes.get(index), present, times)
    return output(other, **inputs)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", KINDS)
def test_every_logit(name: str, implementation: str) -> None:
    """Removals and controls, in the whole model, in a layer, in some heads of it."""
    model = tiny(name).build(implementation=implementation)
    ids = tokens()
    whole = output(model, input_ids=ids)
    torch.testing.assert_close(by_hand(model, {}, input_ids=ids), whole, rtol=0, atol=5e-5)
    every, some = change(model, EVERY), change(model, SOME)
    control = partial(
        LayerChange.control, length=LENGTH, generator=torch.Generator().manual_seed(1)
    )
    for changes in (
        {0: every, 1: every},
        {1: some},
        {0: some},
        {0: control(every), 1: control(every)},
        {1: control(some)},
    ):
        with ablated(model, changes):
            found = output(model, input_ids=ids)
        expected = by_hand(model, changes, input_ids=ids)
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
        assert (expected - whole).abs().max() > 1e-2
    assert torch.equal(output(model, input_ids=ids), whole)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", KINDS)
def test_left_padding(name: str, implementation: str) -> None:
    model = tiny(name).build(implementation=implementation)
    inputs = padded(tiny(name))
    here = inputs["attention_mask"].bool()
    made = change(model, SOME)
    for lost in (made, made.control(LENGTH, torch.Generator().manual_seed(2))):
        with ablated(model, {0: lost, 1: lost}):
            found = output(model, **inputs)
        expected = by_hand(model, {0: lost, 1: lost}, **inputs)
        torch.testing.assert_close(found[here], expected[here], rtol=0, atol=5e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_no_alibi_is_a_table_of_zeros(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["falcon_alibi"].build(implementation=implementation)
    with ablated(model, dict.fromkeys((0, 1), change(model, EVERY))):
        found = output(model, input_ids=tokens())
    original = modeling_falcon.build_alibi_tensor
    monkeypatch.setattr(
        modeling_falcon, "build_alibi_tensor", lambda *given, **named: 0 * original(*given, **named)
    )
    torch.testing.assert_close(output(model, input_ids=tokens()), found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", KINDS)
def test_nothing_removed_is_the_model(name: str, implementation: str) -> None:
    model = tiny(name).build(implementation=implementation)
    whole = output(model, input_ids=tokens())
    nothing = change(model, torch.zeros(HEADS, dtype=torch.bool))
    for changes in ({}, {0: nothing, 1: nothing}):
        with ablated(model, changes):
            assert torch.equal(output(model, input_ids=tokens()), whole)


@pytest.mark.parametrize("name", KINDS)
def test_layers_below_are_what_they_were(name: str) -> None:
    """One head of the second layer: the first gives what it gave, and so do the other heads."""
    model = tiny(name).build()
    kept: list[Tensor] = []
    for block in model.transformer.h:
        block.self_attention.dense.register_forward_pre_hook(
            lambda _, given: kept.append(given[0].unflatten(-1, (HEADS, WIDTH)))
        )
    output(model, input_ids=tokens())
    with ablated(model, {1: change(model, EVERY).restricted(2)}):
        output(model, input_ids=tokens())
    first, second, first_again, second_again = kept
    assert torch.equal(first, first_again)
    moved = (second - second_again).abs().amax(dim=(0, 1, 3))
    assert moved.gt(1e-6).tolist() == [False, False, True, False]


@pytest.mark.parametrize("name", KINDS)
def test_the_model_comes_back_after_an_error(name: str) -> None:
    model = tiny(name).build()
    states = [dict(vars(module)) for module in model.modules()]
    hooks = [dict(module._forward_pre_hooks) for module in model.modules()]
    lost = change(model, EVERY).control(LENGTH, torch.Generator().manual_seed(3))
    with pytest.raises(ZeroDivisionError), ablated(model, {0: lost, 1: lost}):
        raise ZeroDivisionError
    assert [dict(vars(module)).keys() for module in model.modules()] == [s.keys() for s in states]
    assert [dict(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert [getattr(module, "num_kv_heads", None) for module in model.modules()] == [
        state.get("num_kv_heads") for state in states
    ]


def test_a_rotary_falcon_has_no_alibi() -> None:
    model = MODELS["falcon"].build()
    lost = LayerChange(EVERY, whole_bias=True)
    with pytest.raises(AdapterError, match="is given no alibi"), ablated(model, {0: lost}):
        output(model, input_ids=tokens())


@pytest.mark.parametrize("control", [False, True])
def test_a_band_of_gpt_neox_japanese(control: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against keys that lose it after their rotation."""
    model = MODELS["gpt_neox_japanese"].build()
    ids = tokens()
    whole = output(model, input_ids=ids)
    lost = LayerChange(SOME, channels=PAIRS)
    if control:
        lost = lost.control(LENGTH, torch.Generator().manual_seed(4))
    with ablated(model, {0: lost, 1: lost}):
        found = output(model, input_ids=ids)
    original = neox_japanese.apply_rotary_pos_emb
    signs = torch.ones(HEADS, LENGTH) if lost.signs is None else lost.signs
    left = 1 - signs[..., None] * (SOME[:, None, None] & PAIRS)

    def turned(q: Tensor, k: Tensor, *angles: Tensor) -> tuple[Tensor, Tensor]:
        q, k = original(q, k, *angles)
        return q, k * left

    monkeypatch.setattr(neox_japanese, "apply_rotary_pos_emb", turned)
    torch.testing.assert_close(output(model, input_ids=ids), found, rtol=0, atol=2e-5)
    assert (found - whole).abs().max() > 1e-2
