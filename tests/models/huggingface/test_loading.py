"""Folders and GGUF files become models, or one line that says why not."""

from __future__ import annotations

import socket
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from pjdiag.errors import AdapterError, CheckpointError, PjdiagError
from pjdiag.models.huggingface import loading
from tests.checkpoint import gguf_files
from tests.models.huggingface.folders import add_tokenizer, edit_config, pickled, saved
from tests.models.huggingface.tiny import MODELS, Tiny, output, tokens


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local path means no network: whoever opens a connection fails."""

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    "name", ["llama", "gemma3", "gpt2", "gpt_neox", "bloom", "falcon_groups", "bert", "mpnet"]
)
def test_the_model_is_the_one_that_was_saved(name: str, tmp_path: Path) -> None:
    model = MODELS[name].build()
    found = loading.load(saved(model, tmp_path))
    assert type(found) is type(model)
    assert not found.training
    expected = output(model, input_ids=tokens())
    assert float((output(found, input_ids=tokens()) - expected).abs().max()) < 1e-4


@pytest.mark.parametrize(
    ("config", "model", "part"),
    [("T5Config", "T5ForConditionalGeneration", "T5EncoderModel"),
     ("T5Config", "T5EncoderModel", "T5EncoderModel"),
     ("MT5Config", "MT5EncoderModel", "MT5EncoderModel"),
     ("UMT5Config", "UMT5EncoderModel", "UMT5EncoderModel"),
     ("BartConfig", "BartForConditionalGeneration", "BartEncoder")],
)  # fmt: skip
def test_of_an_encoder_decoder_model_the_encoder_is_read(
    config: str, model: str, part: str, tmp_path: Path
) -> None:
    small = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    small |= {"encoder_layers": 2, "decoder_layers": 1, "decoder_start_token_id": 0}
    whole = Tiny(config, model, small).build()
    found = loading.load(saved(whole, tmp_path))
    assert type(found).__name__ == part
    encoder = whole if type(whole).__name__ == part else whole.get_encoder()
    expected = output(encoder, input_ids=tokens())
    torch.testing.assert_close(output(found, input_ids=tokens()), expected, rtol=0, atol=1e-4)


def test_a_bidirectional_model_with_a_causal_namesake_stays_bidirectional(tmp_path: Path) -> None:
    found = loading.load(saved(Tiny("BertConfig", "BertForMaskedLM").build(), tmp_path))
    assert type(found).__name__ == "BertModel"


def test_narrow_weights_are_read_wide_unless_asked_otherwise(tmp_path: Path) -> None:
    saved(MODELS["llama"].build().to(torch.bfloat16), tmp_path)
    assert loading.load(tmp_path).dtype == torch.float32
    assert loading.load(tmp_path, precision="bfloat16").dtype == torch.bfloat16


def test_a_pickle_is_opened_only_with_permission_and_never_as_code(tmp_path: Path) -> None:
    folder = pickled(MODELS["llama"].build(), tmp_path)
    with pytest.raises(AdapterError, match="cannot run"):
        loading.load(folder)
    assert loading.load(folder, allow_pickle=True).config.model_type == "llama"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    torch.save({"w": Trap()}, folder / "pytorch_model.bin")
    with pytest.raises(PjdiagError):
        loading.load(folder, allow_pickle=True)
    assert not (tmp_path / "sprung").exists()


def test_code_in_the_folder_is_not_run(tmp_path: Path) -> None:
    folder = saved(MODELS["llama"].build(), tmp_path)
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    edit_config(
        folder,
        model_type="own",
        auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.O"},
    )
    with pytest.raises(AdapterError, match="cannot run"):
        loading.load(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize(
    "value", ["evil/kernel", {"": "evil/kernel", "text_config": "evil/kernel"}]
)
def test_a_configuration_chooses_no_kernel(
    key: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    folder = saved(MODELS["llama"].build(), tmp_path)
    edit_config(folder, **{key: value, "experts_implementation": "evil/kernel"})
    hub = transformers.integrations.hub_kernels
    for name in ("get_kernel", "load_and_register_attn_kernel"):
        monkeypatch.setattr(hub, name, lambda *a, **_: asked.append(a), raising=False)
    stub = types.ModuleType("kernels")
    stub.__dict__["get_kernel"] = lambda *a, **_: asked.append(a)
    monkeypatch.setitem(sys.modules, "kernels", stub)
    model = loading.load(folder)
    assert model.config._attn_implementation == "sdpa"
    assert torch.isfinite(model(torch.zeros(1, 4, dtype=torch.long)).logits).all()
    assert not asked


def test_parts_of_a_configuration_choose_no_kernel() -> None:
    config = transformers.Gemma3Config(
        text_config={"_attn_implementation": "evil/kernel", "attn_implementation": "evil/kernel"}
    )
    config.text_config.kernel_config = config.use_kernels = {"": "evil/kernel"}
    loading._forget_choices_of_code(config)
    assert config.text_config._attn_implementation is None
    assert "evil" not in str(vars(config)) + str(vars(config.text_config))


def test_weights_that_are_not_there_are_not_made_up(tmp_path: Path) -> None:
    folder = saved(MODELS["llama"].build(), tmp_path)
    edit_config(folder, num_hidden_layers=3)
    with pytest.raises(
        CheckpointError, match=r"9 weights do not fit .* model\.layers\.2\S+ is mis"
    ):
        loading.load(folder)


def test_layers_that_the_configuration_leaves_out_are_noticed(tmp_path: Path) -> None:
    folder = saved(MODELS["llama"].build(), tmp_path)
    edit_config(folder, num_hidden_layers=1)
    with pytest.raises(
        CheckpointError, match="9 weights of layers that its configuration does not"
    ):
        loading.load(folder)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = saved(MODELS["llama"].build(), tmp_path)
    edit_config(folder, intermediate_size=32)
    with pytest.raises(
        CheckpointError, match=r"6 .*0\.mlp\.down_proj\.weight is \[32, 48\], not \[32, 32\]"
    ):
        loading.load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "unheard_of"},
        {"hidden_size": "wide"},
        {"num_attention_heads": 0},
        {"rope_parameters": {"rope_type": "unheard_of"}},
    ],
)
def test_a_configuration_that_cannot_be_built_is_one_line(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(MODELS["llama"].build(), tmp_path)
    edit_config(folder, **changes)
    with pytest.raises(PjdiagError) as found:
        loading.load(folder)
    assert "\n" not in str(found.value)
    assert found.value.hint


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PjdiagError):
        loading.load(tmp_path / "nowhere")


def test_a_weights_file_means_its_folder_only_under_the_usual_name(tmp_path: Path) -> None:
    folder = saved(MODELS["llama"].build(), tmp_path)
    assert loading.find(folder / "model.safetensors") == loading.Place(folder)
    with pytest.raises(AdapterError, match=r"other\.safetensors stands without"):
        loading.find(folder / "other.safetensors")


def test_settings_of_transformers_are_left_as_they_were(tmp_path: Path) -> None:
    from huggingface_hub import constants

    before = transformers.logging.get_verbosity(), constants.HF_HUB_OFFLINE
    loading.load(saved(MODELS["gpt2"].build(), tmp_path))
    assert (transformers.logging.get_verbosity(), constants.HF_HUB_OFFLINE) == before


def test_a_tokenizer_is_read_where_there_is_one(tmp_path: Path) -> None:
    saved(MODELS["llama"].build(), tmp_path)
    assert loading.tokenizer(tmp_path) is None
    add_tokenizer(tmp_path)
    found = loading.tokenizer(tmp_path)
    assert found is not None
    assert found("the fox sleeps")["input_ids"] == [3, 4, 8]
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(PjdiagError, match="cannot run"):
        loading.tokenizer(tmp_path)


def test_a_gguf_file_is_the_model_that_it_was_made_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tensors = gguf_files.weights(seed=3)
    wide = (2 * gguf_files.HIDDEN, gguf_files.HIDDEN)
    for layer in range(gguf_files.LAYERS):
        for part in ("gate_proj", "up_proj"):
            tensors[f"model.layers.{layer}.mlp.{part}.weight"] = np.ones(wide, dtype=np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"][::-1].copy()
    file = gguf_files.converted(
        tmp_path / "tiny.gguf",
        tensors,
        metadata={"rope.dimension_count": gguf_files.DIM, "vocab_size": gguf_files.VOCAB},
    )
    for path in (file, tmp_path):
        found = loading.load(path)
        weight = found.model.layers[1].self_attn.k_proj.weight.detach().numpy()
        assert (weight == tensors["model.layers.1.self_attn.k_proj.weight"]).all()
    assert capfd.readouterr().err == ""
