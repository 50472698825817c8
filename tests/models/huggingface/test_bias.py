"""A bias by lag on the attention modules: the logits it gives, its gradients, training with it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface import interface
from pjdiag.models.huggingface.attention import BIAS, attach, observed
from pjdiag.models.huggingface.masks import MaskRule, RuleMask
from tests.models.huggingface.tiny import (
    LENGTH,
    MODELS,
    ours,
    output,
    padded,
    probabilities,
    tokens,
)

HEADS = 4


class Slopes(nn.Module):
    """``-slope d + wave`` for each head: not constant, not linear."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.linspace(0.05, 0.8, HEADS))

    def forward(self, lags: Tensor) -> Tensor:
        return -self.slope[:, None] * lags + torch.cos(lags)[None]


def biased(model: Any) -> tuple[Any, list[Slopes]]:
    made = ours(model)
    kernels = []
    for layer in made.model.layers:
        layer.self_attn.add_module(BIAS, Slopes())
        kernels.append(getattr(layer.self_attn, BIAS))
    return made, kernels


def with_tables(model: Any) -> Any:
    """The same bias, entry by entry, in the 4-D mask of the class's own eager attention."""

    def run(ids: Tensor, mask: Tensor | None, slope: Tensor, window: int | None) -> Tensor:
        length = ids.shape[1]
        lags = torch.arange(length)[:, None] - torch.arange(length)
        keep = (lags >= 0) if window is None else (lags >= 0) & (lags < window)
        keep = keep[None, None] if mask is None else keep & mask.bool()[:, None, None]
        bias = (-slope[:, None, None] * lags + torch.cos(lags.float()))[None]
        table = torch.where(keep, bias, torch.finfo(torch.float32).min)
        table = torch.where(keep.any(-1, keepdim=True), table, 0.0)
        inputs = {"input_ids": ids, "attention_mask": table, "use_cache": False}
        if mask is not None:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        found: Tensor = model(**inputs).logits
        return found

    return run


CASES = ["llama", "mistral", "qwen3"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("with_padding", [False, True], ids=["whole", "padded"])
def test_the_bias_is_added_to_the_logits(name: str, with_padding: bool) -> None:
    """Against a mask of [B, H, T, T] that the eager attention adds."""
    model = MODELS[name].build()
    made, kernels = biased(model)
    inputs = padded(MODELS[name]) if with_padding else {"input_ids": tokens()}
    mask = inputs.get("attention_mask")
    window = 7 if name == "mistral" else None
    with torch.no_grad():
        expected = with_tables(model)(tokens(), mask, kernels[0].slope, window)
    found = output(made, **inputs)
    assert float((found - output(ours(model), **inputs)).abs().max()) > 0.1
    real = torch.ones(tokens().shape).bool() if mask is None else mask.bool()
    assert float((found - expected)[real].abs().max()) < 1e-4


@pytest.mark.parametrize("with_padding", [False, True], ids=["whole", "padded"])
def test_the_gradients_are_those_of_the_table(with_padding: bool) -> None:
    model = MODELS["llama"].build()
    made, kernels = biased(model)
    inputs = padded(MODELS["llama"]) if with_padding else {"input_ids": tokens()}
    mask = inputs.get("attention_mask")
    real = torch.ones(tokens().shape).bool() if mask is None else mask.bool()
    weight = torch.randn(2, LENGTH, 1) * real[..., None]
    (made(**inputs, use_cache=False).logits.sin() * weight).sum().backward()
    slope = kernels[0].slope.detach().clone().requires_grad_()
    expected = with_tables(model)(tokens(), mask, slope, None)
    (expected.sin() * weight).sum().backward()
    by_layer = torch.stack([kernel.slope.grad for kernel in kernels])
    torch.testing.assert_close(by_layer.sum(0), slope.grad, rtol=2e-4, atol=2e-4)
    for name, parameter in model.named_parameters():
        found = made.get_parameter(name).grad
        torch.testing.assert_close(found, parameter.grad, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_gradient_checkpointing_changes_no_gradient(name: str, reentrant: bool) -> None:
    """In float64, where nothing hides behind rounding."""
    inputs = padded(MODELS[name])
    gradients = []
    for checkpointing in (False, True):
        made, kernels = biased(MODELS[name].build().double())
        made.train()
        if checkpointing:
            enable = getattr(made, "activation_checkpointing_enable", None)  # transformers 5
            (enable or made.gradient_checkpointing_enable)({"use_reentrant": reentrant})
            made.enable_input_require_grads()
        real = inputs["attention_mask"].bool()
        made(**inputs, use_cache=False).logits[real].sin().sum().backward()
        gradients.append([kernel.slope.grad.clone() for kernel in kernels])
        gradients[-1].append(made.model.layers[0].self_attn.k_proj.weight.grad.clone())
    for whole, recomputed in zip(*gradients, strict=True):
        assert float(whole.abs().max()) > 1e-4
        torch.testing.assert_close(recomputed, whole, rtol=1e-6, atol=1e-7)


def test_dropout_is_on_in_training_only() -> None:
    config = copy.deepcopy(MODELS["llama"])
    model = attach(config.build())
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    first, second = (output(model, input_ids=tokens()) for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    torch.manual_seed(0)
    dropped, again = (output(model, input_ids=tokens()) for _ in range(2))
    assert not torch.equal(dropped, again)
    assert not torch.equal(dropped, first)


def test_generation_counts_lags_across_the_cache() -> None:
    for name in ("llama", "mistral", "gemma3"):
        made, _ = biased(MODELS[name].build())
        prompt = tokens(rows=1, length=5)
        settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
        cached = made.generate(prompt, **settings)
        whole = made.generate(prompt, use_cache=False, **settings)
        assert torch.equal(cached, whole)


def test_the_bias_is_observed() -> None:
    made, kernels = biased(MODELS["mistral"].build())
    seen = {}
    with torch.no_grad(), observed(made, seen.__setitem__):
        made(input_ids=tokens(), use_cache=False)
        expected = kernels[1](torch.arange(float(LENGTH)))
    torch.testing.assert_close(seen[1].bias_by_lag, expected)
    assert probabilities(seen[1])[0, 0, 20, :14].max() == 0


def test_packed_sequences_keep_their_bias() -> None:
    """Between tokens of one sequence the lag is the difference of their places in the row."""
    made, _ = biased(MODELS["llama"].build())
    ids = tokens(rows=1)
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None]
    with torch.no_grad():
        packed = made(input_ids=ids, position_ids=positions, use_cache=False).logits
        alone = made(input_ids=ids[:, 10:], use_cache=False).logits
    torch.testing.assert_close(packed[:, 10:], alone, rtol=1e-4, atol=1e-4)


def test_attention_that_looks_ahead_takes_no_bias() -> None:
    module = nn.Module()
    module.add_module(BIAS, Slopes())
    q = torch.randn(1, HEADS, 5, 4)
    ahead = RuleMask.of(MaskRule(causal=False), (1, 1, 5, 5))
    with pytest.raises(AdapterError, match="is not causal where it is patched"):
        interface.attention(module, q, q, q, ahead)
