"""What hooks see of attention outside the interface, where the eager weights do not say it all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface.attention import observed
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import LENGTH, MODELS, Tiny, padded, probabilities, tokens

ALIBI = MODELS["falcon_alibi"]


def observe(model: torch.nn.Module, **inputs: torch.Tensor) -> dict[int, RunningAttention]:
    seen: dict[int, RunningAttention] = {}
    with torch.no_grad(), observed(model, seen.__setitem__):
        model(**inputs)
    return seen


def test_the_fused_attention_of_falcon_adds_its_alibi_once() -> None:
    """Against what the layer passes on: the mixed values before the output projection."""
    model = ALIBI.build(implementation="sdpa").base_model
    attention = model.h[1].self_attention
    kept: dict[str, torch.Tensor] = {}
    attention.dense.register_forward_pre_hook(lambda _, given: kept.update(mixed=given[0]))
    attention.query_key_value.register_forward_hook(lambda *called: kept.update(fused=called[2]))
    seen = observe(model, input_ids=tokens())[1]
    values = attention._split_heads(kept["fused"])[2].transpose(1, 2)
    found = probabilities(seen) @ values.double().numpy()
    mixed = kept["mixed"].view(2, LENGTH, 4, -1).transpose(1, 2).numpy()
    np.testing.assert_allclose(found, mixed, rtol=0, atol=1e-5)
    eager = observe(ALIBI.build().base_model, input_ids=tokens())[1]
    torch.testing.assert_close(eager.bias_by_lag, 2 * seen.bias_by_lag)


def test_the_slopes_of_bloom_do_not_depend_on_padding() -> None:
    """Slope .25, mask [0, 0, 1, 1, 1]: the table is [0, 0, 0, .25, .5]."""
    tiny = Tiny("BloomConfig", "BloomModel", {"n_layer": 1, "n_head": 4})
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    model = tiny.build()
    table = model.build_alibi_tensor(mask, 4, torch.float32)
    assert table[0, 0].tolist() == [0, 0, 0, 0.25, 0.5]
    seen = observe(model, input_ids=tokens(rows=1, length=5), attention_mask=mask)[0]
    assert seen.bias_by_lag is not None
    assert seen.bias_by_lag[0].tolist() == [0, -0.25, -0.5, -0.75, -1.0]
    assert seen.present is not None
    assert seen.present.tolist() == mask.bool().tolist()


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon_alibi"])
def test_one_token_has_no_slope_to_read(name: str) -> None:
    seen = observe(MODELS[name].build(), input_ids=tokens(rows=1, length=1))
    assert [attention.bias_by_lag.tolist() for attention in seen.values()] == [[[0.0]] * 4] * 2


def test_clipped_projections_are_clipped() -> None:
    tiny = Tiny(
        "MptConfig",
        "MptModel",
        {"d_model": 32, "n_heads": 4, "n_layers": 1, "max_seq_len": 64,
         "attn_config": {"clip_qkv": 0.4, "softmax_scale": 0.9}},
    )  # fmt: skip
    model = tiny.build()
    seen = observe(model, input_ids=tokens())[0]
    assert (float(seen.queries.max()), float(seen.keys.min())) == pytest.approx((0.4, -0.4))
    assert seen.scale == 0.9
    with torch.no_grad():
        expected = model(input_ids=tokens(), output_attentions=True).attentions[0]
    np.testing.assert_allclose(probabilities(seen), expected.numpy(), rtol=0, atol=1e-5)


def test_masks_are_read_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    from pjdiag.models.huggingface import outside

    read = []
    original = outside.observed_rule
    monkeypatch.setattr(outside, "observed_rule", lambda *given: read.append(1) or original(*given))
    tiny = MODELS["bloom"]
    observe(tiny.build(), **padded(tiny))
    assert len(read) == 1


def test_attention_without_words_is_refused() -> None:
    """Content and position mixed: no bias by lag describes it."""
    model = Tiny("DebertaConfig", "DebertaModel").build()
    with pytest.raises(AdapterError, match="DebertaModel has no attention that can be observed"):
        observe(model, input_ids=tokens())
