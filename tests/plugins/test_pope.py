"""PoPE by its tensors: both spellings, head counts without a config, frequencies as stored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import pjdiag
from pjdiag.adapters import MultiplicativeSpectrum, Reading
from pjdiag.api import read
from pjdiag.diagnostics.own_transforms import layer_transform

HEADS, DIM, WIDTH = 3, 4, 20
FREQUENCIES = [1.0, 0.1, 0.01, 0.001]


def offset(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-7, 1, shape).astype(np.float32)


def rows(count: int, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(count, width)).astype(np.float32)


def saved(path: Path, tensors: dict[str, Any]) -> Reading:
    arrays = {name: np.asarray(value, dtype=np.float32) for name, value in tensors.items()}
    save_file(arrays, path / "model.safetensors")
    return read(path / "model.safetensors")


def x_transformers(layers: int = 2) -> dict[str, Any]:
    tensors: dict[str, Any] = {
        "attn_layers.polar_pos_emb.inv_freq": FREQUENCIES,
        "attn_layers.polar_pos_emb.learned_bias": offset(HEADS, 1, DIM),
        "token_emb.emb.weight": rows(7),
    }
    for index in range(layers):
        attention = f"attn_layers.layers.{2 * index}.1"
        tensors |= {
            f"attn_layers.layers.{2 * index}.0.0.weight": np.ones(WIDTH),
            f"{attention}.to_q.weight": rows(HEADS * DIM),
            f"{attention}.to_k.weight": rows(HEADS * DIM),
            f"{attention}.to_v.weight": rows(HEADS * DIM),
            f"attn_layers.layers.{2 * index + 1}.1.ff.0.0.weight": rows(2 * WIDTH),
        }
    return tensors


def beside(prefix: str, heads: int = HEADS, dim: int = DIM) -> dict[str, Any]:
    return {
        f"{prefix}inv_freqs": 1e4 ** (-np.arange(dim) / dim),
        f"{prefix}bias": offset(heads, dim),
    }


def polar_part(reading: Reading, layer: int = 0) -> MultiplicativeSpectrum:
    (part,) = reading.layers[layer].parts
    assert isinstance(part, MultiplicativeSpectrum)
    return part


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def test_the_x_transformers_form(tmp_path: Path) -> None:
    reading = saved(tmp_path, x_transformers(layers=11))
    assert (reading.adapter, len(reading.layers), reading.coverage) == ("pope", 11, 1.0)
    for layer in reading.layers:
        assert (layer.num_heads.value, layer.num_kv_heads.value) == (HEADS, HEADS)
        assert (layer.head_dim.value, layer.scale.value) == (DIM, 0.5)
    part = polar_part(reading)
    assert part.inv_freq.value == pytest.approx(FREQUENCIES)
    assert part.rope_theta.value == 10000
    assert not reading.warnings
    assert reading.train_length.value is None


def test_scores_follow_the_formula(tmp_path: Path) -> None:
    tensors = x_transformers()
    transform = layer_transform(saved(tmp_path, tensors).layers[1])
    assert transform is not None
    q, k = np.random.default_rng(0).normal(size=(2, HEADS, 30, DIM))
    positions = np.arange(30.0)
    queries, keys = transform.query(q, positions), transform.key(k, positions)
    assert queries.shape == (HEADS, 30, 2 * DIM)
    delta = tensors["attn_layers.polar_pos_emb.learned_bias"][:, 0].clip(-2 * math.pi, 0)
    for head in range(HEADS):
        for i, j in ((0, 0), (29, 0), (17, 5)):
            angles = (j - i) * np.asarray(FREQUENCIES) + delta[head]
            wanted = (softplus(q[head, i]) * softplus(k[head, j]) * np.cos(angles)).sum()
            # the frequencies are stored in float32
            assert queries[head, i] @ keys[head, j] == pytest.approx(wanted, abs=1e-6)


def test_known_values(tmp_path: Path) -> None:
    tensors = beside("attn.pope.") | {"attn.to_qkv.weight": rows(3 * HEADS * DIM)}
    tensors["attn.pope.bias"] = np.zeros((HEADS, DIM))
    reading = saved(tmp_path, tensors)
    assert polar_part(reading).inv_freq.value == pytest.approx([1, 0.1, 0.01, 0.001])
    transform = layer_transform(reading.layers[0])
    assert transform is not None
    zero, start = np.zeros((HEADS, 1, DIM)), np.zeros(1)
    score = transform.query(zero, start) @ np.swapaxes(transform.key(zero, start), -1, -2)
    assert score.ravel() == pytest.approx(1.92181, abs=5e-6)


@pytest.mark.parametrize(
    ("tensors", "heads", "kv_heads", "head_dim"),
    [
        (
            beside("layers.0.attn.pope.")
            | {
                "layers.0.attn.q_proj.weight": rows(HEADS * DIM),
                "layers.0.attn.k_proj.weight": rows(DIM),
            },
            HEADS,
            1,
            DIM,
        ),
        (beside("pope.") | {"layers.0.1.to_qkv.weight": rows(3 * HEADS * DIM)}, HEADS, HEADS, DIM),
        (  # one offset per key head
            {
                "model.layers.0.self_attn.polar_emb.inv_freq": FREQUENCIES,
                "model.layers.0.self_attn.polar_emb.learned_bias": offset(2, 1, DIM),
                "model.layers.0.self_attn.q_proj.weight": rows(6 * DIM),
                "model.layers.0.self_attn.k_proj.weight": rows(2 * DIM),
            },
            6,
            2,
            DIM,
        ),
        (beside("pope.", heads=1) | {"attn.qkv.weight": rows(3 * 5 * DIM)}, 5, 5, DIM),
        (beside("") | {"to_q.weight": rows(24), "to_k.weight": rows(24)}, HEADS, HEADS, 8),
    ],
    ids=["own", "shared", "per key head", "one for all", "partial, at the root"],
)
def test_head_counts_without_a_config(
    tmp_path: Path, tensors: dict[str, Any], heads: int, kv_heads: int, head_dim: int
) -> None:
    (layer,) = saved(tmp_path, tensors).layers
    found = layer.num_heads.value, layer.num_kv_heads.value, layer.head_dim.value
    assert found == (heads, kv_heads, head_dim)
    transform = layer_transform(layer)
    assert transform is not None
    made = transform.key(np.zeros((heads, 2, head_dim)), np.arange(2.0))
    assert made.shape == (heads, 2, head_dim + DIM)


def test_an_offset_per_key_head_serves_its_group(tmp_path: Path) -> None:
    tensors = {
        "a.pope.inv_freqs": FREQUENCIES,
        "a.pope.bias": offset(2, DIM),
        "a.q_proj.weight": rows(4 * DIM),
        "a.k_proj.weight": rows(2 * DIM),
    }
    transform: Any = layer_transform(saved(tmp_path, tensors).layers[0])
    np.testing.assert_allclose(transform.delta, tensors["a.pope.bias"][[0, 0, 1, 1]])


def test_mass_needs_data_and_says_so(tmp_path: Path) -> None:
    masses = pjdiag.mass(saved(tmp_path, x_transformers()))
    assert not masses.rows
    assert {entry.layer for entry in masses.skipped} == {0, 1}
    assert all("its mass needs data" in entry.reason for entry in masses.skipped)


def test_the_score_depends_on_the_lag_alone(tmp_path: Path) -> None:
    rows = pjdiag.verify(saved(tmp_path, x_transformers()), [1024]).rows
    own = [row for row in rows if row["subject"] == "checkpoint"]
    assert {row["passed"] for row in own if row["law"] == "relative_score"} == {True}
    assert {row["passed"] for row in own if row["law"] == "group"} == {None}


def test_frequencies_of_no_theta_are_kept_and_warned_of(tmp_path: Path) -> None:
    tensors = x_transformers()
    tensors["attn_layers.polar_pos_emb.inv_freq"] = [1.0, 0.1, 0.02, 0.001]
    reading = saved(tmp_path, tensors)
    part = polar_part(reading)
    assert part.inv_freq.value == pytest.approx([1.0, 0.1, 0.02, 0.001])
    assert part.rope_theta.value is None
    (warning,) = reading.warnings
    assert "fit no theta^(-i/D): channel 2 is 0.02 rad/token, expected 0.01" in warning
    assert pjdiag.inspect(reading).warnings == (warning,)


@pytest.mark.parametrize("theta", [100.0, 1e4, 5e5, 1e6])
@pytest.mark.parametrize("dim", [2, 32, 128])
def test_theta_is_found_from_float32_frequencies(tmp_path: Path, theta: float, dim: int) -> None:
    tensors = {
        "pope.inv_freqs": np.float32(1) / np.float32(theta) ** (np.arange(dim, dtype="f4") / dim),
        "pope.bias": np.zeros((2, dim)),
        "attn.to_qkv.weight": rows(6 * dim),
    }
    reading = saved(tmp_path, tensors)
    assert polar_part(reading).rope_theta.value == pytest.approx(theta, rel=2e-5)
    assert not reading.warnings


def test_one_bad_offset_excludes_its_head(tmp_path: Path) -> None:
    tensors = x_transformers()
    tensors["attn_layers.polar_pos_emb.learned_bias"][1, 0, 2] = math.nan
    verified = pjdiag.verify(saved(tmp_path, tensors), [64])
    bad = [entry for entry in verified.skipped if entry.bad_values]
    assert {(entry.layer, entry.head) for entry in bad} == {(0, 1), (1, 1)}
    assert all("learned_bias" in entry.reason for entry in bad)


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        (
            beside("layers.0.attn.pope.")
            | {
                "layers.0.attn.qkv.weight": rows(3 * HEADS * DIM),
                "layers.1.attn.qkv.weight": rows(3 * HEADS * DIM),
            },
            "no polar embedding serves layers.1.attn",
        ),
        (
            beside("x.") | beside("y.") | {"attn.qkv.weight": rows(3 * HEADS * DIM)},
            "x and y stand equally near",
        ),
        (beside("pope.") | {"attn.qkv.weight": rows(3 * 14)}, "do not fit 3 heads"),
        (
            {"pope.inv_freqs": [1.0, math.nan], "pope.bias": offset(2, 2), "qkv.weight": rows(12)},
            "NaN or infinite",
        ),
    ],
)
def test_a_layer_that_cannot_be_read_says_why(
    tmp_path: Path, tensors: dict[str, Any], told: str
) -> None:
    tensors = tensors | beside("sound.attn.pope.") | {"sound.attn.qkv.weight": rows(36)}
    reading = saved(tmp_path, tensors)
    assert any(told in entry.reason for entry in reading.skipped)
    assert reading.layers


def test_cross_attention_of_another_width_is_no_layer(tmp_path: Path) -> None:
    tensors = x_transformers(layers=1) | {
        "attn_layers.layers.2.1.to_q.weight": rows(HEADS * DIM),
        "attn_layers.layers.2.1.to_k.weight": rows(HEADS * DIM, WIDTH + 1),
    }
    assert len(saved(tmp_path, tensors).layers) == 1
