"""Which models predict the next token, and what of them reads the tokens; over all small classes.

A model is causal where a change of the last token leaves the logits of those before alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, XLNetConfig

from pjdiag.models.huggingface import execution
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import randomise
from tests.plugins.contract import Case
from tests.plugins.decoder_cases import DECODERS
from tests.plugins.hybrid_cases import HYBRIDS
from tests.plugins.test_contract_classes import CASES
from tests.plugins.tiny_configs import case, config
from tests.plugins.vision_cases import VISION

IDS = np.random.default_rng(0).integers(3, 60, (1, 12))
BY_HAND = [
    case("bert_generation", "BertGenerationConfig"),
    case("bert_generation decoder", "BertGenerationConfig", is_decoder=True),
    case("big_bird", "BigBirdConfig"),
    case("roberta decoder", "RobertaConfig", is_decoder=True),
    Case("xlnet", XLNetConfig(vocab_size=97, n_layer=2, n_head=4, d_model=48, d_inner=32)),
    case("xlm", "XLMConfig", emb_dim=48, n_layers=2, n_heads=4),
    case("xlm causal", "XLMConfig", emb_dim=48, n_layers=2, n_heads=4, causal=True),
    case("xglm", "XGLMConfig", d_model=48, num_layers=2, attention_heads=4, ffn_dim=32),
    case("ctrl", "CTRLConfig", n_embd=48, n_layer=2, n_head=4, dff=32),
]
FLAGS = ("is_decoder", "causal")
CAUSAL = {
    (type(each.config), *(getattr(each.config, flag, None) for flag in FLAGS)): each
    for each in [*DECODERS, *HYBRIDS, *VISION, *CASES.values(), *BY_HAND]
    if type(each.config) in MODEL_FOR_CAUSAL_LM_MAPPING
}
NAMED_WRONGLY = {
    "Llama4ForCausalLM": config("Llama4TextConfig", head_dim=16, no_rope_layers=[1, 0]),
    "MllamaForCausalLM": config("MllamaTextConfig", cross_attention_layers=[]),
}
"""Their trunk is not where they say."""


def built(given: Case) -> Any:
    torch.manual_seed(0)
    own = type(given.config)(**given.config.to_dict())
    model = AutoModelForCausalLM.from_config(own, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def logits(model: Any, ids: np.ndarray) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=torch.from_numpy(ids), use_cache=False).logits
    return found


@pytest.mark.parametrize("given", CAUSAL.values(), ids=lambda given: given.name)
def test_what_is_causal_predicts(given: Case) -> None:
    model = built(given)
    other = IDS.copy()
    other[0, -1] = 3 + (other[0, -1] + 1) % 50
    own = logits(model, IDS)
    causal = torch.allclose(own[:, :-1], logits(model, other)[:, :-1], atol=1e-5)
    assert execution.predicts_next(model) == causal
    body = execution.trunk(model)
    assert body is not model
    assert model.get_input_embeddings() in body.modules()
    assert model.get_output_embeddings() not in body.modules()
    if causal:
        chosen = own[:, :-1].double().log_softmax(-1)
        expected = -chosen.gather(-1, torch.from_numpy(IDS[:, 1:, None]))[..., 0].numpy()
        for elements in (2**26, 1):
            found = execution.losses(model, IDS, elements)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMED_WRONGLY)
def test_a_trunk_under_another_name_is_found_and_its_head_is_not_run(name: str) -> None:
    model = getattr(transformers, name)(NAMED_WRONGLY[name]).eval()
    assert model.base_model is model
    randomise(model)
    model = execution.prepared(model)
    assert execution.predicts_next(model)
    handle = model.lm_head.register_forward_hook(lambda *_: pytest.fail("the head was run"))
    seen: dict[int, RunningAttention] = {}
    execution.run(model, IDS, None, seen.__setitem__)
    assert sorted(seen) == list(range(model.config.num_hidden_layers))
    handle.remove()
    ids = torch.from_numpy(IDS[:, -1:] % 50)
    found = execution.next_log_probabilities(model, IDS, ids.numpy())
    expected = logits(model, IDS)[:, -1].double().log_softmax(-1).gather(-1, ids).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "given",
    [
        ("BertForMaskedLM", case("bert", "BertConfig")),
        ("BertForSequenceClassification", case("bert", "BertConfig")),
        ("LlamaForSequenceClassification", case("llama", "LlamaConfig")),
        ("LlamaModel", case("llama", "LlamaConfig")),
        ("T5ForConditionalGeneration", CASES["t5"]),
    ],
    ids=lambda given: given[0],
)
def test_other_heads_predict_no_next_token(given: tuple[str, Case]) -> None:
    model = getattr(transformers, given[0])(given[1].config)
    assert not execution.predicts_next(model)
