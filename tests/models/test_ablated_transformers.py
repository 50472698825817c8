"""Running Hugging Face models without a part: against the same weights, written out by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from pjdiag.errors import AdapterError
from pjdiag.models.ablated_transformers import ablated, require_removable
from pjdiag.models.ablation import LayerChange
from pjdiag.models.huggingface.execution import losses
from pjdiag.models.huggingface.interface import ablations
from tests.models.huggingface.tiny import MODELS, ours, tokens

HEADS, LENGTH = 4, 20


@torch.no_grad()
def by_hand(model: Any, ids: torch.Tensor, changes: dict[int, LayerChange]) -> np.ndarray:
    """Next-token losses ``[B, T]`` of a llama whose logits lose their part entry by entry."""
    read, wanted = ids[:, :-1], ids[:, 1:]
    length = read.shape[1]
    x = model.model.embed_tokens(read)
    turns = model.model.rotary_emb(x, torch.arange(length)[None])
    causal = torch.ones(length, length).tril().bool()
    for index, block in enumerate(model.model.layers):
        attention, normed = block.self_attn, block.input_layernorm(x)
        q, k, v = (
            part(normed).view(*x.shape[:2], -1, attention.head_dim).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, *turns)
        k, v = (part.repeat_interleave(HEADS // k.shape[1], dim=1) for part in (k, v))
        logits = attention.scaling * q @ k.mT
        change = changes.get(index)
        if change is not None and change.channels is not None:
            lost = attention.scaling * q[..., change.channels] @ k[..., change.channels].mT
            if change.signs is not None:
                lost = lost * change.signs[None, :, None, :]
            logits = logits - lost * change.heads[None, :, None, None]
        weights = logits.masked_fill(~causal, -torch.inf).softmax(-1)
        x = x + attention.o_proj((weights @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.post_attention_layernorm(x))
    logits = model.lm_head(model.model.norm(x))
    found: np.ndarray = cross_entropy(logits.mT, wanted, reduction="none").double().numpy()
    return found


def band(model: Any, *heads: int) -> LayerChange:
    """The second and the last frequency of some heads, in the half layout."""
    width = model.model.layers[0].self_attn.head_dim
    channels = torch.zeros(width, dtype=torch.bool)
    channels[[1, width // 2 - 1, width // 2 + 1, width - 1]] = True
    return LayerChange(torch.tensor([h in heads for h in range(HEADS)]), channels=channels)


@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (1,), (0, 2)])
@pytest.mark.parametrize("control", [False, True])
def test_a_band_of_llama(heads: tuple[int, ...], control: bool) -> None:
    model = MODELS["llama"].build()
    change = band(model, *heads)
    if control:
        change = change.control(LENGTH, torch.Generator().manual_seed(1))
    ids = tokens(length=LENGTH + 1)
    attached = ours(model)
    for changes in ({0: change, 1: change}, {1: change}):
        with ablated(attached, changes):
            found = losses(attached, ids.numpy())
        expected = by_hand(model, ids, changes)
        assert found == pytest.approx(expected, abs=2e-5)
        assert np.abs(expected - by_hand(model, ids, {})).max() > 1e-3
    assert losses(attached, ids.numpy()) == pytest.approx(by_hand(model, ids, {}), abs=2e-5)
    assert not any(module in ablations for module in attached.modules())


def test_bloom_without_its_alibi() -> None:
    """Its ``beta`` multiplies the table; heads are compared through their own slopes."""
    model = MODELS["bloom"].build()
    ids = tokens(length=LENGTH + 1).numpy()
    every = LayerChange(torch.ones(HEADS, dtype=torch.bool), whole_bias=True)
    for layers in ((0, 1), (1,)):
        other = copy.deepcopy(model)
        for layer in layers:
            other.transformer.h[layer].self_attention.beta = 0.0
        with ablated(model, dict.fromkeys(layers, every)):
            found = losses(model, ids)
        assert found == pytest.approx(losses(other, ids), abs=1e-5)
        assert np.abs(found - losses(model, ids)).max() > 1e-3


def test_mpt_without_its_alibi() -> None:
    model = MODELS["mpt"].build()
    other = copy.deepcopy(model)
    other.transformer.build_mpt_alibi_tensor = lambda heads, length, device: torch.zeros(
        heads, 1, length, device=device
    )
    ids = tokens(length=LENGTH + 1).numpy()
    every = LayerChange(torch.ones(HEADS, dtype=torch.bool), whole_bias=True)
    with ablated(model, {0: every, 1: every}):
        found = losses(model, ids)
    assert found == pytest.approx(losses(other, ids), abs=1e-5)
    assert np.abs(found - losses(model, ids)).max() > 1e-3


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_controls_of_alibi(name: str) -> None:
    """With all signs 1 a control is the removal; in one head the others stay."""
    model = MODELS[name].build()
    ids = tokens(length=LENGTH + 1).numpy()
    heads = torch.tensor([False, True, False, False])
    signs = torch.ones(HEADS, LENGTH)
    removal = LayerChange(heads, whole_bias=True)
    found = []
    for change in (removal, LayerChange(heads, whole_bias=True, signs=signs)):
        with ablated(model, {0: change}):
            found.append(losses(model, ids))
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    with ablated(model, {0: LayerChange(heads, whole_bias=True, signs=0 * signs)}):
        nothing = losses(model, ids)
    assert nothing == pytest.approx(losses(model, ids), abs=1e-5)
    with ablated(model, {0: LayerChange(heads, whole_bias=True, signs=-signs)}):
        doubled = losses(model, ids)
    assert np.abs(doubled - nothing).max() > 1e-4


@pytest.mark.parametrize("name", ["gpt_neo", "gpt_neox_japanese"])
def test_other_models_are_refused(name: str) -> None:
    change = LayerChange(torch.ones(HEADS, dtype=torch.bool), whole_bias=True)
    model = MODELS[name].build()
    with pytest.raises(AdapterError, match="cannot be removed"), ablated(model, {0: change}):
        losses(model, tokens().numpy())


def test_a_model_without_any_such_part() -> None:
    for name in ("bloom", "falcon", "falcon_alibi", "gpt_neox_japanese"):
        require_removable(MODELS[name].build())
    require_removable(ours(MODELS["gpt2"].build()))
    with pytest.raises(AdapterError, match="GPTNeoForCausalLM does not attend through"):
        require_removable(MODELS["gpt_neo"].build())


def test_a_band_of_bloom_is_refused() -> None:
    channels = torch.ones(8, dtype=torch.bool)
    change = LayerChange(torch.ones(HEADS, dtype=torch.bool), channels=channels)
    context = ablated(MODELS["bloom"].build(), {0: change})
    with pytest.raises(AdapterError, match="cannot be removed"):
        context.__enter__()


def test_a_layer_that_is_not_there() -> None:
    model = ours(MODELS["llama"].build())
    lost = ablated(model, {7: band(model, 0)})
    with pytest.raises(AdapterError, match="layer 7 of LlamaForCausalLM did not attend"), lost:
        losses(model, tokens().numpy())
