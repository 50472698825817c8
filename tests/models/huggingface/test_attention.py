"""Models of transformers' own classes behind our attention: the same logits, the true parts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface import attend, interface, masks
from pjdiag.models.huggingface.attention import (
    NAME,
    attach,
    behind_interface,
    detach,
    is_attached,
    observed,
)
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import (
    MODELS,
    VOCABULARY,
    WINDOW,
    Tiny,
    ours,
    output,
    padded,
    probabilities,
    tokens,
)

CLOSE = 1e-5
INSIDE = tuple(name for name in MODELS if behind_interface(MODELS[name].build()))


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference over the largest figure."""
    return float((found - expected).abs().max() / expected.abs().max())


def observe(model: Any, **inputs: Any) -> dict[int, RunningAttention]:
    seen: dict[int, RunningAttention] = {}
    trunk = model.base_model
    if "use_cache" in inspect.signature(trunk.forward).parameters:
        inputs["use_cache"] = False
    with torch.no_grad(), observed(trunk, seen.__setitem__):
        trunk(**inputs)
    return seen


def sinks(model: Any, layer: int) -> torch.Tensor | None:
    if type(model).__name__ != "GptOssForCausalLM":
        return None
    found: torch.Tensor = model.model.layers[layer].self_attn.sinks.detach()
    return found


def test_the_list_holds_models_inside_and_outside_the_interface():
    assert {"llama", "gemma2", "gpt_oss", "t5", "bert", "albert", "gpt2", "gptj"} <= set(INSIDE)
    outside = {"bloom", "mpt", "falcon", "gpt_neo", "mpnet"}
    assert outside <= set(MODELS) - set(INSIDE)


@pytest.mark.parametrize("name", INSIDE)
def test_logits_are_those_of_the_eager_attention(name: str) -> None:
    model = MODELS[name].build()
    attached = ours(model)
    ids = tokens()
    expected = output(model, input_ids=ids)
    assert difference(output(attached, input_ids=ids), expected) < CLOSE
    inputs = padded(MODELS[name])
    real = inputs["attention_mask"].bool()
    expected = output(model, **inputs)[real]
    assert difference(output(attached, **inputs)[real], expected) < CLOSE


@pytest.mark.parametrize("with_padding", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_observed_gives_the_weights_of_the_eager_attention(
    name: str, with_padding: bool
) -> None:
    tiny = MODELS[name]
    model = tiny.build()
    inputs = padded(tiny) if with_padding else {"input_ids": tokens()}
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True).attentions
    seen = observe(ours(model), **inputs)
    assert sorted(seen) == list(range(len(expected)))
    real = inputs.get("attention_mask", torch.ones(tokens().shape)).bool().numpy()
    for layer, attention in seen.items():
        assert attention.causal == tiny.causal
        assert (attention.present is not None) == with_padding
        found = probabilities(attention, sinks(model, layer))
        error = np.abs(found - expected[layer].double().numpy()).swapaxes(1, 2)[real]
        assert error.max() < CLOSE


WINDOWS = {
    "mistral": [WINDOW, WINDOW],
    "gemma2": [WINDOW, None],
    "gemma3": [WINDOW, None],
    "qwen2_moe": [WINDOW, None],
    "phimoe": [WINDOW, WINDOW],
    "gpt_neo": [None, WINDOW],
    "modernbert": [None, 5],
    "llama": [None, None],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_every_layer_has_its_own_window(name: str) -> None:
    seen = observe(ours(MODELS[name].build()), input_ids=tokens())
    assert [seen[layer].window for layer in sorted(seen)] == WINDOWS[name]


@pytest.mark.parametrize("name", ["mistral", "gemma3", "gpt2", "gpt_oss", "deepseek_v3"])
@pytest.mark.parametrize("left", [0, 3])
def test_generation_with_a_cache_goes_the_same_way(name: str, left: int) -> None:
    """Beyond the window too, where the cache has dropped keys."""
    model = MODELS[name].build()
    prompt = tokens(rows=2, length=6)
    mask = torch.ones_like(prompt)
    mask[0, :left] = 0
    settings = {
        "attention_mask": mask,
        "max_new_tokens": 2 * WINDOW,
        "do_sample": False,
        "eos_token_id": None,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    expected = model.generate(prompt, **settings)
    found = ours(model).generate(prompt, **settings)
    assert torch.equal(found.sequences, expected.sequences)
    assert difference(torch.stack(found.logits), torch.stack(expected.logits)) < CLOSE


def test_a_cache_of_fixed_size_goes_the_same_way() -> None:
    model = MODELS["llama"].build()
    settings = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None}
    settings |= {"cache_implementation": "static", "disable_compile": True}
    prompt = tokens(rows=1, length=5)
    assert torch.equal(ours(model).generate(prompt, **settings), model.generate(prompt, **settings))


def test_packed_sequences_do_not_see_each_other() -> None:
    model = MODELS["llama"].build()
    ids = tokens(rows=1)
    positions = torch.cat([torch.arange(10), torch.arange(14)])[None]
    packed = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    expected = output(model, **packed)
    assert difference(output(ours(model), **packed), expected) < CLOSE
    alone = output(model, input_ids=ids[:, 10:])
    assert difference(expected[:, 10:], alone) < CLOSE
    with pytest.raises(AdapterError, match="neither causal nor bidirectional"):
        observe(ours(model), input_ids=ids, position_ids=positions)


def broken(model: Any, name: str, attention: Callable[..., Any], mask: Any = None) -> Any:
    """A copy of ``model`` behind another attention, with or without a mask function."""
    AttentionInterface.register(name, attention)
    if mask is not None:
        AttentionMaskInterface.register(name, mask)
    made = copy.deepcopy(model)
    made.config = copy.deepcopy(made.config)
    made.set_attn_implementation(name)
    return made


@pytest.mark.parametrize(
    ("name", "with_padding", "at_least"),
    [("llama", True, 0.05), ("gemma3", True, 0.05), ("mistral", True, 0.05), ("bert", True, 0.02)],
)
def test_without_its_mask_function_the_result_is_silently_wrong(
    name: str, with_padding: bool, at_least: float
) -> None:
    model = MODELS[name].build()
    inputs = padded(MODELS[name]) if with_padding else {"input_ids": tokens()}
    real = inputs["attention_mask"].bool()
    expected = output(model, **inputs)[real]
    maskless = broken(model, "pjdiag_without_masks", interface.attention)
    assert difference(output(maskless, **inputs)[real], expected) > at_least
    assert difference(output(ours(model), **inputs)[real], expected) < CLOSE


def test_ignoring_the_window_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["qwen2_moe"].build()
    expected = output(model, input_ids=tokens())
    monkeypatch.setattr(masks.MaskRule, "reaches_all", lambda *_: True)
    assert difference(output(ours(model), input_ids=tokens()), expected) > 0.01


def test_a_wrong_key_head_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["gemma2"].build()
    expected = output(model, input_ids=tokens())
    groups = attend.repeated
    monkeypatch.setattr(attend, "repeated", lambda x, q: groups(x.flip(1), q))
    assert difference(output(ours(model), input_ids=tokens()), expected) > 0.01


def test_a_keyword_that_is_not_known_is_refused() -> None:
    module = torch.nn.Identity()
    q = torch.randn(1, 2, 3, 4)
    interface.attention(module, q, q, q, None, position_ids=torch.arange(3), head_gate=None)
    with pytest.raises(AdapterError, match="Identity passes head_gate, indices to its attention"):
        interface.attention(module, q, q, q, None, indices=q, head_gate=q)


def test_without_a_mask_the_keyword_gives_the_window() -> None:
    q = torch.randn(1, 2, 9, 4)
    found, _ = interface.attention(torch.nn.Identity(), q, q, q, None, sliding_window=3)
    mask = torch.ones(9, 9, dtype=torch.bool).tril().triu(-2)
    expected, _ = interface.attention(torch.nn.Identity(), q, q, q, mask[None, None])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_a_flat_mask_is_refused() -> None:
    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(AdapterError, match=r"a mask of shape \[1, 3\]"):
        interface.attention(torch.nn.Identity(), q, q, q, torch.ones(1, 3))


def test_attaching_leaves_other_models_of_the_configuration_alone() -> None:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=VOCABULARY, attn_implementation="eager",
    )  # fmt: skip
    first, second = transformers.LlamaModel(config), transformers.LlamaModel(config)
    assert attach(attach(first)) is first
    assert is_attached(first)
    assert first.layers[0].self_attn.config is first.config
    assert config._attn_implementation == second.config._attn_implementation == "eager"
    assert detach(first).config._attn_implementation == "eager"
    assert detach(first) is first
    assert not is_attached(first)


def test_attaching_is_not_saved(tmp_path: Any) -> None:
    model = ours(MODELS["llama"].build())
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text(encoding="utf-8")


def test_a_model_outside_the_interface_cannot_be_attached() -> None:
    with pytest.raises(AdapterError, match="BloomForCausalLM does not use"):
        attach(MODELS["bloom"].build())


def test_a_model_that_is_neither_attached_nor_hooked_cannot_be_observed() -> None:
    with (
        pytest.raises(AdapterError, match="LlamaForCausalLM has no attention that can"),
        observed(MODELS["llama"].build(), lambda *_: None),
    ):
        pass


def test_observing_leaves_nothing_behind() -> None:
    for name in ("llama", "falcon"):
        model = ours(MODELS[name].build())
        observe(model, input_ids=tokens())
        for module in model.modules():
            assert not module._forward_hooks
            assert not module._forward_pre_hooks
            assert module not in interface.watches


def test_attention_over_a_cache_is_not_observed() -> None:
    model = ours(MODELS["llama"].build())
    name = {"cache", "past_key_values"} & set(inspect.signature(model.model.forward).parameters)
    with torch.no_grad():
        held = {name.pop(): model(input_ids=tokens()).past_key_values}
        with (
            pytest.raises(AdapterError, match="reads 2 tokens against 26 keys"),
            observed(model, lambda *_: None),
        ):
            model(input_ids=tokens()[:, :2], **held)


DIFFERENTIAL = Tiny("DiffLlamaConfig", "DiffLlamaForCausalLM", {"num_key_value_heads": 2})


def test_a_layer_that_attends_twice_is_not_observed() -> None:
    model = DIFFERENTIAL.build()
    assert difference(
        output(ours(model), input_ids=tokens()), output(model, input_ids=tokens())
    ) < (CLOSE)
    with pytest.raises(AdapterError, match="attends more than once in layer 0"):
        observe(ours(model), input_ids=tokens())
