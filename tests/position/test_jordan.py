"""Jordan blocks of orders 2 to 4: group law, relative scores, and where they end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.jordan import (
    MAX_EXPONENT,
    jordan_key,
    jordan_matrix,
    jordan_query,
    shear_time,
)
from tests import oracle
from tests.position.backends import BACKENDS, AsArray

BLOCKS = 3
LENGTH = 1024
OMEGA = [1.0, 0.2154434690031884, 0.046415888336127795]

seeds = st.integers(0, 2**32 - 1)
orders = st.sampled_from([1, 2, 3, 4])
backends = st.sampled_from(sorted(BACKENDS))


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def block_parameters(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Damping and shear per token; the shear reaches order 1 within the train length."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 2e-3, size=shape), rng.uniform(-1, 1, size=shape) / LENGTH


def channels(x: np.ndarray, block: int, order: int) -> list[complex]:
    """The complex channels of one block of a head laid out ``[blocks, order, 2]``."""
    return oracle.complex_pairs(x.reshape(BLOCKS, order, 2)[block].ravel().tolist())


@given(st.floats(-200, 200), st.floats(-200, 200), orders, seeds, backends)
def test_group_law(a: float, b: float, order: int, seed: int, backend: str) -> None:
    array = BACKENDS[backend]
    parameters = (array(OMEGA), *map(array, block_parameters(seed, 2, BLOCKS)), order)
    of_a, of_b, of_both = (
        np.asarray(jordan_matrix(array([lag]), *parameters)) for lag in (a, b, a + b)
    )
    assert of_a.shape == (2, 1, BLOCKS, 2 * order, 2 * order)
    np.testing.assert_allclose(of_a @ of_b, of_both, rtol=1e-11, atol=1e-11)


@given(st.floats(-200, 200), orders, seeds)
def test_matrix_against_the_series(lag: float, order: int, seed: int) -> None:
    damping, shear = block_parameters(seed, BLOCKS)
    shear = shear * 50
    found = jordan_matrix(np.asarray([lag]), np.asarray(OMEGA), damping, shear, order)[0]
    for block in range(BLOCKS):
        expected = oracle.jordan_matrix(lag, OMEGA[block], damping[block], shear[block], order)
        re, im = found[block][0::2, 0::2], found[block][1::2, 0::2]
        np.testing.assert_allclose(re + 1j * im, expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found[block][1::2, 1::2], re)
        np.testing.assert_array_equal(found[block][0::2, 1::2], -im)


def score_tables(
    array: AsArray, seed: int, order: int, positions: list[float], **options: float | None
) -> np.ndarray:
    """Scores of two heads, ``[2, T, T]``, for q and k that do not vary with the position."""
    damping, shear = block_parameters(seed, 2, BLOCKS)
    at = array(positions), array(OMEGA), array(damping), array(shear), order
    q, k = (
        array(np.repeat(normal(seed + role, 2, 1, 2 * order * BLOCKS), len(positions), axis=1))
        for role in (1, 2)
    )
    queries, keys = jordan_query(q, *at, **options), jordan_key(k, *at, **options)
    return np.asarray(queries @ keys.mT if hasattr(keys, "mT") else queries @ keys.swapaxes(1, 2))


@given(seeds, orders, st.lists(st.integers(0, 4096), min_size=2, max_size=4, unique=True), backends)
def test_scores_depend_on_the_lag(
    seed: int, order: int, positions: list[int], backend: str
) -> None:
    """Against ``Re q^H A(i-j) k`` with A summed as a series, to 1e-10 of |q||k|."""
    scores = score_tables(BACKENDS[backend], seed, order, [float(t) for t in positions])
    damping, shear = block_parameters(seed, 2, BLOCKS)
    q, k = (normal(seed + role, 2, 1, 2 * order * BLOCKS)[:, 0] for role in (1, 2))
    size = np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1)
    for i, t in enumerate(positions):
        for j, s in enumerate(positions):
            if s > t:
                continue
            for head in range(2):
                expected = math.fsum(
                    oracle.jordan_score(
                        channels(q[head], block, order),
                        channels(k[head], block, order),
                        t - s,
                        OMEGA[block],
                        damping[head, block],
                        shear[head, block],
                    )
                    for block in range(BLOCKS)
                )
                assert abs(scores[head, i, j] - expected) <= 1e-10 * size[head]


def test_order_one_is_rope_against_the_other_sense(array: AsArray) -> None:
    """An unsheared, undamped block turns by -position."""
    x = normal(1, 4, 2)
    zero = array([0.0])
    turned = jordan_query(array(x), array([0, 1, 5, 9]), array([0.3]), zero, zero, 1)
    expected = [oracle.complex_pairs(row)[0] for row in x.tolist()]
    found = [oracle.complex_pairs(row)[0] for row in np.asarray(turned).tolist()]
    for position, before, after in zip([0, 1, 5, 9], expected, found, strict=True):
        angle = 0.3 * position
        assert after == pytest.approx(before * complex(math.cos(angle), -math.sin(angle)))


# The shear time


def test_bounded_shear_time(array: AsArray) -> None:
    times = array([0.0, 1.0, 1024.0, 1025.0, 32767.0, 32768.0])
    bounded = np.asarray(shear_time(times, bound=LENGTH))
    steps = bounded[1::2] - bounded[0::2]
    assert steps == pytest.approx([0.9990, 0.2499, 0.00092], abs=5e-5, rel=2e-3)
    np.testing.assert_array_equal(shear_time(-times, bound=LENGTH), -bounded)
    np.testing.assert_array_equal(shear_time(times, 0.5), np.asarray(times) / 2)


def spread_at_equal_lag(scores: np.ndarray, lag: int) -> float:
    """Largest difference between scores at one lag, over the size of the scores."""
    return float(np.ptp(np.diagonal(scores, -lag, axis1=1, axis2=2), axis=1).max())


@pytest.mark.parametrize("order", [2, 3, 4])
def test_a_bounded_shear_is_not_relative(array: AsArray, order: int) -> None:
    positions = [float(t) for t in range(0, 4096, 512)]
    relative = score_tables(array, 3, order, positions)
    bounded = score_tables(array, 3, order, positions, shear_bound=float(LENGTH))
    assert spread_at_equal_lag(relative, 1) < 1e-9
    assert spread_at_equal_lag(bounded, 1) > 1e-2


def test_a_clamped_exponent_ends_relativity(array: AsArray) -> None:
    """gamma 1e-3 saturates at t = 30000."""
    positions = [float(t) for t in range(28000, 32500, 500)]
    at = array(positions), array([0.0]), array([1e-3]), array([0.0]), 1
    x = array(np.tile([1.0, 0.0], (len(positions), 1)))
    keys = np.asarray(jordan_key(x, *at))[:, 0]
    queries = np.asarray(jordan_query(x, *at))[:, 0]
    clamped = np.asarray(positions) > MAX_EXPONENT / 1e-3
    np.testing.assert_allclose(np.log(keys[~clamped]), 1e-3 * np.asarray(positions)[~clamped])
    np.testing.assert_array_equal(keys[clamped], keys[clamped][0])
    np.testing.assert_allclose(keys * queries, 1.0)
    lag_one = queries[1:] * keys[:-1]
    np.testing.assert_allclose(lag_one[~clamped[1:]], math.exp(-0.5))
    np.testing.assert_allclose(lag_one[clamped[:-1]], 1.0)


# Free jet coefficients


def test_coefficients_equal_to_powers_change_nothing(array: AsArray) -> None:
    order, positions = 4, [0.0, 3.0, 50.0]
    damping, shear = block_parameters(5, 2, BLOCKS)
    coefficients = np.stack([shear**p for p in range(order)])
    x = array(normal(6, 2, 3, 2 * order * BLOCKS))
    at = array(positions), array(OMEGA), array(damping)
    for transform in (jordan_key, jordan_query):
        powers = transform(x, *at, array(shear), order)
        free = transform(x, *at, array(0 * shear), order, jet_coefficients=array(coefficients))
        np.testing.assert_allclose(np.asarray(free), np.asarray(powers), atol=1e-13)


@given(seeds, st.sampled_from([2, 3, 4]))
def test_free_coefficients_leave_the_score_at_lag_zero(seed: int, order: int) -> None:
    """The query's matrix is the inverse of the key's, whatever the coefficients."""
    rng = np.random.default_rng(seed)
    coefficients = np.concatenate([np.ones((1, BLOCKS)), rng.uniform(-1, 1, (order - 1, BLOCKS))])
    q, k = rng.normal(size=(2, 5, 2 * order * BLOCKS))
    positions = np.asarray([0.0, 1.0, 100.0, 1000.0, 4000.0])
    at = positions, np.asarray(OMEGA), np.zeros(BLOCKS), np.zeros(BLOCKS), order
    options = {"shear_scale": 1 / LENGTH, "jet_coefficients": coefficients}
    found = np.sum(jordan_query(q, *at, **options) * jordan_key(k, *at, **options), axis=-1)
    np.testing.assert_allclose(found, np.sum(q * k, axis=-1), atol=1e-9)


# Shapes, precision, gradients


def test_wrong_width_is_refused(array: AsArray) -> None:
    zeros = array(np.zeros(2))
    for transform in (jordan_key, jordan_query):
        with pytest.raises(ValueError, match="10 channels for 2 blocks of order 3; expected 12"):
            transform(array(np.zeros((1, 10))), array([0.0]), zeros, zeros, zeros, 3)


def test_single_precision_to_32k() -> None:
    order = 3
    damping, shear = block_parameters(8, BLOCKS)
    damping = damping / 4
    positions = np.arange(0, 32768.0, 97)
    x = np.repeat(normal(9, 1, 2 * order * BLOCKS), len(positions), axis=0)
    for transform in (jordan_key, jordan_query):
        exact = transform(x, positions, np.asarray(OMEGA), damping, shear, order)
        single = transform(
            *(
                torch.as_tensor(value, dtype=torch.float32)
                for value in (x, positions, OMEGA, damping, shear)
            ),
            order,
        )
        assert single.dtype == torch.float32
        size = np.linalg.norm(exact, axis=1, keepdims=True)
        assert (np.abs(single.numpy() - exact) <= 4e-3 * size).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_low_precision_positions_are_refused(dtype: torch.dtype) -> None:
    positions = torch.arange(4).to(dtype)
    zeros = torch.zeros(1, dtype=torch.float64)
    x = torch.zeros(4, 4, dtype=torch.float64)
    for refuse in (
        lambda: jordan_key(x, positions, zeros, zeros, zeros, 2),
        lambda: jordan_query(x, positions, zeros, zeros, zeros, 2),
        lambda: jordan_matrix(positions, zeros, zeros, zeros, 2),
    ):
        with pytest.raises(TypeError, match="expected float32 or float64"):
            refuse()


@pytest.mark.parametrize("bound", [None, 8.0])
def test_gradients(bound: float | None) -> None:
    order = 3
    x = torch.tensor(normal(10, 2, 2, 2 * order), requires_grad=True)
    positions = torch.tensor([1.0, 4.0], dtype=torch.float64)
    omega, damping, shear = (
        torch.tensor(normal(seed, *shape), requires_grad=True)
        for seed, shape in ((11, (1,)), (12, (2, 1)), (13, (2, 1)))
    )
    for transform in (jordan_key, jordan_query):
        assert torch.autograd.gradcheck(
            lambda x, w, gamma, shear, transform=transform: transform(
                x, positions, w, gamma, shear, order, shear_bound=bound
            ),
            (x, omega, damping, shear),
        )
