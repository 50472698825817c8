"""ALiBi: slopes at any head count, their families, and the two ways to write the bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.alibi import (
    SlopeFamily,
    alibi_kernel,
    classify_slopes,
    naive_slopes,
    padded_bias,
    slope_of_bias,
    slopes,
)
from pjdiag.position.kernel import bias, mass
from pjdiag.terms import Sector
from tests import oracle
from tests.position.backends import AsArray

TWELVE = (
    *(0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625),
    *(0.707107, 0.353553, 0.176777, 0.0883883),
)


def test_known_slopes() -> None:
    assert slopes(12) == pytest.approx(TWELVE, rel=1e-5)
    assert slopes(6) == pytest.approx((0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125))
    assert slopes(8)[0] == 0.5
    assert naive_slopes(12)[0] == pytest.approx(0.62996, abs=1e-5)


@pytest.mark.parametrize("heads", range(1, 130))
def test_slopes_against_the_oracle(heads: int) -> None:
    assert slopes(heads) == pytest.approx(oracle.alibi_slopes(heads), rel=1e-12)


def test_other_bias_max() -> None:
    assert slopes(8, bias_max=16)[0] == 0.25
    assert classify_slopes(slopes(12, 16), 16) == SlopeFamily.STANDARD
    assert classify_slopes(slopes(12, 16)) == SlopeFamily.UNKNOWN


@pytest.mark.parametrize("heads", [0, -1])
def test_no_heads_are_refused(heads: int) -> None:
    with pytest.raises(ValueError, match=f"num_heads is {heads}"):
        slopes(heads)


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 40, 71])
def test_families(heads: int) -> None:
    power_of_two = math.log2(heads).is_integer()
    standard = slopes(heads)
    naive = SlopeFamily.STANDARD if power_of_two else SlopeFamily.NAIVE
    assert classify_slopes(standard) == SlopeFamily.STANDARD
    assert classify_slopes(naive_slopes(heads)) == naive
    assert classify_slopes([-slope for slope in standard]) == SlopeFamily.REVERSED
    assert classify_slopes([-slope for slope in naive_slopes(heads)]) == SlopeFamily.REVERSED
    assert classify_slopes([slope * 1.05 for slope in standard]) == SlopeFamily.UNKNOWN
    rounded = torch.tensor(standard).to(torch.bfloat16).tolist()
    assert classify_slopes(rounded) == SlopeFamily.STANDARD


@pytest.mark.parametrize("values", [[], [0.0] * 8, [math.nan] * 8, list(TWELVE)[::-1]])
def test_other_values_are_unknown(values: list[float]) -> None:
    assert classify_slopes(values) == SlopeFamily.UNKNOWN


@given(st.floats(-2, 2), st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_slope_of_either_form(slope: float, length: int, seed: int) -> None:
    """``-m (i-j)`` and ``+m j`` are the same bias under a causal softmax; ``+m (i-j)`` is not."""
    i, j = np.indices((length, length)).astype(float)
    rows = np.random.default_rng(seed).normal(size=(length, 1))
    for table in (-slope * (i - j), slope * j, slope * j + rows):
        assert float(slope_of_bias(table)) == pytest.approx(slope, abs=1e-10)
    assert float(slope_of_bias(slope * (i - j))) == pytest.approx(-slope, abs=1e-10)


def test_a_sign_error_is_found_in_the_bias(array: AsArray) -> None:
    i, j = np.indices((9, 9)).astype(float)
    wrong = np.stack([slope * (i - j) for slope in slopes(6)])
    wrong[:, i < j] = -np.inf
    found = slope_of_bias(array(wrong))
    assert classify_slopes(found.tolist()) == SlopeFamily.REVERSED
    assert classify_slopes((-found).tolist()) == SlopeFamily.STANDARD


def test_one_position_has_no_slope(array: AsArray) -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        slope_of_bias(array([[0.0]]))


def test_left_padding(array: AsArray) -> None:
    mask = array([0, 0, 1, 1, 1])
    found = padded_bias(array([0.25, 1.0]), mask)
    assert found.tolist() == [[0, 0, 0, 0.25, 0.5], [0, 0, 0, 1, 2]]


def test_kernel(array: AsArray) -> None:
    lags = array([0.0, 1.0, 500.0])
    kernel = alibi_kernel(array(slopes(6)), 128)
    assert kernel.sectors == (Sector.AFFINE,)
    expected = [[-slope * lag for lag in (0, 1, 500)] for slope in slopes(6)]
    np.testing.assert_allclose(np.asarray(bias(kernel, lags)), expected, rtol=1e-14)
    np.testing.assert_allclose(
        np.asarray(mass(kernel, Sector.AFFINE))[:, 0], np.asarray(slopes(6)) * 128
    )
