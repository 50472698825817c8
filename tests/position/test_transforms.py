"""Transforms in effective values: the functions behind them, heads, precision, facts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pjdiag.position.transforms import (
    JordanTransform,
    PJRotaryTransform,
    PolarTransform,
    PositionTransform,
    RotaryTransform,
)
from tests import oracle

POSITIONS = np.asarray([0.0, 1.0, 7.0, 100.0])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def scores(transform: PositionTransform, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Scores ``[H, i, j]`` of one query and one key at every pair of positions."""
    shape = (transform.num_heads, len(POSITIONS), q.shape[-1])
    turned_q = transform.query(np.broadcast_to(q, shape), POSITIONS)
    turned_k = transform.key(np.broadcast_to(k, shape), POSITIONS)
    return turned_q @ turned_k.swapaxes(-1, -2)


def by_lag(score: object) -> list[list[float]]:
    """A function of the lag at every pair of positions."""
    return [[score(i - j) for j in POSITIONS.tolist()] for i in POSITIONS.tolist()]  # type: ignore[operator]


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rotary_scores(layout: str) -> None:
    q, k = normal(2, 4)
    inv_freq = [1.0, 0.1]
    first, second = (
        (slice(0, None, 2), slice(1, None, 2))
        if layout == "interleaved"
        else (
            slice(0, 2),
            slice(2, 4),
        )
    )
    turns = list(zip(q[first] + 1j * q[second], k[first] + 1j * k[second], inv_freq, strict=True))
    transform = RotaryTransform(4, np.asarray(inv_freq), layout, attention_factor=1.2)
    expected = by_lag(
        lambda lag: 1.44 * sum((a * b.conjugate() * np.exp(1j * w * lag)).real for a, b, w in turns)
    )
    np.testing.assert_allclose(scores(transform, q, k)[0], expected, atol=1e-12)
    assert (transform.rate, transform.factor, transform.order) == (1.0, 1.2, 1)


def test_jordan_scores_with_parameters_of_each_head() -> None:
    damping = np.asarray([[1e-3], [2e-3]])
    shear = np.asarray([[0.01], [-0.02]])
    transform = JordanTransform(4, np.asarray([0.3]), damping, shear, 2)
    q, k = normal(2, 4)
    found = scores(transform, q, k)
    pairs = oracle.complex_pairs(q.tolist()), oracle.complex_pairs(k.tolist())
    for head in range(2):
        at = 0.3, float(damping[head, 0]), float(shear[head, 0])
        expected = np.asarray(by_lag(lambda lag, at=at: oracle.jordan_score(*pairs, abs(lag), *at)))
        causal = np.tri(len(POSITIONS), dtype=bool)
        np.testing.assert_allclose(found[head][causal], expected[causal], atol=1e-10)
    assert transform.num_heads == 2
    assert transform.rate == pytest.approx(0.302)
    assert transform.clamp_start == pytest.approx(15000)
    second = transform.take([1])
    np.testing.assert_array_equal(scores(second, q, k)[0], found[1])


def test_polar_scores() -> None:
    delta = np.asarray([[0.0, -1.0], [-7.0, 0.5]])
    inv_freq = np.asarray([1.0, 0.1])  # base 100
    transform = PolarTransform(2, inv_freq, delta)
    q, k = normal(2, 2)
    found = scores(transform, q, k)
    for head in range(2):
        expected = by_lag(
            lambda lag, head=head: oracle.polar_score(
                q.tolist(), k.tolist(), lag, 100.0, delta[head].tolist()
            )
        )
        np.testing.assert_allclose(found[head], expected, atol=1e-12)
    assert not transform.linear
    np.testing.assert_array_equal(scores(transform.take([1]), q, k)[0], found[1])


def test_facts_that_do_not_apply() -> None:
    none = PositionTransform(8)
    assert (none.rate, none.factor, none.linear, none.order) == (0.0, 1.0, True, 1)
    assert none.clamp_start is None
    assert none.shear_bound is None
    x = normal(3, 8)
    assert none.query(x, POSITIONS) is x
    assert none.take([0]) is none
    undamped = JordanTransform(4, np.ones(1), np.zeros(1), np.ones(1), 2, bound=64.0)
    assert undamped.clamp_start is None
    assert undamped.shear_bound == 64.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "transform",
    [
        RotaryTransform(8, np.geomspace(1, 1e-3, 4), "half"),
        PJRotaryTransform(8, np.asarray([1.0, 0.01]), 1.0, 64),
        JordanTransform(8, np.asarray([1.0, 0.1]), np.full(2, 1e-4), np.full(2, 0.1), 2),
        PolarTransform(8, np.geomspace(1, 1e-3, 8), np.linspace(-math.pi, 0, 8)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_everything_is_computed_in_the_precision_of_the_positions(
    transform: PositionTransform, dtype: type
) -> None:
    x = normal(2, 1, len(POSITIONS), 8).astype(dtype)
    positions = POSITIONS.astype(dtype)
    for made in (transform.query(x, positions), transform.key(x, positions)):
        assert made.dtype == dtype
        assert made.shape[:-1] == x.shape[:-1]
