"""A PJ-bias added to real transformers models: exact at first, trainable, saved and found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import pjdiag
from pjdiag.errors import AdapterError, CheckpointError, UsageError
from pjdiag.models.huggingface.attention import detach, is_attached
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.patch_settings import PatchSettings
from pjdiag.models.patching import patch, patched_layers, pj_parameters
from pjdiag.terms import Sector
from tests.models.huggingface.tiny import MODELS, Tiny, output, padded, tokens
from tests.models.patched import PATCHABLE, TRAIN_LENGTH, plain, stir, stirred

WITHIN = (
    "codegen",
    "cohere2",
    "deepseek_v3",
    "gemma2",
    "gemma3",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "llama",
    "mistral",
    "olmo2",
    "opt",
    "phi3",
    "phimoe",
    "qwen2_moe",
    "qwen3",
    "smollm3",
)
"""Windows, soft caps, sinks, latent keys, experts, layers without RoPE, learned positions."""
OUTSIDE = ("bloom", "falcon", "falcon_alibi", "falcon_groups", "gpt_neo", "mpt")
BY_HAND = {
    "fj_zeta_re",
    "fj_zeta_im",
    "lc_zeta_re",
    "lc_zeta_im",
    "raw_affine_slope",
}
"""Parameters that have a gradient while the bias is zero."""


def save(model: Any, folder: Path) -> Path:
    with quiet():
        model.save_pretrained(folder)
    return folder


def loss(model: Any) -> torch.Tensor:
    ids = tokens()
    found: torch.Tensor = model(input_ids=ids, labels=ids).loss
    return found


@pytest.mark.parametrize("name", WITHIN)
def test_a_patch_changes_no_logit(name: str) -> None:
    model, inputs = plain(name), padded(MODELS[name])
    before = output(model, **inputs), output(model, input_ids=tokens())
    assert pjdiag.patch(model, train_length=TRAIN_LENGTH) is model
    after = output(model, **inputs), output(model, input_ids=tokens())
    present = inputs["attention_mask"].bool()
    size = float(before[1].abs().max())  # two orders of the same sums, in float32
    assert float((after[0] - before[0])[present].abs().max()) <= 3e-6 * size
    assert float((after[1] - before[1]).abs().max()) <= 3e-6 * size
    lags = torch.arange(4096.0)
    for _, bias in patched_layers(model):
        assert not bias(lags).any()
    assert len(patched_layers(model)) == model.config.num_hidden_layers


@pytest.mark.parametrize("name", PATCHABLE)
def test_in_float64_the_logits_are_the_same(name: str) -> None:
    model = MODELS[name].build(implementation="sdpa").double()  # eager rounds to float32
    before = output(model, input_ids=tokens())
    pjdiag.patch(model, train_length=TRAIN_LENGTH)
    torch.testing.assert_close(output(model, input_ids=tokens()), before, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", PATCHABLE)
def test_every_sector_can_move_at_once(name: str) -> None:
    model = pjdiag.patch(plain(name), train_length=TRAIN_LENGTH)
    loss(model).backward()
    for where, bias in patched_layers(model):
        for part, parameter in bias.named_parameters():
            moved = bool((parameter.grad != 0).any())
            assert moved == (part in BY_HAND), f"{where} {part}"


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_gates_orders_damping_and_frequencies_move_once_the_bias_is_there(name: str) -> None:
    model = pjdiag.patch(plain(name), train_length=TRAIN_LENGTH)
    optimizer = torch.optim.SGD(pj_parameters(model), lr=1.0)
    loss(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss(model).backward()
    for _, bias in patched_layers(model):
        for part, parameter in bias.named_parameters():
            assert (parameter.grad != 0).any(), part


def test_a_bias_starts_as_stated() -> None:
    model = pjdiag.patch(plain("llama"))
    assert model.config.pjdiag == {
        "version": 1,
        "sectors": ["fj", "affine", "lc"],
        "slope_form": "signed",
        "train_length": 64,
        "rho": "linear",
        "max_order": 3,
    }
    _, bias = patched_layers(model)[0]
    kernel = bias.kernel()
    torch.testing.assert_close(kernel.gates, torch.full((4, 3), 1 / 3))
    torch.testing.assert_close(kernel.damping, torch.full((4,), 0.1))
    wavelengths = 2 * torch.pi / kernel.omega
    torch.testing.assert_close(wavelengths, torch.tensor([64.0, 32.0, 16.0, 8.0]))
    assert not kernel.slope.any()
    assert kernel.fj.amplitude_re.shape == (4, 4)


def test_a_patch_leaves_random_numbers_and_shared_configurations_alone() -> None:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=8,
    )  # fmt: skip
    model, other = (transformers.LlamaForCausalLM(config) for _ in range(2))
    state = torch.get_rng_state()
    pjdiag.patch(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not hasattr(config, "pjdiag")
    assert not hasattr(other.config, "pjdiag")
    assert other.config._attn_implementation != "pjdiag"
    assert model.training


@pytest.mark.parametrize("name", PATCHABLE)
def test_a_saved_model_comes_back_with_its_bias(name: str, tmp_path: Path) -> None:
    model = stirred(name)
    moved = output(model, input_ids=tokens())
    assert (moved - output(plain(name), input_ids=tokens())).abs().max() > 1e-3
    loaded = pjdiag.load_model(save(model, tmp_path / "patched"))
    assert type(loaded) is type(model)
    assert not loaded.training
    torch.testing.assert_close(output(loaded, input_ids=tokens()), moved, atol=0, rtol=0)
    again = pjdiag.load_model(save(loaded, tmp_path / "again"))
    assert loaded.config.pjdiag == again.config.pjdiag == model.config.pjdiag
    torch.testing.assert_close(output(again, input_ids=tokens()), moved, atol=0, rtol=0)


def test_shards_and_names_in_another_order_come_back(tmp_path: Path) -> None:
    text = MODELS["gemma3"].settings | {
        "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    model = pjdiag.patch(transformers.Gemma3ForConditionalGeneration(config).eval())
    stir(model)
    with quiet():
        model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded = pjdiag.load_model(tmp_path)
    assert [name for name, _ in patched_layers(loaded)] == [
        "model.language_model.layers.0.self_attn",
        "model.language_model.layers.1.self_attn",
    ]
    ids = tokens()
    torch.testing.assert_close(
        output(loaded, input_ids=ids), output(model, input_ids=ids), atol=0, rtol=0
    )


def test_bfloat16_weights_have_a_float32_bias(tmp_path: Path) -> None:
    model = stirred("llama").to(torch.bfloat16)
    assert {parameter.dtype for parameter in pj_parameters(model)} == {torch.float32}
    folder = save(model, tmp_path)
    stored = load_file(folder / "model.safetensors")
    assert {str(value.dtype) for name, value in stored.items() if "pj_bias" in name} == {
        "torch.float32"
    }
    loaded = pjdiag.load_model(folder)
    assert loaded.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in pj_parameters(loaded)} == {torch.float32}
    for ours, theirs in zip(pj_parameters(model), pj_parameters(loaded), strict=True):
        assert torch.equal(ours, theirs)
    assert output(loaded, input_ids=tokens()).isfinite().all()
    wide = pjdiag.load_model(folder, precision="float32")
    assert {parameter.dtype for parameter in wide.parameters()} == {torch.float32}


LLAMA4 = Tiny(
    "Llama4TextConfig",
    "Llama4ForCausalLM",
    {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size_mlp": 48,
        "num_local_experts": 2,
        "attention_chunk_size": 16,
    },
)
"""Its mask is a table: attention stays within chunks of 16 tokens."""


@pytest.mark.parametrize("name", [*PATCHABLE, "chunks"])
def test_generation_with_a_cache_equals_the_whole_window(name: str) -> None:
    model = stirred(name) if name != "chunks" else pjdiag.patch(LLAMA4.build())
    stir(model)
    prompt = tokens(rows=1, length=10)
    made = model.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=14,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    whole = output(model, input_ids=made.sequences)[0, 9:-1]
    torch.testing.assert_close(torch.cat(made.logits), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_padding_on_the_left_changes_nothing(name: str) -> None:
    model, ids = stirred(name), tokens(rows=1, length=12)
    alone = output(model, input_ids=ids)
    mask = torch.cat([torch.zeros(1, 6, dtype=torch.long), torch.ones_like(ids)], 1)
    inputs = {"input_ids": torch.cat([torch.zeros(1, 6, dtype=torch.long), ids], 1)}
    inputs |= {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    torch.testing.assert_close(output(model, **inputs)[:, 6:], alone, atol=1e-5, rtol=1e-5)


def test_the_bias_is_added_to_the_logits() -> None:
    ids = tokens(rows=1, length=40)
    model = pjdiag.patch(plain("llama"), sectors=["affine"], train_length=TRAIN_LENGTH)
    with torch.no_grad():
        for _, bias in patched_layers(model):
            bias.raw_affine_slope.fill_(1e6)
    seen_alone = output(model, input_ids=ids)
    only_self = output(plain("llama"), input_ids=ids[:, :1])
    torch.testing.assert_close(seen_alone[:, 0], only_self[:, 0], atol=1e-5, rtol=1e-5)
    repeated = output(model, input_ids=ids[:, :1].expand(1, 40))
    uniform = output(plain("llama"), input_ids=ids[:, :1].expand(1, 40))
    # A steep slope leaves each token to itself: equal tokens then have equal logits.
    torch.testing.assert_close(repeated, only_self.expand_as(repeated), atol=1e-5, rtol=1e-5)
    assert uniform.shape == repeated.shape


def test_another_attention_is_refused_and_ours_comes_back() -> None:
    model, ids = stirred("llama"), tokens()
    before = output(model, input_ids=ids)
    model.set_attn_implementation("sdpa")
    with pytest.raises(AdapterError, match="'sdpa', which adds no PJ-bias"):
        output(model, input_ids=ids)
    model.set_attn_implementation("pjdiag")
    torch.testing.assert_close(output(model, input_ids=ids), before, atol=0, rtol=0)
    detach(model)
    with pytest.raises(AdapterError, match="adds no PJ-bias"):
        output(model, input_ids=ids)


@pytest.mark.parametrize("name", OUTSIDE)
def test_models_outside_the_interface_are_refused(name: str) -> None:
    with pytest.raises(AdapterError, match="does not attend through transformers' attention"):
        pjdiag.patch(plain(name), train_length=TRAIN_LENGTH)


@pytest.mark.parametrize("name", ["bert", "albert", "modernbert"])
def test_encoders_are_refused_and_left_as_they_were(name: str) -> None:
    model, ids = plain(name), tokens()
    before = output(model, input_ids=ids)
    with pytest.raises(AdapterError, match="looks ahead"):
        pjdiag.patch(model, train_length=TRAIN_LENGTH)
    assert not patched_layers(model)
    assert not is_attached(model)
    assert not hasattr(model.config, "pjdiag")
    torch.testing.assert_close(output(model, input_ids=ids), before, atol=0, rtol=0)


def test_encoder_decoders_are_refused() -> None:
    config = transformers.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1,
                                   num_heads=2)  # fmt: skip
    with pytest.raises(AdapterError, match="encoder-decoder"):
        pjdiag.patch(transformers.T5ForConditionalGeneration(config), train_length=8)


def test_a_second_patch_is_refused() -> None:
    with pytest.raises(UsageError, match="has a PJ-bias already"):
        pjdiag.patch(stirred("llama"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sectors": ["fj", "jet"]}, "a sector is 'jet'; expected one of fj, affine, lc"),
        ({"sectors": []}, "no sector is given"),
        ({"max_order": -1}, "max_order is -1; expected a whole number from 0 to 64"),
        ({"train_length": 1}, "train_length is 1; expected a whole number from 2"),
        ({"rho": "log"}, "rho is 'log'; expected one of linear, lightcone"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    model = plain("llama")
    with pytest.raises(UsageError, match=message):
        pjdiag.patch(model, **settings)
    assert not patched_layers(model)


def test_an_unknown_train_length_must_be_passed() -> None:
    model = plain("llama")
    del model.config.max_position_embeddings
    with pytest.raises(UsageError, match="states no train length"):
        pjdiag.patch(model)


def test_the_train_length_is_the_one_before_an_extension() -> None:
    model = plain("llama")
    model.config.rope_parameters = {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    assert pjdiag.patch(model).config.pjdiag["train_length"] == 16


@pytest.mark.parametrize("sectors", [["affine"], ["fj", "lc"], ["lc"]])
def test_fewer_sectors_have_fewer_parameters(sectors: list[str], tmp_path: Path) -> None:
    model = stirred("gpt2", sectors=sectors, max_order=1, rho="lightcone")
    _, bias = patched_layers(model)[0]
    assert bias.sectors == tuple(Sector(name) for name in sectors)
    loaded = pjdiag.load_model(save(model, tmp_path))
    lags = torch.arange(100.0)
    for (_, ours), (_, theirs) in zip(patched_layers(model), patched_layers(loaded), strict=True):
        torch.testing.assert_close(ours(lags), theirs(lags), atol=0, rtol=0)


def test_plain_loading_loses_the_bias_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save(stirred("llama"), tmp_path / "patched")
    logger = transformers.utils.logging.get_logger("transformers")
    logger.addHandler(caplog.handler)
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True
        )
    finally:
        logger.removeHandler(caplog.handler)
    assert not patched_layers(model)
    assert all("pj_bias" in name for name in found["unexpected_keys"])
    assert len(found["unexpected_keys"]) == 2 * len(PatchSettings(8).to_config()) + 8
    assert "pj_bias" in caplog.text
    assert "UNEXPECTED" in caplog.text
    assert model.config.pjdiag["version"] == 1
    lost = save(model, tmp_path / "lost")
    with pytest.raises(CheckpointError, match="the weights hold no PJ-bias: it was lost"):
        pjdiag.load_model(lost)


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["pjdiag"] = {**config["pjdiag"], **changes}
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, r"pjdiag\.version is 2; this pjdiag reads 1"),
        ({"train_length": None}, "does not state train_length"),
        ({"sectors": ["fj", 7]}, "a sector is 7"),
        ({"rho": []}, r"rho is \[\]"),
        ({"max_order": 2}, r"fj_alpha_logits has shape \[4, 4\]; expected \[4, 3\]"),
        ({"max_order": 10**30}, "max_order is enormous"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = save(stirred("llama"), tmp_path)
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        pjdiag.load_model(folder)


@pytest.mark.parametrize("name", ["num_hidden_layers", "hidden_size", "vocab_size", "head_dim"])
def test_sizes_beyond_the_weights_are_refused_before_anything_is_built(
    name: str, tmp_path: Path
) -> None:
    path = save(stirred("llama"), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: 10**9}))
    with pytest.raises(CheckpointError, match=f"{name} is 1000000000; the weights have room for"):
        pjdiag.load_model(tmp_path)


def test_a_slope_under_a_softplus_is_read_and_cannot_start(tmp_path: Path) -> None:
    folder = save(stirred("llama"), tmp_path)
    edit_config(folder, slope_form="softplus")
    raw = dict(load_file(folder / "model.safetensors"))
    for name, bias in patched_layers(pjdiag.load_model(folder)):
        slope = raw[f"{name}.pj_bias.raw_affine_slope"]
        assert torch.allclose(bias.kernel().slope, torch.nn.functional.softplus(slope))
    with pytest.raises(UsageError, match="cannot start at zero"):
        patch(plain("llama"), PatchSettings(train_length=64, slope_form="softplus"))


def test_a_configuration_without_the_patch_is_refused(tmp_path: Path) -> None:
    folder = save(stirred("llama"), tmp_path)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["pjdiag"]
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"config\.json has no pjdiag"):
        pjdiag.load_model(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layers.1.self_attn.pj_bias", "blocks.b.mixer.pj_bias", "has no attention module"),
        ("layers.1.self_attn.pj_bias.omega", "layers.1.self_attn.pj_bias.om", "no usable omega"),
        ("1.self_attn.pj_bias.gate_logits", "1.self_attn.pj_bias.gates", "gate_logits is missing"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    file = save(stirred("llama"), tmp_path) / "model.safetensors"
    renamed = {name.replace(old, new): value for name, value in load_file(file).items()}
    save_file(renamed, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        pjdiag.load_model(tmp_path)


def test_a_plain_folder_is_not_taken_for_a_patched_one(tmp_path: Path) -> None:
    folder = save(plain("llama"), tmp_path)
    with pytest.raises(AdapterError, match="neither a native nor a patched checkpoint"):
        pjdiag.load_model(folder)


def test_the_sample_comes_as_its_own_model() -> None:
    model = pjdiag.load_model(pjdiag.sample())
    assert model(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 256)
