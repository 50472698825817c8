"""Channel masses against the explicit bilinear forms of the score."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.channel_mass import jet_forms, jet_mass, pair_mass
from pjdiag.position.jordan import jordan_key, jordan_query
from pjdiag.position.rotary import pj_rotary_key, pj_rotary_query, rotate_interleaved
from tests.position.backends import BACKENDS, AsArray

HEADS, BLOCKS, WIDTH = 2, 2, 5
SCALE = 0.3
seeds = st.integers(0, 2**32 - 1)
backends = st.sampled_from(sorted(BACKENDS))


def rows(seed: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Query and key rows, ``[H, B, m, 2, E]``."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, HEADS, BLOCKS, order, 2, WIDTH))
    return q, k


@given(seeds, backends)
def test_pair_mass_against_its_two_forms(seed: int, backend: str) -> None:
    q, k = (part[:, :, 0] for part in rows(seed, 1))
    found = np.asarray(pair_mass(BACKENDS[backend](q), BACKENDS[backend](k), SCALE))
    for head in range(HEADS):
        for pair in range(BLOCKS):
            (q0, q1), (k0, k1) = q[head, pair], k[head, pair]
            cosine = np.outer(q0, k0) + np.outer(q1, k1)
            sine = np.outer(q0, k1) - np.outer(q1, k0)
            size = math.hypot(np.linalg.norm(cosine), np.linalg.norm(sine))
            assert found[head, pair] == pytest.approx(SCALE * size, rel=1e-12)


@given(seeds, st.sampled_from([1, 2, 3, 4]), backends)
def test_jet_mass_against_the_explicit_forms(seed: int, order: int, backend: str) -> None:
    array = BACKENDS[backend]
    q, k = rows(seed, order)
    shear = np.random.default_rng(seed).uniform(-3, 3, size=(HEADS, BLOCKS))
    found = np.asarray(jet_mass(array(q), array(k), array(shear), SCALE))
    assert found.shape == (HEADS, BLOCKS, order)
    u, v = (part[..., 0, :] + 1j * part[..., 1, :] for part in (q, k))
    for head in range(HEADS):
        for block in range(BLOCKS):
            for p in range(order):
                form = sum(
                    np.outer(u[head, block, a].conj(), v[head, block, a + p])
                    for a in range(order - p)
                )
                size = abs(shear[head, block]) ** p * np.linalg.norm(form)
                assert found[head, block, p] == pytest.approx(SCALE * size, rel=1e-10)


def forms_of_score(score, frequency: float, order: int, length: float) -> list[np.ndarray]:
    """Forms of ``(d/L)^p / p! (cos, sin)(w d)``, fitted to a bilinear score of the lag.

    ``score(d)`` is the ``[E, E]`` matrix of the score at lag d. Returns ``[2, E, E]`` per order.
    """
    lags = np.arange(4 * order + 3.0)
    basis = np.stack(
        [
            (lags / length) ** p / math.factorial(p) * wave(frequency * lags)
            for p in range(order)
            for wave in (np.cos, np.sin)
        ],
        axis=1,
    )
    values = np.stack([score(lag).ravel() for lag in lags])
    solution, _, rank, _ = np.linalg.lstsq(basis, values, rcond=None)
    assert rank == 2 * order
    np.testing.assert_allclose(basis @ solution, values, atol=1e-9)
    return list(solution.reshape(order, 2, WIDTH, WIDTH))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_jet_mass_is_the_amplitude_in_the_jordan_score(order: int) -> None:
    """The masses, read back from scores that the transforms themselves give."""
    q, k = (part[:1, :1] for part in rows(7, order))
    omega, length, shear = 0.7, 16.0, 0.4
    w_q, w_k = (part.reshape(2 * order, WIDTH) for part in (q, k))
    at = np.asarray([omega]), np.zeros(1), np.asarray([shear / length]), order

    def score(lag: float) -> np.ndarray:
        queries = jordan_query(w_q.T[:, None, :], np.asarray([lag]), *at)[:, 0]
        keys = jordan_key(w_k.T[:, None, :], np.zeros(1), *at)[:, 0]
        return SCALE * queries @ keys.T

    forms = forms_of_score(score, omega, order, length)
    found = jet_mass(q, k, np.asarray([[shear]]), SCALE)[0, 0]
    assert found.tolist() == pytest.approx([np.linalg.norm(form) for form in forms], rel=1e-6)


def test_jet_mass_of_pj_rotary_takes_the_channels_in_reverse() -> None:
    q, k = (part[:1, :1] for part in rows(8, 2))
    omega, length, shear = 0.7, 16.0, 0.4
    w_q, w_k = (part.reshape(4, WIDTH) for part in (q, k))
    inv_freq = np.asarray([omega])

    def score(lag: float) -> np.ndarray:
        at = inv_freq, shear, length
        queries = pj_rotary_query(w_q.T[:, None, :], np.asarray([lag]), *at)[:, 0]
        keys = pj_rotary_key(w_k.T[:, None, :], np.zeros(1), *at)[:, 0]
        return SCALE * queries @ keys.T

    forms = forms_of_score(score, omega, 2, length)
    sizes = [np.linalg.norm(form) for form in forms]
    shears = np.asarray([[shear]])
    found = jet_mass(q[:, :, ::-1], k[:, :, ::-1], shears, SCALE)[0, 0]
    assert found.tolist() == pytest.approx(sizes, rel=1e-6)
    assert jet_mass(q, k, shears, SCALE)[0, 0, 1] != pytest.approx(sizes[1], rel=1e-2)


def test_pair_mass_is_the_amplitude_in_the_rope_score() -> None:
    q, k = (part[:1, :1, 0] for part in rows(9, 1))
    omega = 0.7

    def score(lag: float) -> np.ndarray:
        queries = rotate_interleaved(q[0, 0].T, np.full((WIDTH, 1), omega * lag))
        return SCALE * queries @ k[0, 0]

    (form,) = forms_of_score(score, omega, 1, 1.0)
    assert float(pair_mass(q, k, SCALE)[0, 0]) == pytest.approx(np.linalg.norm(form), rel=1e-9)


def test_one_channel_is_a_pair(array: AsArray) -> None:
    q, k = (array(part) for part in rows(10, 1))
    single = jet_mass(q, k, array(np.full((HEADS, BLOCKS), 2.0)), SCALE)[..., 0]
    pairs = pair_mass(q[:, :, 0], k[:, :, 0], SCALE)
    np.testing.assert_allclose(np.asarray(single), np.asarray(pairs), rtol=1e-12)


def test_cancelling_forms_have_no_mass(array: AsArray) -> None:
    """Two channels that undo each other at order 0 keep their order 1."""
    q, k = rows(11, 2)
    q[:, :, 1] = q[:, :, 0]
    k[:, :, 1] = -k[:, :, 0]
    found = np.asarray(jet_forms(array(q), array(k)))
    whole = np.asarray(jet_forms(array(q[:, :, :1]), array(k[:, :, :1])))[..., 0]
    assert (found[..., 0] <= 1e-7 * whole).all()
    np.testing.assert_allclose(found[..., 1], whole, rtol=1e-12)


def test_gradients() -> None:
    q, k = (torch.tensor(part, requires_grad=True) for part in rows(12, 3))
    shear = torch.full((HEADS, BLOCKS), 0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, k, shear: jet_mass(q, k, shear, SCALE), (q, k, shear), fast_mode=True
    )
