"""Where a map cannot tell the whole story: what is refused, and what is warned of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pjdiag
from pjdiag import adapters
from pjdiag.adapters import Reading
from pjdiag.diagnostics.layer_logits import layer_logits
from pjdiag.errors import AdapterError, InconclusiveError
from tests.adapters.decoder_folders import LLAMA, projections, write
from tests.plugins.contract import TOLERANCE, build, compared, errors, largest_error, run
from tests.plugins.rope_cases import longrope
from tests.plugins.tiny_configs import HEADS, case, types


def read(folder: Path, length: int | None = None) -> Reading:
    return adapters.read(pjdiag.load(folder), eval_length=length)


def test_a_gain_after_the_rotation_is_no_function_of_the_lag(tmp_path: Path) -> None:
    hunyuan = case(
        "hunyuan_v1_dense",
        "HunYuanDenseV1Config",
        **HEADS,
        rope_parameters={
            "rope_type": "dynamic",
            "alpha": 50.0,
            "factor": 1.0,
            "rope_theta": 10000.0,
        },
    )
    build(hunyuan, tmp_path)
    reading = read(tmp_path)
    (layer, _) = reading.layers
    (part,) = layer.parts
    # theta alpha^(d/(d-2)), whatever the length
    assert part.inv_freq.value[1] == pytest.approx((1e4 * 50.0 ** (16 / 14)) ** (-1 / 8))
    assert layer.qk_norm.value == "rms over head after the rotation"
    assert "no function of the lag" in part.unread_reason
    with pytest.raises(AdapterError):
        layer_logits(layer, np.zeros((3, 48)))
    result = pjdiag.mass(reading)
    assert not result.rows
    assert all("no function of the lag" in entry.reason for entry in result.skipped)


def test_without_its_own_norms_the_same_class_is_read(tmp_path: Path) -> None:
    """The refusal is about the gain: a rotation leaves a norm without gain alone."""
    found = errors(
        replace(case("nanochat", "NanoChatConfig", hidden_size=64), length=64), tmp_path, 9
    )
    assert max(found) < TOLERANCE


def test_chunks_are_read_where_both_tokens_share_one(tmp_path: Path) -> None:
    chunked = replace(
        case("llama4", "Llama4TextConfig", **HEADS, no_rope_layers=[1, 1], attention_chunk_size=40),
        length=96,
    )
    found = run(chunked, build(chunked, tmp_path), padding=16)
    reading = read(tmp_path, 96)
    assert any("same chunk of 40 tokens" in text for text in reading.warnings)
    for layer, x, theirs in zip(reading.layers, found.inputs, found.logits, strict=True):
        seen = np.isfinite(theirs[0])
        chunk = np.arange(96) // 40
        assert (seen == (np.tri(96, dtype=bool) & (chunk[:, None] == chunk[None, :]))).all()
        for start, stop in ((0, 40), (40, 80), (80, 96)):
            part = theirs[0][:, start:stop, start:stop]
            assert largest_error(layer, x[0][start:stop], part) < TOLERANCE


def test_temperature_is_warned_of(tmp_path: Path) -> None:
    build(case("llama4", "Llama4TextConfig", **HEADS, no_rope_layers=[1, 0]), tmp_path)
    told = " ".join(read(tmp_path).warnings)
    assert "scale queries from position floor_scale on" in told


def test_positions_beyond_the_original_length_are_warned_of(tmp_path: Path) -> None:
    build(case("ministral3", "Ministral3Config", **HEADS), tmp_path)
    assert any("llama_4_scaling_beta" in text for text in read(tmp_path).warnings)


def test_differential_heads_are_read_one_by_one_and_say_so(tmp_path: Path) -> None:
    build(case("diffllama", "DiffLlamaConfig", **HEADS), tmp_path)
    assert any("subtracts the attention of half" in text for text in read(tmp_path).warnings)


def test_minimax_rotates_as_many_channels_as_it_states(tmp_path: Path) -> None:
    minimax = case("minimax", "MiniMaxConfig", **HEADS, rotary_dim=8, **types("LF"))
    build(minimax, tmp_path)
    reading = read(tmp_path)
    (layer,) = reading.layers
    assert layer.parts[0].rotary_dim.value == 8
    assert layer.parts[0].rotary_dim.source == "config: rotary_dim"
    assert any("rotary_dim is honoured" in text for text in reading.warnings)
    (skipped,) = reading.skipped
    assert skipped.reason == "layer type linear_attention: no softmax attention"


def test_phimoe_uses_its_long_factors_beyond_the_original_length(tmp_path: Path) -> None:
    rope = {**longrope(256), "short_mscale": 1.1, "long_mscale": 1.3}
    build(case("phimoe", "PhimoeConfig", rope_parameters=rope), tmp_path)
    short, long = (read(tmp_path, length) for length in (256, 257))
    for reading, factors, mscale in (
        (short, rope["short_factor"], 1.1),
        (long, rope["long_factor"], 1.3),
    ):
        (part,) = reading.layers[0].parts
        assert part.attention_factor.value == mscale
        base = 1e4 ** (-np.arange(6) / 6)
        assert part.inv_freq.value == pytest.approx(base / np.asarray(factors))
    assert not any("long factors" in text for text in short.warnings)
    assert any("the class of transformers keeps the short ones" in text for text in long.warnings)


def test_an_image_is_mentioned_where_text_alone_is_read(tmp_path: Path) -> None:
    config = {**LLAMA, "model_type": "gemma", "use_bidirectional_attention": True}
    write(tmp_path, config, projections(LLAMA))
    assert not read(tmp_path).layers[0].causal.value
    whole = {"model_type": "paligemma", "text_config": config}
    (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    reading = read(tmp_path)
    assert reading.layers[0].causal.value
    assert any("see themselves both ways" in text for text in reading.warnings)


@pytest.mark.parametrize("name", ["doge", "dory", "hrm_text", "jetmoe", "qwen4_exp", "zaya"])
def test_what_is_known_not_to_be_readable_says_why(tmp_path: Path, name: str) -> None:
    with pytest.raises(InconclusiveError) as raised:
        read(write(tmp_path, {"model_type": name}))
    assert "none of the 2 layers could be read" in raised.value.message
    assert "(all for one reason, such as layer 0: " in raised.value.message
    assert "write a map" in raised.value.hint


def test_an_architecture_that_nobody_names_is_read_as_generic(tmp_path: Path) -> None:
    reading = read(write(tmp_path, {"model_type": "unheard_of"}))
    assert reading.adapter == "generic"


def test_the_largest_error_of_a_window_is_beyond_it(tmp_path: Path) -> None:
    """A window of 4 sees 4 keys, the token itself included."""
    windowed = replace(case("mistral", "MistralConfig", sliding_window=4), length=32)
    found = run(windowed, build(windowed, tmp_path), padding=5)
    assert max(compared(windowed, tmp_path, found)) < TOLERANCE
    assert np.isfinite(found.logits[0][0, 0]).sum(-1).max() == 4


def test_a_cap_that_is_null_is_no_unknown_one(tmp_path: Path) -> None:
    build(case("gemma3", "Gemma3TextConfig", **HEADS, **types("SF")), tmp_path)
    softcap = read(tmp_path).layers[0].softcap
    assert (softcap.value, softcap.source) == (None, "not used")
