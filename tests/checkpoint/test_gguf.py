"""GGUF files: names, rows and gains as before the conversion, types, configuration, damage."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import pjdiag
from pjdiag.checkpoint import Checkpoint, load
from pjdiag.checkpoint.gguf_config import llama3_divisors
from pjdiag.checkpoint.gguf_names import FAMILIES
from pjdiag.errors import CheckpointError, pip_install
from pjdiag.render.sentences import headline
from tests.checkpoint.gguf_files import (
    DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCAB,
    converted,
    gguf_name,
    weights,
    write,
)

TYPES = gguf.GGMLQuantizationType


def read_all(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: checkpoint.read(name) for name in checkpoint.headers}


@pytest.mark.parametrize("architecture", ["llama", "granite", "qwen2", "nemotron", "gemma"])
def test_names_rows_and_gains_are_those_before_the_conversion(
    tmp_path: Path, architecture: str
) -> None:
    tensors = weights()
    checkpoint = load(converted(tmp_path / "model.gguf", tensors, architecture))
    assert checkpoint.format == "gguf"
    found = read_all(checkpoint)
    assert set(found) == set(tensors)
    for name, values in tensors.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6, err_msg=name)


def test_gemma3_and_olmo2_have_norms_on_both_sides(tmp_path: Path) -> None:
    for architecture in ("gemma3", "olmo2"):
        tensors = weights(gains=False)
        for index in range(LAYERS):
            if architecture == "olmo2":
                del tensors[f"model.layers.{index}.input_layernorm.weight"]
            for where in ("post_attention", "post_feedforward"):
                tensors[f"model.layers.{index}.{where}_layernorm.weight"] = np.ones(64, "f4")
        found = read_all(load(converted(tmp_path / "model.gguf", tensors, architecture)))
        assert set(found) == set(tensors)


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_our_names_are_those_of_the_librarys_map(architecture: str) -> None:
    number = {text: key for key, text in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    stems = [gguf.TENSOR_NAMES[part] for part in gguf.MODEL_TENSORS[number]]
    renamed = 0
    for stem in (stem.format(bid=1) for stem in stems):
        ours = FAMILIES[architecture].plain_name(f"{stem}.weight")
        if ours != f"{stem}.weight":
            assert gguf_name(architecture, ours).removesuffix(".weight") == stem
            renamed += 1
    assert renamed >= 7


@pytest.mark.parametrize("quantised", [TYPES.Q8_0, TYPES.Q4_0, TYPES.Q4_1, TYPES.Q5_0, TYPES.F16])
def test_quantised_rows_are_read_alone_and_together(
    tmp_path: Path, quantised: gguf.GGMLQuantizationType
) -> None:
    tensors = weights()
    checkpoint = load(converted(tmp_path / "model.gguf", tensors, quantised=quantised))
    name = "model.layers.1.self_attn.q_proj.weight"
    assert checkpoint.headers[name].dtype == quantised.name
    assert checkpoint.headers[name].shape == (HEADS * DIM, HIDDEN)
    assert checkpoint.unreadable_reason(name) is None
    assert not checkpoint.warnings
    whole = checkpoint.read(name)
    expected = gguf.dequantize(gguf.quantize(tensors[name], quantised), quantised)
    np.testing.assert_array_equal(whole, expected.reshape(tensors[name].shape))
    assert whole.dtype == np.float32
    for start, stop in ((0, 0), (0, 1), (5, 6), (3, 21), (DIM, 2 * DIM), (0, HEADS * DIM)):
        np.testing.assert_array_equal(checkpoint.read_rows(name, start, stop), whole[start:stop])


def test_a_quantised_vector(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype="f4")
    path = write(tmp_path / "m.gguf", {"output_norm.weight": values})
    raw = path.read_bytes()
    at = raw.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8
    packed = gguf.quantize(values, TYPES.Q8_0).tobytes()
    data = raw[: -values.nbytes] + packed + bytes(values.nbytes - len(packed))
    path.write_bytes(data[:at] + struct.pack("<I", TYPES.Q8_0) + data[at + 4 :])
    checkpoint = load(path)
    found = checkpoint.read("model.norm.weight")
    np.testing.assert_allclose(found, values, atol=0.01)
    np.testing.assert_array_equal(checkpoint.read_rows("model.norm.weight", 3, 40), found[3:40])


def test_a_type_that_the_library_cannot_expand_is_listed_and_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", {"blk.0.attn_q.weight": np.ones((8, 8), "f4")})
    raw = path.read_bytes()
    at = raw.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 4 + 16
    path.write_bytes(raw[:at] + struct.pack("<I", 999) + raw[at + 4 :])
    checkpoint = load(path)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert checkpoint.headers[name].dtype == "GGML type 999"
    assert "GGML type 999" in checkpoint.warnings[0]
    assert "which cannot be read" in (checkpoint.unreadable_reason(name) or "")
    with pytest.raises(CheckpointError, match="GGML type 999"):
        checkpoint.read(name)


@pytest.mark.parametrize("alignment", [None, 8, 256])
def test_alignment(tmp_path: Path, alignment: int | None) -> None:
    tensors = weights()
    found = read_all(load(converted(tmp_path / "m.gguf", tensors, alignment=alignment)))
    name = "model.layers.1.self_attn.k_proj.weight"
    np.testing.assert_array_equal(found[name], tensors[name])


def test_the_configuration(tmp_path: Path) -> None:
    config = load(converted(tmp_path / "model.gguf", weights())).config
    assert config == {
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 512,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "vocab_size": VOCAB,
        "tie_word_embeddings": True,
        "attention_bias": False,
    }


@pytest.mark.parametrize(
    ("architecture", "metadata", "expected"),
    [
        ("llama", {"expert_count": 8}, {"model_type": "mixtral", "num_experts": 8}),
        ("gemma3", {}, {"model_type": "gemma3_text", "query_pre_attn_scalar": DIM}),
        ("gemma3", {"block_count": 62}, {"query_pre_attn_scalar": HIDDEN // HEADS}),
        ("gemma2", {"block_count": 46}, {"query_pre_attn_scalar": HIDDEN // HEADS}),
        (
            "gemma2",
            {"attn_logit_softcapping": 50.0, "attention.sliding_window": 128},
            {"attn_logit_softcapping": 50.0, "sliding_window": 128, "model_type": "gemma2"},
        ),
        ("stablelm", {"rope.dimension_count": 2}, {"partial_rotary_factor": 0.25}),
        ("llama", {"rope.dimension_count": DIM}, {"partial_rotary_factor": None}),
        (
            "llama",
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        ),
        (
            "qwen2",
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 128,
            },
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 128,
                }
            },
        ),
        ("llama", {"rope.scaling.type": "none"}, {"rope_scaling": None}),
        (
            "cohere2",
            {"attention.sliding_window_pattern": [True, False]},
            {"layer_types": ["sliding_attention", "full_attention"], "model_type": "cohere2"},
        ),
        ("llama", {"attention.head_count_kv": [2, 2]}, {"num_key_value_heads": 2}),
        ("llama", {"attention.head_count_kv": [2, 4]}, {"num_key_value_heads": [2, 4]}),
        ("granite", {"attention.scale": 0.0078125}, {"attention_multiplier": 0.0078125}),
        ("bert", {"attention.causal": False}, {"is_causal": False, "model_type": "bert"}),
        ("llama", {"vocab_size": 39}, {"vocab_size": 39}),
        ("llama", {"rope.freq_base": None}, {"rope_theta": None}),
    ],
)
def test_configuration_fields(
    tmp_path: Path, architecture: str, metadata: dict[str, Any], expected: dict[str, Any]
) -> None:
    path = write(tmp_path / "m.gguf", {"token_embd.weight": np.ones((40, 64), "f4")}, architecture)
    assert load(path).config["model_type"]
    path = write(
        tmp_path / "m.gguf",
        {"token_embd.weight": np.ones((40, 64), "f4")},
        architecture,
        metadata=metadata,
    )
    config = load(path).config
    assert {name: config.get(name) for name in expected} == expected


def test_longrope_factors_are_tensors(tmp_path: Path) -> None:
    tensors = {
        "token_embd.weight": np.ones((40, 64), "f4"),
        "rope_factors_short.weight": np.asarray([1, 1, 1, 1.5], "f4"),
        "rope_factors_long.weight": np.asarray([1, 2, 3, 4], "f4"),
    }
    metadata = {"rope.scaling.original_context_length": 128, "rope.scaling.attn_factor": 1.25}
    path = write(tmp_path / "m.gguf", tensors, "phi3", metadata=metadata)
    assert load(path).config["rope_scaling"] == {
        "original_max_position_embeddings": 128,
        "rope_type": "longrope",
        "short_factor": [1.0, 1.0, 1.0, 1.5],
        "long_factor": [1.0, 2.0, 3.0, 4.0],
        "attention_factor": 1.25,
    }


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_frequency_divisors_of_llama3_are_recognised(tmp_path: Path, factor: float) -> None:
    divisors = llama3_divisors(128, 500000.0, factor).astype("f4")
    tensors = {"rope_freqs.weight": divisors, "token_embd.weight": np.ones((40, 64), "f4")}
    metadata = {"rope.dimension_count": 128, "rope.freq_base": 500000.0}
    checkpoint = load(write(tmp_path / "m.gguf", tensors, metadata=metadata))
    assert checkpoint.config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert not checkpoint.warnings


def test_the_divisors_are_transformers_own() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(hidden_size=128, num_attention_heads=1, head_dim=128, rope_parameters=rope)
    inv_freq, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** (-np.arange(0, 128, 2) / 128)
    np.testing.assert_allclose(plain / inv_freq.numpy(), llama3_divisors(128, 5e5, 8), rtol=1e-5)


def test_other_divisors_leave_the_rule_unknown_and_say_so(tmp_path: Path) -> None:
    tensors = converted_names(weights()) | {"rope_freqs.weight": np.asarray([1, 2, 3, 9], "f4")}
    checkpoint = load(write(tmp_path / "m.gguf", tensors))
    assert "rope_freqs.weight" in checkpoint.warnings[0]
    rows = pjdiag.inspect(checkpoint).rows
    assert {row["inv_freq"] for row in rows} == {None}


def converted_names(tensors: dict[str, Any]) -> dict[str, Any]:
    return {gguf_name("llama", name): values for name, values in tensors.items()}


def test_an_unknown_architecture_keeps_its_names_and_its_rows_are_not_read(tmp_path: Path) -> None:
    tensors = converted_names(weights())
    checkpoint = load(write(tmp_path / "m.gguf", tensors, "grok"))
    assert "blk.0.attn_q.weight" in checkpoint.headers
    for part in ("attn_q", "attn_k"):
        with pytest.raises(CheckpointError, match="the order of the rows"):
            checkpoint.read(f"blk.0.{part}.weight")
    assert checkpoint.read("blk.0.attn_v.weight").shape == (KV_HEADS * DIM, HIDDEN)


def test_a_file_is_read_like_the_folder_that_it_was_made_from(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=DIM,
        num_hidden_layers=LAYERS,
        intermediate_size=2 * HIDDEN,
        vocab_size=VOCAB,
        max_position_embeddings=512,
        rope_theta=50000.0,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "hf")
    tensors = {
        name: values.numpy()
        for name, values in model.state_dict().items()
        if name != "lm_head.weight"
    }
    path = converted(tmp_path / "model.gguf", tensors)
    ours, theirs = (pjdiag.mass(source) for source in (path, tmp_path / "hf"))
    assert ours.rows
    for found, expected in zip(ours.rows, theirs.rows, strict=True):
        assert found["effective_mass"] == pytest.approx(expected["effective_mass"], rel=1e-6)
    metadata = {"rope.dimension_count": DIM}
    converted(tmp_path / "model.gguf", tensors, metadata=metadata)
    again = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", local_files_only=True
    )
    found = load(tmp_path / "model.gguf")
    for name, values in again.state_dict().items():
        if name != "lm_head.weight":
            np.testing.assert_allclose(found.read(name), values.numpy(), rtol=0, atol=1e-6)


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    converted(tmp_path / "model-Q8_0.gguf", weights(), quantised=TYPES.Q8_0)
    checkpoint = load(tmp_path)
    assert (checkpoint.format, checkpoint.path) == ("gguf", tmp_path)
    assert checkpoint.dtype() == "float32+q8_0"
    converted(tmp_path / "model-F32.gguf", weights())
    with pytest.raises(CheckpointError, match="holds 2 weights files"):
        load(tmp_path)


def test_parts_of_a_split_file_are_not_read_alone(tmp_path: Path) -> None:
    path = converted(tmp_path / "m.gguf", weights(), metadata={"split.count": 3})
    with pytest.raises(CheckpointError, match="one of '3' parts") as caught:
        load(path)
    assert "llama-gguf-split --merge" in caught.value.hint
    path.rename(tmp_path / "m-00001-of-00003.gguf")
    with pytest.raises(CheckpointError, match="shards") as caught:
        load(tmp_path)
    assert "llama-gguf-split --merge" in caught.value.hint


def test_neither_torch_nor_transformers_is_imported(tmp_path: Path) -> None:
    path = converted(tmp_path / "m.gguf", weights(), quantised=TYPES.Q8_0)
    code = (
        "import sys, pjdiag\n"
        f"pjdiag.inspect({str(path)!r}), pjdiag.mass({str(path)!r})\n"
        "print([name for name in ('torch', 'transformers', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path) -> None:
    path = converted(tmp_path / "m.gguf", weights())
    code = (
        "import sys; sys.modules['gguf'] = None\n"
        "from pjdiag.cli.main import main\n"
        f"sys.exit(main(['inspect', {str(path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith(f"Next: {pip_install('gguf')}\n")


def outcome(path: Path) -> Checkpoint | CheckpointError:
    """The checkpoint with every tensor read, or the error; nothing else may be raised."""
    try:
        checkpoint = load(path)
        for name in checkpoint.headers:
            if checkpoint.unreadable_reason(name) is None:
                checkpoint.read(name)
    except CheckpointError as error:
        return error
    return checkpoint


@pytest.fixture(scope="module", params=[None, TYPES.Q8_0], ids=["F32", "Q8_0"])
def sound(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    tensors = {
        "blk.0.attn_q.weight": np.ones((8, 32), "f4"),
        "blk.0.attn_norm.weight": np.ones(32, "f4"),
    }
    metadata = {"attention.head_count": 2, "attention.head_count_kv": [1, 2]}
    return write(path, tensors, metadata=metadata, quantised=request.param).read_bytes()


def test_every_truncation_is_an_error(tmp_path: Path, sound: bytes) -> None:
    path = tmp_path / "m.gguf"
    for size in [*range(4, 700, 3), len(sound) - 200, len(sound) - 1]:
        path.write_bytes(sound[:size])
        error = outcome(path)
        assert isinstance(error, CheckpointError), size
        assert "not a sound GGUF file" in error.message


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_changed_bytes_give_a_checkpoint_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, data: st.DataObject
) -> None:
    raw = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(raw)
    outcome(path)


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (4, struct.pack("<I", 1), "version is 1"),
        (4, struct.pack(">I", 3), "big-endian"),
        (8, struct.pack("<Q", 2**40), "announces 1099511627776 tensors"),
        (16, struct.pack("<Q", 2**50), "metadata entries"),
        (24, struct.pack("<Q", 2**62), "expected at most 65535"),
    ],
)
def test_lying_counts_are_named(
    tmp_path: Path, sound: bytes, at: int, value: bytes, told: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(sound[:at] + value + sound[at + len(value) :])
    error = outcome(path)
    assert isinstance(error, CheckpointError)
    assert told in error.message


def test_rows_that_do_not_fit_the_heads_are_refused(tmp_path: Path) -> None:
    tensors = converted_names(weights())
    checkpoint = load(write(tmp_path / "m.gguf", tensors, metadata={"attention.head_count": 5}))
    with pytest.raises(CheckpointError, match="32 rows for 5 heads"):
        checkpoint.read("model.layers.0.self_attn.q_proj.weight")


def test_a_changed_file_is_not_read(tmp_path: Path) -> None:
    path = converted(tmp_path / "m.gguf", weights())
    checkpoint = load(path)
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(CheckpointError, match="has changed"):
        checkpoint.read("model.norm.weight")


def test_sources_name_the_keys_of_the_file(tmp_path: Path) -> None:
    path = converted(tmp_path / "m.gguf", weights())
    result = pjdiag.inspect(path)
    row = result.rows[0]
    assert row["num_heads_source"] == "gguf: llama.attention.head_count"
    assert row["rope_theta_source"] == "gguf: llama.rope.freq_base"
    assert result.checkpoint["train_length_source"] == "gguf: llama.context_length"
    assert "config:" not in " ".join(v for n, v in row.items() if n.endswith("_source") and v)
    assert "theta 50,000 from the GGUF header" in headline(result)
