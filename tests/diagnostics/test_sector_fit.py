"""Each group of the sector fit explains what was planted in it, and nothing else needs it."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjdiag.diagnostics.sector_fit import (
    SectorDictionary,
    chosen_frequencies,
    frequency_grid,
    most_frequencies,
)
from pjdiag.terms import Rho

L = 1024
OMEGA = 2 * np.pi * 17 / L
d = np.arange(float(L))
x, speed, phi = d / L, d / np.hypot(d, L), L * np.arcsinh(d / L)
WEIGHTS = L - d
GROUPS = ("affine", "F0", "F1", "F2", "F3", "LC0", "LC1", "LC2", "LC3")
PLANTED = {
    "affine": -x,
    **{f"F{r}": x**r / factorial(r) * np.cos(OMEGA * d + 0.3) for r in range(4)},
    **{f"LC{r}": speed**r * np.cos(OMEGA * phi + 0.3) for r in range(4)},
}


@pytest.fixture(scope="module")
def dictionary() -> SectorDictionary:
    return SectorDictionary(WEIGHTS, (OMEGA,), L)


def oracle(kernel: np.ndarray, groups: list[str]) -> float:
    """R2 of a dense weighted least squares with a constant."""
    columns = [np.ones(L)]
    for name in groups:
        if name == "affine":
            columns.append(x)
            continue
        order = int(name[-1])
        amplitude = speed**order if name.startswith("LC") else x**order / factorial(order)
        angle = OMEGA * (phi if name.startswith("LC") else d)
        columns += [amplitude * np.cos(angle), amplitude * np.sin(angle)]
    root = np.sqrt(WEIGHTS)
    design = np.stack(columns, axis=1) * root[:, None]
    design /= np.linalg.norm(design, axis=0)
    solution = np.linalg.lstsq(design, kernel * root, rcond=1e-12)[0]
    mean = WEIGHTS @ kernel / WEIGHTS.sum()
    left = ((design @ solution - kernel * root) ** 2).sum()
    return float(1 - left / (WEIGHTS @ (kernel - mean) ** 2))


@pytest.mark.parametrize("group", GROUPS)
def test_a_planted_group_is_needed_and_no_other_is(
    dictionary: SectorDictionary, group: str
) -> None:
    fit = dictionary.fit(PLANTED[group][None])
    assert fit.groups == GROUPS
    assert fit.r2[0] == pytest.approx(1, abs=1e-9)
    unique = dict(zip(fit.groups, fit.unique_r2[:, 0], strict=True))
    others = [value for name, value in unique.items() if name != group]
    without = 1 - oracle(PLANTED[group], [name for name in GROUPS if name != group])
    assert unique[group] == pytest.approx(without, rel=1e-3)
    assert unique[group] > 1e4 * max(others)
    incremental = dict(zip(fit.groups, fit.incremental_r2[:, 0], strict=True))
    after = GROUPS[GROUPS.index(group) + 1 :]
    assert sum(incremental[name] for name in after) == pytest.approx(0, abs=1e-9)


def test_figures_are_those_of_dense_fits(dictionary: SectorDictionary) -> None:
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=L).cumsum()
    fit = dictionary.fit(kernel[None])
    assert fit.rank == 17
    assert fit.r2[0] == pytest.approx(oracle(kernel, list(GROUPS)), abs=1e-7)
    before = 0.0
    for number, group in enumerate(GROUPS):
        so_far = oracle(kernel, list(GROUPS[: number + 1]))
        assert fit.incremental_r2[number, 0] == pytest.approx(so_far - before, abs=1e-7)
        others = [name for name in GROUPS if name != group]
        lost = fit.r2[0] - oracle(kernel, others)
        assert fit.unique_r2[number, 0] == pytest.approx(lost, abs=1e-7)
        before = so_far


def test_with_order_one_the_shares_are_large() -> None:
    made = SectorDictionary(WEIGHTS, (OMEGA,), L, max_order=1)
    assert made.groups == ("affine", "F0", "F1", "LC0", "LC1")
    for number, group in enumerate(made.groups):
        fit = made.fit(PLANTED[group][None])
        assert int(fit.unique_r2[:, 0].argmax()) == number
    assert made.fit(PLANTED["affine"][None]).unique_r2[0, 0] > 0.97


def test_affine_follows_rho() -> None:
    curved = SectorDictionary(WEIGHTS, (OMEGA,), L / 32, Rho.LIGHTCONE, 0)
    fit = curved.fit(-np.arcsinh(32 * d / L)[None])
    assert fit.incremental_r2[0, 0] == pytest.approx(1, abs=1e-12)


def test_nearly_equal_columns_are_left_out_and_nothing_explodes() -> None:
    frequencies = 1e5 ** -(np.arange(32) / 32)
    made = SectorDictionary(2044 - np.arange(2044.0), tuple(frequencies), 8192)
    assert made.rank < 250 < 1 + 8 * 64
    rng = np.random.default_rng(1)
    fit = made.fit(rng.normal(size=(5, 2044)))
    assert (fit.r2 < 0.2).all()
    assert (fit.unique_r2 >= 0).all()


@settings(max_examples=20, deadline=None)
@given(
    size=st.integers(40, 300),
    frequency=st.floats(1e-4, 3.1),
    order=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_increments_add_up(size: int, frequency: float, order: int, seed: int) -> None:
    made = SectorDictionary(size - np.arange(float(size)), (frequency,), 128, max_order=order)
    kernels = np.random.default_rng(seed).normal(size=(2, size)).cumsum(axis=1)
    fit = made.fit(kernels)
    np.testing.assert_allclose(fit.incremental_r2.sum(axis=0), fit.r2, atol=1e-12)
    assert ((fit.r2 >= 0) & (fit.r2 <= 1 + 1e-9)).all()
    assert (fit.unique_r2 <= fit.r2 + 1e-9).all()
    assert made.rank <= 1 + 4 * (order + 1)


def test_a_kernel_that_does_not_vary_is_nan(dictionary: SectorDictionary) -> None:
    assert np.isnan(dictionary.fit(np.full((1, L), 2.0)).r2).all()


def test_matching_pursuit_finds_what_is_there() -> None:
    grid = frequency_grid(L)
    planted = grid[[90, 180, 270]]
    kernels = np.stack([np.sin(w * d + 1) for w in planted])
    found = chosen_frequencies(kernels, WEIGHTS, grid, 3)
    assert found == pytest.approx(sorted(planted), rel=1e-12)


def test_few_candidates_are_all_taken() -> None:
    assert chosen_frequencies(np.zeros((1, 9)), np.ones(9), (0.3, 0.1), 2) == (0.1, 0.3)


def test_how_many_frequencies() -> None:
    assert [most_frequencies(size) for size in (16, 124, 512, 2044)] == [1, 2, 10, 40]
    assert most_frequencies(2044, max_order=7) == 21
