"""PoPE: features against the score and the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.polar import (
    clamp_offset,
    polar_frequencies,
    polar_key,
    polar_query,
    polar_score,
)
from tests import oracle
from tests.position.backends import BACKENDS, AsArray

BASE = 1e4


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_frequencies(array: AsArray) -> None:
    found = polar_frequencies(4, BASE, array([0.0]))
    np.testing.assert_allclose(np.asarray(found), [1.0, 0.1, 0.01, 0.001], rtol=1e-14)


def test_zero_content_at_lag_zero(array: AsArray) -> None:
    zero = array(np.zeros(4))
    inv_freq = polar_frequencies(4, BASE, zero)
    found = polar_score(zero, zero, array([0.0]), inv_freq, zero)
    assert float(found[0]) == pytest.approx(1.92181, abs=5e-6)
    assert float(found[0]) == pytest.approx(4 * math.log(2) ** 2)


def test_offset_is_clamped(array: AsArray) -> None:
    found = np.asarray(clamp_offset(array([-9.0, -2 * math.pi, -1.0, 0.0, 2.0])))
    np.testing.assert_array_equal(found, [-2 * math.pi, -2 * math.pi, -1.0, 0.0, 0.0])


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 32767), min_size=1, max_size=4),
    st.sampled_from(sorted(BACKENDS)),
)
def test_features_give_the_score(seed: int, positions: list[int], backend: str) -> None:
    array = BACKENDS[backend]
    heads, width, count = 2, 5, len(positions)
    q, k = normal(seed, heads, count, width), normal(seed + 1, heads, count, width)
    delta = np.random.default_rng(seed).uniform(-8, 2, size=(heads, width))
    at = array(positions)
    inv_freq = polar_frequencies(width, BASE, at)
    queries = np.asarray(polar_query(array(q), at, inv_freq))
    keys = np.asarray(polar_key(array(k), at, inv_freq, array(delta)))
    assert queries.shape == keys.shape == (heads, count, 2 * width)
    scores = queries @ keys.swapaxes(1, 2)
    for i, t in enumerate(positions):
        for j, s in enumerate(positions):
            direct = polar_score(
                array(q[:, i]), array(k[:, j]), array([t - s]), inv_freq, array(delta)
            )
            np.testing.assert_allclose(scores[:, i, j], np.asarray(direct)[:, 0], atol=1e-9)
            for head in range(heads):
                rows = q[head, i].tolist(), k[head, j].tolist()
                expected = oracle.polar_score(*rows, t - s, BASE, delta[head].tolist())
                assert scores[head, i, j] == pytest.approx(expected, abs=1e-9)


def test_content_sets_only_the_magnitude(array: AsArray) -> None:
    """Doubling a channel's magnitudes scales its curve over the lag and never turns it."""
    lags = array(np.arange(64.0))
    inv_freq, delta = array([0.3]), array([-1.0])
    small = np.asarray(polar_score(array([-3.0]), array([0.5]), lags, inv_freq, delta))
    large = np.asarray(polar_score(array([2.0]), array([4.0]), lags, inv_freq, delta))
    np.testing.assert_allclose(large / large[0], small / small[0], rtol=1e-12)


def test_low_precision_positions_are_refused() -> None:
    x, ones = torch.zeros(4, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    positions = torch.arange(4, dtype=torch.bfloat16)
    for refuse in (
        lambda: polar_query(x, positions, ones),
        lambda: polar_key(x, positions, ones, ones),
        lambda: polar_score(x, x, positions, ones, ones),
        lambda: polar_frequencies(4, BASE, positions),
    ):
        with pytest.raises(TypeError, match="expected float32 or float64"):
            refuse()


def test_half_precision_content_keeps_exact_phases() -> None:
    positions = torch.arange(32000, 32008, dtype=torch.float32)
    inv_freq = polar_frequencies(4, BASE, positions)
    content = torch.tensor(normal(3, 8, 4), dtype=torch.bfloat16)
    found = polar_query(content, positions, inv_freq)
    assert found.dtype == torch.bfloat16
    exact = polar_query(content.double().numpy(), positions.double().numpy(), inv_freq.numpy())
    np.testing.assert_allclose(found.float().numpy(), exact, atol=0.03)


def test_gradients() -> None:
    x = torch.tensor(normal(4, 2, 3, 2), requires_grad=True)
    positions = torch.tensor([0.0, 2.0, 9.0], dtype=torch.float64)
    inv_freq = torch.tensor([1.0, 0.1], dtype=torch.float64, requires_grad=True)
    delta = torch.tensor([[-1.0, -0.5], [-2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: polar_query(x, positions, w), (x, inv_freq))
    assert torch.autograd.gradcheck(
        lambda x, w, delta: polar_key(x, positions, w, delta), (x, inv_freq, delta)
    )
