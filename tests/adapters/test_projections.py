"""Queries and keys from weights, and the sizes of their forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.adapters.projections import (
    HeadNorm,
    LinearProjections,
    Side,
    not_finite,
    pair_amplitudes,
    rotary_pairs,
    row_norms,
    spread_over_groups,
)
from pjdiag.adapters.protocol import BadTensor

HEADS, DIM, WIDTH, TOKENS = 4, 6, 10, 5
seeds = st.integers(0, 2**32 - 1)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@given(seeds)
def test_a_side_is_the_projection_of_each_head(seed: int) -> None:
    weight, bias = random(seed, HEADS, DIM, WIDTH), random(seed + 1, HEADS, DIM)
    x = random(seed + 2, TOKENS, WIDTH)
    made = Side(weight, bias)(x)
    flat = x @ weight.reshape(-1, WIDTH).T + bias.reshape(-1)
    assert made == pytest.approx(flat.reshape(TOKENS, HEADS, DIM).swapaxes(0, 1), abs=1e-10)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("over", ["head", "projection"])
def test_a_norm_is_that_of_torch(kind: str, over: str) -> None:
    import torch

    x = random(0, TOKENS, HEADS, DIM)
    gain, bias = random(1, HEADS, DIM), random(2, HEADS, DIM)
    shape = (DIM,) if over == "head" else (HEADS * DIM,)
    theirs = torch.from_numpy(x.reshape(TOKENS, HEADS, DIM))
    flat = theirs if over == "head" else theirs.reshape(TOKENS, -1)
    norm = torch.nn.functional.rms_norm if kind == "rms" else torch.nn.functional.layer_norm
    normed = norm(flat, shape, eps=1e-3).reshape(TOKENS, HEADS, DIM).numpy()
    made = HeadNorm(kind, over, 1e-3, gain, bias)(x)
    assert made == pytest.approx(normed * gain + bias, abs=1e-12)


def test_values_are_clipped_after_the_norm() -> None:
    weight = np.ones((1, 2, 1))
    made = Side(weight, norm=HeadNorm("rms", "head", 0.0, np.asarray([3.0, 0.1])), clip=0.5)
    assert made(np.asarray([[7.0]])).tolist() == [[[0.5, 0.1]]]


@given(seeds, st.booleans())
def test_row_norms_are_those_of_the_weights_times_the_gain(seed: int, single: bool) -> None:
    dtype = np.float32 if single else np.float64
    weight, gain = random(seed, HEADS, DIM, WIDTH).astype(dtype), random(seed + 1, WIDTH)
    made = row_norms(weight, gain)
    assert made.dtype == np.float64
    assert made == pytest.approx(np.linalg.norm(weight.astype(np.float64) * gain, axis=-1))


@given(seeds, st.sampled_from(["head", "projection"]))
def test_rows_under_a_norm_have_its_mean_size(seed: int, over: str) -> None:
    """The approximation: white unit inputs leave the norm with mean square one."""
    weight = random(seed, HEADS, DIM, WIDTH)
    norm = HeadNorm("rms", over, 1e-6)
    rows = norm.rows(weight)
    axes = (-2, -1) if over == "head" else (-3, -2, -1)
    assert np.square(rows).sum(axis=axes) == pytest.approx(DIM * (1 if over == "head" else HEADS))
    assert norm.row_norms(row_norms(weight)) == pytest.approx(row_norms(rows))


def test_rows_of_zero_stay_zero() -> None:
    norm = HeadNorm("rms", "head", 1e-6, np.full(DIM, 2.0))
    assert not norm.rows(np.zeros((HEADS, DIM, WIDTH))).any()


@given(seeds)
def test_the_mass_of_a_pair_is_the_size_of_its_forms(seed: int) -> None:
    """``m = scale sqrt(|B|^2 + |S|^2)``, B and S built in full."""
    query, key = random(seed, 2, 4, WIDTH), random(seed + 1, 1, 4, WIDTH)
    gain = random(seed + 2, WIDTH)
    made = LinearProjections(Side(query), Side(key), gain)
    pairs = rotary_pairs("half", 4)
    found = made.spectrum(pairs, None, 0.5).amplitude
    for head in range(2):
        for channel, (a, b) in enumerate(pairs):
            q0, q1 = (query[head, row] * gain for row in (a, b))
            k0, k1 = (key[0, row] * gain for row in (a, b))
            form = np.outer(q0, k0) + np.outer(q1, k1)
            turned = np.outer(q0, k1) - np.outer(q1, k0)
            size = 0.5 * np.sqrt(np.square(form).sum() + np.square(turned).sum())
            assert found[head, channel, 0] == pytest.approx(size)


def test_shared_keys_carry_the_gain_of_their_own_layer() -> None:
    weight = np.ones((1, 2, 3))
    own = LinearProjections(Side(weight), Side(weight), np.full(3, 2.0))
    shared = LinearProjections(Side(weight), Side(weight), np.full(3, 2.0), np.full(3, 5.0))
    pairs = np.asarray([[0, 1]])
    ratio = shared.spectrum(pairs, None, 1.0).amplitude / own.spectrum(pairs, None, 1.0).amplitude
    assert ratio.item() == pytest.approx(2.5)


def test_query_heads_read_the_key_head_of_their_group() -> None:
    query, key = np.ones((14, 2)), np.asarray([[1.0, 1.0], [10.0, 10.0]])
    made = pair_amplitudes(query, key, np.asarray([[0, 1]]), 1.0)[:, 0, 0]
    assert made[:7] == pytest.approx([2.0] * 7)
    assert made[7:] == pytest.approx([20.0] * 7)


def test_pairs_of_a_partial_rotation() -> None:
    assert rotary_pairs("half", 4).tolist() == [[0, 2], [1, 3]]
    assert rotary_pairs("interleaved", 6).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_bad_values_name_the_heads_that_they_spoil() -> None:
    values = np.zeros((3, 2, 4))
    values[1, 0, :2] = [np.nan, np.inf]
    assert not_finite("k", values) == [BadTensor("k", 2, (1,))]
    assert spread_over_groups(not_finite("k", values), 3) == [BadTensor("k", 2, (3, 4, 5))]
