"""The fallback adapter: what it states, and what it says that it cannot state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pjdiag
from pjdiag.adapters import AbsolutePositions, AdditiveKernel, MultiplicativeSpectrum, detect
from pjdiag.errors import InconclusiveError
from tests.plugins import folders

CONFIG = {"model_type": "other", "hidden_size": 16, "num_attention_heads": 4}


def tensors(query: str = "self_attn.q_proj", key: str = "self_attn.k_proj", rows: int = 16) -> Any:
    return {
        f"model.layers.{layer}.{name}.weight": folders.noise(height, 16)
        for layer in range(2)
        for name, height in ((query, 16), (key, rows))
    }


def test_it_says_generic_and_scores_below_all_others(tmp_path: Path) -> None:
    folder = folders.write(tmp_path, CONFIG, tensors())
    adapter, match = detect(pjdiag.load(folder))
    assert (adapter.name, match.score) == ("generic", 5)
    assert match.reason == "generic: 2 layers of query and key tensors; model_type 'other'"


def test_without_rope_the_mechanism_is_unknown(tmp_path: Path) -> None:
    reading = folders.read(tmp_path, CONFIG, tensors(rows=8))
    layer = reading.layers[1]
    (part,) = layer.parts
    assert part.mechanism == "unknown"
    assert (layer.num_heads.value, layer.num_kv_heads.value, layer.head_dim.value) == (4, 2, 4)
    for unknown in (layer.scale, layer.window, layer.causal, layer.qk_norm, part.rope_theta):
        assert (unknown.value, unknown.source) == (None, "unknown")
    (missing,) = [text for text in reading.warnings if text.startswith("not determined")]
    assert "softmax scale" in missing
    assert "position mechanism" in missing


@pytest.mark.parametrize(
    ("stated", "theta", "source"),
    [
        ({"rope_theta": 500000.0}, 500000.0, "config: rope_theta"),
        (
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
            1e6,
            "config: rope_parameters.rope_theta",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, None, "unknown"),
    ],
)
def test_a_stated_theta_is_rope_of_unknown_layout(
    stated: dict[str, Any], theta: float | None, source: str, tmp_path: Path
) -> None:
    reading = folders.read(tmp_path, {**CONFIG, **stated}, tensors())
    (part,) = reading.layers[0].parts
    assert isinstance(part, MultiplicativeSpectrum)
    assert part.mechanism == "rope"
    assert (part.rope_theta.value, part.rope_theta.source) == (theta, source)
    for unknown in (part.rope_layout, part.rotary_dim, part.inv_freq):
        assert (unknown.value, unknown.source) == (None, "unknown")
    assert part.loaded is None
    assert "pairing" in part.unread_reason


def test_stored_slopes_and_tables_are_taken_as_they_are(tmp_path: Path) -> None:
    stored = {"slopes": np.asarray([0.5, 0.4, 0.3, 0.2], np.float32)}
    stored["model.embed_positions.weight"] = folders.noise(30, 16)
    reading = folders.read(tmp_path, CONFIG, {**tensors(), **stored})
    slopes, table = reading.layers[0].parts
    assert isinstance(slopes, AdditiveKernel)
    assert slopes.slopes.source == "unknown family, tensor slopes"
    assert isinstance(table, AbsolutePositions)
    assert table.max_positions.value == 30


@pytest.mark.parametrize(
    ("config", "names", "reason"),
    [
        ({"num_attention_heads": None}, {}, "config states no number of heads"),
        ({"num_attention_heads": 3}, {}, r"does not hold 3 heads"),
        ({"head_dim": 8}, {}, r"does not hold 4 heads .* of 8 channels"),
        ({}, {"rows": 6}, "has 6 rows; no whole number of heads"),
        ({}, {"query": "self_attn.q_a_proj"}, "latent attention of an unknown class"),
        ({}, {"query": "self_attn.qkv_proj"}, "does not hold 4 query and 4 key heads"),
        ({"layer_types": ["mamba", "mamba"]}, {}, "layer type mamba: no softmax attention"),
    ],
)
def test_layers_that_cannot_be_read_are_skipped_with_the_reason(
    config: dict[str, Any], names: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InconclusiveError, match=reason):
        folders.read(tmp_path, {**CONFIG, **config}, tensors(**names))


def test_a_fused_projection_that_fits(tmp_path: Path) -> None:
    fused = {"blocks.0.attn.qkv.weight": folders.noise(48, 16)}
    reading = folders.read(tmp_path, {**CONFIG, "rope_theta": 1e4}, fused)
    (layer,) = reading.layers
    assert (layer.num_kv_heads.value, layer.head_dim.value) == (4, 4)
    assert layer.projections is None
    (part,) = layer.parts
    assert isinstance(part, MultiplicativeSpectrum)
    assert "nor the rows of the fused projection" in part.unread_reason


def test_other_stacks_are_left_out(tmp_path: Path) -> None:
    """Vision towers and attention to an encoder are no layers of the language model."""
    others = {
        "vision_model.layers.0.self_attn.q_proj.weight": folders.noise(16, 16),
        "model.layers.0.cross_attn.q_proj.weight": folders.noise(16, 16),
        "model.layers.0.encoder_attn.q_proj.weight": folders.noise(16, 16),
    }
    assert len(folders.read(tmp_path, CONFIG, {**tensors(), **others}).layers) == 2


def test_ten_layers_stay_in_order(tmp_path: Path) -> None:
    named = {
        f"model.layers.{layer}.self_attn.{side}_proj.weight": folders.noise(16, 16)
        for layer in range(11)
        for side in "qk"
    }
    reading = folders.read(tmp_path, CONFIG, named)
    assert [layer.index for layer in reading.layers] == list(range(11))
