"""One pass over windows: losses with the head split, fresh models, padded positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface import execution
from pjdiag.models.huggingface.attention import is_attached
from pjdiag.models.patch_settings import PatchSettings
from pjdiag.models.patching import patch, patched_layers
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import LENGTH, MODELS, VOCABULARY, Tiny, output, tokens

IDS = tokens().numpy()


@pytest.mark.parametrize("name", ["llama", "gemma2", "cohere2", "gpt2", "bloom", "mpt", "falcon"])
def test_losses_are_those_of_the_models_own_logits(name: str) -> None:
    model = MODELS[name].build()
    logits = output(model, input_ids=torch.from_numpy(IDS[:, :-1])).double()
    chosen = logits.log_softmax(-1).gather(-1, torch.from_numpy(IDS[:, 1:, None]))[..., 0]
    ours = execution.prepared(MODELS[name].build())
    for elements in (2**20, 3 * 2 * VOCABULARY, 1):  # whole, in threes, one by one
        found = execution.losses(ours, IDS, elements)
        assert found.shape == (2, LENGTH - 1)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, -chosen.numpy(), rtol=1e-4, atol=1e-4)
    assert "forward" not in vars(ours.base_model)


def test_a_forward_of_the_caller_s_own_is_given_back() -> None:
    model = execution.prepared(MODELS["llama"].build())
    expected, trunk, calls = execution.losses(model, IDS), model.base_model, []
    inherited = trunk.forward

    def own(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(args))
        return inherited(*args, **kwargs)

    trunk.forward = own
    np.testing.assert_allclose(execution.losses(model, IDS, 1), expected, rtol=1e-4, atol=1e-4)
    assert len(calls) == 1
    assert vars(trunk)["forward"] is own


def test_an_error_amid_the_parts_leaves_the_model_as_it_was() -> None:
    model = execution.prepared(MODELS["llama"].build())
    calls: list[int] = []

    def stop(*_: Any) -> Any:
        calls.append(1)
        return pytest.fail("stopped") if len(calls) > 2 else None

    handle = model.lm_head.register_forward_hook(stop)
    with pytest.raises(pytest.fail.Exception):
        execution.losses(model, IDS, 1)
    handle.remove()
    assert "forward" not in vars(model.base_model)
    wrong = IDS.copy()
    wrong[:, 5] = VOCABULARY  # no such token: read in one part of the losses, after the logits
    model.base_model.embed_tokens.register_forward_pre_hook(
        lambda _, args: (args[0].clamp(max=VOCABULARY - 1),)
    )
    with pytest.raises((RuntimeError, IndexError)) as kept:  # its traceback holds the frames
        execution.losses(model, wrong, 1)
    assert kept.tb is not None
    assert "forward" not in vars(model.base_model)


@pytest.mark.parametrize("name", ["bert", "t5", "mpnet"])
def test_an_encoder_has_no_next_token(name: str) -> None:
    with pytest.raises(AdapterError, match="predicts no next token"):
        execution.losses(execution.prepared(MODELS[name].build()), IDS)


def test_the_head_is_not_run() -> None:
    model = execution.prepared(MODELS["llama"].build())
    model.lm_head.register_forward_hook(lambda *_: pytest.fail("the head was run"))
    layers: list[int] = []
    execution.run(model, IDS, None, lambda layer, _: layers.append(layer))
    assert layers == [0, 1]


def test_layers_without_a_number_are_counted_anew_in_every_pass() -> None:
    model = execution.prepared(MODELS["albert"].build())
    for _ in range(2):
        layers: list[int] = []
        execution.run(model, IDS, None, lambda layer, _: layers.append(layer))  # noqa: B023
        assert layers == [0, 1]


@pytest.mark.parametrize(
    "name", ["llama", "opt", "gpt2", "bloom", "mpt", "gpt_neo", "falcon_groups"]
)
def test_padding_on_the_left_changes_nothing_for_the_tokens(name: str) -> None:
    """Positions are counted from the first token, mask [0, 0, 1, 1, 1]."""
    model = execution.prepared(MODELS[name].build())
    whole, padded = {}, {}
    execution.run(model, IDS[:1, 2:], None, whole.__setitem__)
    present = np.ones((1, LENGTH), dtype=bool)
    present[0, :2] = False
    ids = np.where(present, IDS[:1], 0)
    execution.run(model, ids, present, padded.__setitem__)
    for layer, seen in whole.items():
        other = padded[layer]
        assert other.present.tolist() == present.tolist()
        for part in ("queries", "keys"):
            expected, found = getattr(seen, part), getattr(other, part)[:, :, 2:]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_padding_of_an_encoder_on_the_right_changes_nothing_for_the_tokens() -> None:
    for name in ("bert", "mpnet", "t5", "modernbert"):
        model = execution.prepared(MODELS[name].build())
        whole, padded = {}, {}
        execution.run(model, IDS[:1, :-3], None, whole.__setitem__)
        present = np.ones((1, LENGTH), dtype=bool)
        present[0, -3:] = False
        execution.run(model, np.where(present, IDS[:1], 5), present, padded.__setitem__)
        for layer, seen in whole.items():
            expected, found = seen.queries, padded[layer].queries[:, :, :-3]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_fresh_model_is_the_same_architecture_with_other_weights() -> None:
    for name in ("llama", "bloom", "t5", "gemma3"):
        model = execution.prepared(MODELS[name].build())
        state = torch.random.get_rng_state()
        first, again, other = (execution.fresh(model, seed) for seed in (1, 1, 2))
        assert torch.equal(torch.random.get_rng_state(), state)
        assert type(first) is type(model)
        assert not first.training
        assert is_attached(first) == is_attached(model)
        shapes = {part: weight.shape for part, weight in model.state_dict().items()}
        assert {part: weight.shape for part, weight in first.state_dict().items()} == shapes
        weights = [
            torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (first, again, other)
        ]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])
        assert float(weights[0].std()) > 1e-3  # initialised, not left as it was allocated
        assert weights[0].isfinite().all()


def test_a_fresh_patched_model_has_its_bias_at_rest() -> None:
    model = patch(MODELS["llama"].build(), PatchSettings(train_length=LENGTH))
    made = execution.fresh(model, 0)
    assert len(patched_layers(made)) == 2
    seen: dict[int, RunningAttention] = {}
    execution.run(made, IDS, None, seen.__setitem__)
    bias = seen[1].bias_by_lag
    assert bias is not None
    assert bias.shape == (4, LENGTH)
    assert not bias.any()


def test_the_vocabulary_is_what_there_are_vectors_for() -> None:
    padded = Tiny("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}).build()
    padded.resize_token_embeddings(64)
    assert execution.vocabulary(padded) == 64
