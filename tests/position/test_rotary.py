"""RoPE and PJ-rotary: layouts, length rules, and scores that depend on the lag alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.rotary import (
    RopeRule,
    frequencies,
    half_layout_rows,
    inverse_frequencies,
    pj_rotary_frequencies,
    pj_rotary_key,
    pj_rotary_query,
    rotate_half,
    rotate_interleaved,
)
from tests import oracle
from tests.position.backends import BACKENDS, AsArray

BASE = 1e4
seeds = st.integers(0, 2**32 - 1)
positions_below_32k = st.lists(st.integers(0, 32767), min_size=2, max_size=5)
backends = st.sampled_from(sorted(BACKENDS))


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def angles_at(array: AsArray, positions: list[float], head_dim: int):
    at = array(positions)
    return at[:, None] * inverse_frequencies(head_dim, BASE, at)[None, :]


def test_interleaved_against_the_oracle(array: AsArray) -> None:
    x, positions = normal(0, 5, 8), [0, 1, 17, 1024, 32767]
    found = rotate_interleaved(array(x), angles_at(array, positions, 8))
    expected = [oracle.rope(row, t, BASE) for row, t in zip(x.tolist(), positions, strict=True)]
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-10)


@given(seeds, positions_below_32k, st.integers(0, 1000), backends)
def test_rope_scores_depend_on_the_lag(
    seed: int, positions: list[int], shift: int, backend: str
) -> None:
    array = BACKENDS[backend]
    count = len(positions)
    q, k = (array(normal(seed + role, count, 16)) for role in (0, 1))
    size = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)[None, :]
    for rotate in (rotate_interleaved, rotate_half):
        near, far = (angles_at(array, [t + offset for t in positions], 16) for offset in (0, shift))
        scores = np.asarray(rotate(q, near) @ rotate(k, near).T)
        shifted = np.asarray(rotate(q, far) @ rotate(k, far).T)
        assert (np.abs(scores - shifted) <= 1e-10 * size).all()
        np.testing.assert_allclose(
            np.linalg.norm(rotate(q, near), axis=1), np.linalg.norm(q, axis=1), rtol=1e-12
        )


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (1, [0, 2, 4, 6, 1, 3, 5, 7]),
        (2, [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]),
    ],
)
def test_rows_of_the_half_layout(heads: int, expected: list[int]) -> None:
    assert half_layout_rows(heads, 8) == expected


def test_layouts_differ_but_for_the_row_permutation(array: AsArray) -> None:
    """The two layouts have equal shapes and both are relative; only the pairing differs."""
    width, tokens = 6, 7
    x, w_q, w_k = normal(1, tokens, width), normal(2, 8, width), normal(3, 8, width)
    angles = angles_at(array, list(range(tokens)), 8)
    rows = half_layout_rows(1, 8)

    def scores(rotate, w_q: np.ndarray, w_k: np.ndarray) -> np.ndarray:
        q, k = (rotate(array(x @ w.T), angles) for w in (w_q, w_k))
        return np.asarray(q @ k.T)

    interleaved = scores(rotate_interleaved, w_q, w_k)
    assert np.abs(scores(rotate_half, w_q, w_k) - interleaved).max() > 0.1
    permuted = scores(rotate_half, w_q[rows], w_k[rows])
    np.testing.assert_allclose(permuted, interleaved, atol=1e-12)


def test_partial_rotary_pairs_within_the_rotated_channels(array: AsArray) -> None:
    """head_dim 16 rotated by a quarter: pairs (0,2), (1,3); channels 4..15 untouched."""
    inv_freq = inverse_frequencies(4, BASE, array([0.0]))
    np.testing.assert_allclose(np.asarray(inv_freq), [1.0, 0.01], rtol=1e-15)
    for rotate, pairs in ((rotate_half, [(0, 2), (1, 3)]), (rotate_interleaved, [(0, 1), (2, 3)])):
        for source in range(16):
            x = np.zeros((1, 16))
            x[0, source] = 1
            found = np.asarray(rotate(array(x), array([[5.0, 0.05]])))[0]
            partners = [pair for pair in pairs if source in pair]
            reached = set(np.nonzero(found)[0].tolist())
            assert reached == (set(partners[0]) if partners else {source})
    x = normal(4, 3, 16)
    rows = half_layout_rows(1, 16, rotary_dim=4)
    turned = rotate_interleaved(array(x), angles_at(array, [1, 2, 3], 4))
    expected = rotate_half(array(x[:, rows]), angles_at(array, [1, 2, 3], 4))
    np.testing.assert_allclose(np.asarray(turned)[:, rows], np.asarray(expected), rtol=1e-15)


def test_more_angles_than_pairs_are_refused(array: AsArray) -> None:
    with pytest.raises(ValueError, match="3 angles for 4 channels"):
        rotate_half(array(np.ones((1, 4))), array(np.ones((1, 3))))


@pytest.mark.parametrize("head_dim", [0, 3])
def test_odd_widths_are_refused(head_dim: int) -> None:
    with pytest.raises(ValueError, match=f"head_dim is {head_dim}"):
        inverse_frequencies(head_dim, BASE, np.zeros(0))
    with pytest.raises(ValueError, match=f"head_dim is {head_dim}"):
        pj_rotary_frequencies(head_dim, BASE, np.zeros(0))


# Length rules

D, L, T = 64, 512, 4096


def by_rule(array: AsArray, rule: RopeRule, eval_length: int = T):
    return frequencies(D, BASE, L, eval_length, rule, array([0.0]))


@pytest.mark.parametrize("rule", list(RopeRule))
@pytest.mark.parametrize("eval_length", [128, L])
def test_rules_are_silent_within_the_train_length(
    array: AsArray, rule: RopeRule, eval_length: int
) -> None:
    found = by_rule(array, rule, eval_length)
    expected = [BASE ** (-i / (D / 2)) for i in range(D // 2)]
    np.testing.assert_allclose(np.asarray(found.inv_freq), expected, rtol=1e-14)
    assert (found.position_scale, found.attention_factor) == (1.0, 1.0)


def test_linear_maps_the_last_position_onto_the_last_trained_one(array: AsArray) -> None:
    found = by_rule(array, RopeRule.LINEAR)
    np.testing.assert_allclose(np.asarray(found.angles(array([T - 1.0])))[0, 0], L - 1)
    assert found.attention_factor == 1.0


def test_ntk_stretches_the_slowest_wave_by_the_factor(array: AsArray) -> None:
    found = np.asarray(by_rule(array, RopeRule.NTK).inv_freq)
    default = np.asarray(by_rule(array, RopeRule.DEFAULT).inv_freq)
    np.testing.assert_allclose(default[[0, -1]] / found[[0, -1]], [1.0, T / L], rtol=1e-12)
    base = BASE * (T / L) ** (D / (D - 2))
    np.testing.assert_allclose(found, base ** (-np.arange(D // 2) / (D / 2)), rtol=1e-12)
    assert np.asarray(frequencies(2, BASE, L, T, RopeRule.NTK, array([0.0])).inv_freq) == 1.0


def test_yarn_keeps_fast_waves_and_stretches_slow_ones(array: AsArray) -> None:
    found = by_rule(array, RopeRule.YARN)
    default = np.asarray(by_rule(array, RopeRule.DEFAULT).inv_freq)
    rotations = L * default / (2 * math.pi)
    kept = (np.asarray(found.inv_freq) / default - L / T) / (1 - L / T)
    np.testing.assert_allclose(kept[rotations >= 32], 1)
    np.testing.assert_allclose(kept[rotations <= 1], 0, atol=1e-12)
    between = (rotations > 1) & (rotations < 32)
    assert between.sum() > 3
    np.testing.assert_allclose(kept[between], (rotations[between] - 1) / 31, rtol=1e-10)
    assert found.attention_factor == pytest.approx(1 + 0.1 * math.log(T / L))


def test_yarn_factor_40_and_the_logits(array: AsArray) -> None:
    found = frequencies(D, BASE, 4096, 40 * 4096, RopeRule.YARN, array([0.0]))
    assert found.attention_factor == pytest.approx(1.368888, abs=1e-6)
    x = normal(5, 2, D)
    angles = found.angles(array([3.0, 9.0]))
    for rotate in (rotate_half, rotate_interleaved):
        plain, scaled = (np.asarray(rotate(array(x), angles, f)) for f in (1.0, 1.368888))
        np.testing.assert_allclose(scaled @ scaled.T, 1.873854 * (plain @ plain.T), rtol=1e-5)


@pytest.mark.parametrize("head_dim", [4, 6, 64, 128])
def test_frequencies_of_the_jordan_blocks_lead_the_list(array: AsArray, head_dim: int) -> None:
    found = np.asarray(inverse_frequencies(head_dim, BASE, array([0.0])))
    expected = [BASE ** (-2 * block / head_dim) for block in range(head_dim // 2)]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


# PJ-rotary


@given(seeds, positions_below_32k, st.integers(0, 1000), st.floats(-2, 2), backends)
def test_pj_rotary_scores_depend_on_the_lag(
    seed: int, positions: list[int], shift: int, shear: float, backend: str
) -> None:
    array = BACKENDS[backend]
    length = 4096.0
    q, k = (normal(seed + role, len(positions), 16) for role in (0, 1))
    size = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)[None, :]
    tables = []
    for offset in (0, shift):
        at = array([t + offset for t in positions])
        inv_freq = pj_rotary_frequencies(16, BASE, at)
        queries = pj_rotary_query(array(q), at, inv_freq, shear, length)
        keys = pj_rotary_key(array(k), at, inv_freq, shear, length)
        tables.append(np.asarray(queries @ keys.T))
    assert (np.abs(tables[0] - tables[1]) <= 1e-10 * size).all()
    # The score at lag i - j is that of the query moved there and the key at the origin.
    for i, t in enumerate(positions):
        for j, s in enumerate(positions):
            moved = oracle.pj_rotary(q[i].tolist(), t - s, BASE, shear, length, "query")
            expected = math.fsum(a * b for a, b in zip(moved, k[j].tolist(), strict=True))
            assert abs(tables[0][i, j] - expected) <= 1e-10 * size[i, j]


# Precision and gradients


def test_phases_in_single_precision_to_32k() -> None:
    x = normal(6, 1, 8)
    positions = np.arange(32768.0)
    exact = rotate_interleaved(
        np.repeat(x, 32768, axis=0), angles_at(BACKENDS["numpy"], positions, 8)
    )
    single = torch.arange(32768, dtype=torch.float32)
    inv_freq = inverse_frequencies(8, BASE, single)
    assert inv_freq.dtype == torch.float32
    angles = single[:, None] * inv_freq[None, :]
    found = rotate_interleaved(torch.as_tensor(x, dtype=torch.float32).repeat(32768, 1), angles)
    worst = np.abs(found.numpy() - exact).max()
    assert worst < 4e-3 * np.abs(x).max()
    low = rotate_interleaved(torch.as_tensor(x, dtype=torch.bfloat16).repeat(32768, 1), angles)
    assert low.dtype == torch.bfloat16
    np.testing.assert_allclose(low.float().numpy(), exact, atol=2.0**-6 * np.abs(x).max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_low_precision_phases_are_refused(dtype: torch.dtype) -> None:
    positions = torch.arange(4).to(dtype)
    x = torch.ones(4, 4, dtype=torch.float64)
    inv_freq = torch.ones(1, dtype=torch.float64)
    found = by_rule(BACKENDS["torch"], RopeRule.DEFAULT)
    for refuse in (
        lambda: inverse_frequencies(4, BASE, positions),
        lambda: found.angles(positions),
        lambda: rotate_half(x, positions[:, None]),
        lambda: rotate_interleaved(x, positions[:, None]),
        lambda: pj_rotary_query(x, positions, inv_freq, 1.0, 4.0),
        lambda: pj_rotary_key(x, positions, inv_freq, 1.0, 4.0),
    ):
        with pytest.raises(TypeError, match="expected float32 or float64"):
            refuse()


def test_gradients() -> None:
    x = torch.tensor(normal(7, 2, 3, 8), requires_grad=True)
    positions = torch.tensor([0.0, 2.0, 9.0], dtype=torch.float64)
    inv_freq = torch.tensor([1.0, 0.1], dtype=torch.float64, requires_grad=True)
    angles = torch.tensor(normal(8, 3, 4), requires_grad=True)
    for rotate in (rotate_half, rotate_interleaved):
        assert torch.autograd.gradcheck(rotate, (x, angles))
    for transform in (pj_rotary_query, pj_rotary_key):
        assert torch.autograd.gradcheck(
            lambda x, w, transform=transform: transform(x, positions, w, 0.7, 4.0), (x, inv_freq)
        )
