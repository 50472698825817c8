"""Every compact shape is found where it was planted, with its parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjdiag.diagnostics.character_search import Carrier, fit_character
from pjdiag.diagnostics.compact_shapes import PARAMETERS, ShapeFit, compact_shapes
from pjdiag.diagnostics.kernel_terms import Shape

LAGS, TRAIN_LENGTH = 1200, 4096
d = np.arange(float(LAGS))
phi = TRAIN_LENGTH * np.arcsinh(d / TRAIN_LENGTH)
x = d / TRAIN_LENGTH
WEIGHTS = LAGS - d


def fits(kernel: np.ndarray, weights: np.ndarray = WEIGHTS) -> dict[Shape, ShapeFit]:
    return {fit.shape: fit for fit in compact_shapes(kernel[None], weights, TRAIN_LENGTH)}


def best(kernel: np.ndarray) -> ShapeFit:
    return min(fits(kernel).values(), key=lambda fit: float(fit.bic[0]))


PLANTED = [
    (Shape.LINEAR, -0.01 * d, {"slope": 0.01}),
    (Shape.LINEAR, 0.02 * d, {"slope": -0.02}),
    (Shape.RAPIDITY, -1.5 * np.arcsinh(d / 0.7), {"slope": 1.5, "fitted_scale": 0.7}),
    (Shape.RAPIDITY, -3 * np.arcsinh(d / 300), {"slope": 3.0, "fitted_scale": 300.0}),
    (Shape.DAMPED, 2 * np.exp(-d / 20), {"amplitude": 2.0, "fitted_scale": 20.0}),
    (Shape.DAMPED, -2 * np.exp(-d / 900), {"amplitude": -2.0, "fitted_scale": 900.0}),
    (Shape.STEP, -1.5 * (d >= 377), {"amplitude": -1.5, "fitted_scale": 377.0}),
    (Shape.STEP, 1.5 * (d >= 1), {"amplitude": 1.5, "fitted_scale": 1.0}),
    (
        Shape.CHARACTER,
        0.7 * np.cos(0.3 * d + 1),
        {"amplitude": 0.7, "inv_freq": 0.3, "fitted_scale": 2 * np.pi / 0.3},
    ),
    (Shape.CHARACTER, np.cos(3.0 * d + 1), {"amplitude": 1.0, "inv_freq": 3.0}),
    (Shape.CHARACTER, np.cos(2 * np.pi * d / 4000 + 1), {"fitted_scale": 4000.0}),
    (
        Shape.LIGHT_CONE,
        np.cos(0.5 * phi + 0.2),
        {"amplitude": 1.0, "inv_freq": 0.5, "fitted_scale": 4 * np.pi},
    ),
    (Shape.LIGHT_CONE, np.cos(2.5 * phi), {"inv_freq": 2.5}),
    (
        Shape.JET_1,
        x * np.exp(-d / 400) * np.cos(0.05 * d + 0.4),
        {"amplitude": 1.0, "inv_freq": 0.05, "fitted_scale": 400.0},
    ),
    (Shape.JET_1, 3 * x * np.exp(-d / 100), {"amplitude": 3.0, "fitted_scale": 100.0}),
    (
        Shape.JET_2,
        x**2 * np.exp(-d / 200) * np.cos(0.5 * d + 0.4),
        {"amplitude": 1.0, "inv_freq": 0.5, "fitted_scale": 200.0},
    ),
    (Shape.JET_2, x**2 * np.cos(0.1 * d), {"inv_freq": 0.1, "fitted_scale": np.nan}),
]


@pytest.mark.parametrize(("shape", "kernel", "expected"), PLANTED)
def test_a_planted_shape_is_found_with_its_parameters(
    shape: Shape, kernel: np.ndarray, expected: dict[str, float]
) -> None:
    found = best(kernel + 5.0)
    assert found.shape == shape
    assert found.r2[0] == pytest.approx(1, abs=1e-9)
    for name, value in expected.items():
        assert getattr(found, name)[0] == pytest.approx(value, rel=1e-4, nan_ok=True), name


@pytest.mark.parametrize(("shape", "kernel", "expected"), PLANTED)
def test_noise_of_a_tenth_does_not_hide_it(
    shape: Shape, kernel: np.ndarray, expected: dict[str, float]
) -> None:
    rng = np.random.default_rng(7)
    noisy = kernel + 0.1 * kernel.std() * rng.normal(size=LAGS)
    found = fits(noisy)[shape]
    assert found.r2[0] > 0.9
    if np.isfinite(expected.get("fitted_scale", 1.0)):
        for name, value in expected.items():
            assert getattr(found, name)[0] == pytest.approx(value, rel=0.25), name


def test_heads_are_fitted_each_on_its_own() -> None:
    kernels = np.stack([kernel for _, kernel, _ in PLANTED])
    together = compact_shapes(kernels, WEIGHTS, TRAIN_LENGTH)
    for row in (3, 9, 15):
        alone = compact_shapes(kernels[row : row + 1], WEIGHTS, TRAIN_LENGTH)
        for one, other in zip(together, alone, strict=True):
            assert one.r2[row] == pytest.approx(other.r2[0], abs=1e-6)


def test_linear_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(1)
    kernel = rng.normal(size=LAGS).cumsum()
    root = np.sqrt(WEIGHTS)
    design = np.stack([np.ones(LAGS), d], axis=1) * root[:, None]
    found, (left,), _, _ = np.linalg.lstsq(design, kernel * root, rcond=None)
    mean = (WEIGHTS * kernel).sum() / WEIGHTS.sum()
    whole = (WEIGHTS * (kernel - mean) ** 2).sum()
    linear = fits(kernel)[Shape.LINEAR]
    assert linear.r2[0] == pytest.approx(1 - left / whole, rel=1e-9)
    assert linear.slope[0] == pytest.approx(-found[1], rel=1e-9)
    expected = LAGS * np.log(left / whole) + 2 * np.log(LAGS)
    assert linear.bic[0] == pytest.approx(expected, rel=1e-9)


def test_a_character_is_as_good_as_the_best_of_a_fine_grid() -> None:
    rng = np.random.default_rng(2)
    kernel = rng.normal(size=400).cumsum()
    lags, weights = np.arange(400.0), 400 - np.arange(400.0)
    share = weights / weights.sum()
    centred = kernel - share @ kernel
    root = np.sqrt(share)
    best_left = np.inf
    for frequency in np.linspace(np.pi / 800, 0.2, 4000):
        design = np.stack([np.ones(400), np.cos(frequency * lags), np.sin(frequency * lags)], 1)
        design *= root[:, None]
        solution = np.linalg.lstsq(design, centred * root, rcond=None)[0]
        best_left = min(best_left, float(((centred * root - design @ solution) ** 2).sum()))
    found = fit_character(centred[None], share, Carrier(lags, np.ones(400)))
    assert found.residual[0] <= best_left * (1 + 1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(16, 200), scale=st.floats(1e-3, 1e4))
def test_fits_lie_between_nothing_and_everything(seed: int, size: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    kernels = scale * rng.normal(size=(3, size)).cumsum(axis=1)
    found = compact_shapes(kernels, size - np.arange(float(size)), 64)
    assert [fit.shape for fit in found] == list(Shape)
    by_shape = {fit.shape: fit for fit in found}
    for fit in found:
        assert ((fit.r2 >= -1e-9) & (fit.r2 <= 1 + 1e-9)).all()
    assert (by_shape[Shape.DAMPED].r2 >= by_shape[Shape.LINEAR].r2 - 0.05).all()
    moved = compact_shapes(kernels * 3 + 100 * scale, size - np.arange(float(size)), 64)
    for one, other in zip(found, moved, strict=True):
        np.testing.assert_allclose(one.r2, other.r2, atol=1e-3)


def test_a_kernel_that_does_not_vary_has_no_figures() -> None:
    for fit in fits(np.full(LAGS, 3.0)).values():
        assert np.isnan([fit.r2[0], fit.bic[0], fit.slope[0], fit.fitted_scale[0]]).all()


def test_too_few_lags() -> None:
    with pytest.raises(ValueError, match="have 15 lags"):
        compact_shapes(np.zeros((1, 15)), np.ones(15), 64)


def test_every_shape_has_its_number_of_parameters() -> None:
    assert list(PARAMETERS) == [*dict.fromkeys(PARAMETERS)]
    assert set(PARAMETERS) == set(Shape)
    assert max(PARAMETERS.values()) == 4
