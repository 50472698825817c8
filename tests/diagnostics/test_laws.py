"""The measurements themselves, on transforms whose errors are known on paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.diagnostics.laws import (
    EXACT,
    LOST,
    group_law,
    growth,
    lag_kernel,
    lag_pairs,
    position_grid,
    relative_score,
)
from pjdiag.diagnostics.standard_transforms import standard_transforms
from pjdiag.position.kernel import PositionKernel
from pjdiag.position.transforms import JordanTransform, PositionTransform, RotaryTransform
from pjdiag.terms import Rho

DTYPES = [np.float32, np.float64]


@dataclass(frozen=True)
class GrowingKeys(PositionTransform):
    """Keys times ``1 + t / length``: no group, and scores that know the key's position."""

    length: float = 100.0

    def key(self, x: Any, positions: Any) -> Any:
        return x * (1 + positions / self.length).astype(x.dtype)[:, None]


@dataclass(frozen=True)
class NarrowPhases(RotaryTransform):
    """RoPE whose positions went through float16, as in a model cast as a whole."""

    def query(self, x: Any, positions: Any) -> Any:
        return super().query(x, positions.astype(np.float16).astype(positions.dtype))


@given(st.integers(1, 2**40))
def test_the_grid_has_both_ends_and_grows(last: int) -> None:
    grid = position_grid(last)
    assert grid[0] == 0
    assert grid[-1] == last
    assert np.all(np.diff(grid) > 0)
    assert len(grid) <= 3 + math.log(last, 1.75)


@given(st.integers(1, 10**6))
def test_every_lag_has_its_reference_and_the_last_query(last: int) -> None:
    queries, keys = lag_pairs(last)
    lags = queries - keys
    assert np.all(np.diff(lags) >= 0)
    for lag in np.unique(lags):
        of_lag = queries[lags == lag]
        assert of_lag[0] == lag
        assert of_lag[-1] == last


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_error_on_paper(dtype: type) -> None:
    """``(1 + a)(1 + b) / (1 + a + b) - 1``, in hundredths, over a + b = 100."""
    wanted = max(
        a * b / (1 + a + b)
        for a, b in ((0.57, 0.43), (0.43, 0.57), (0.33, 0.67), (0.33, 0.57), (0.57, 0.33))
    )
    figure = group_law(GrowingKeys(4), 100, dtype)
    assert figure.error == pytest.approx(wanted, rel=1e-5)
    assert not figure.passed
    assert not figure.lost


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 7])
def test_score_error_on_paper(dtype: type, seed: int) -> None:
    """At lag 0 the key at 100 scores twice the key at 0: the error is the largest cosine."""
    figure = relative_score(GrowingKeys(6), 100, dtype, seed)
    q, k = np.random.default_rng(seed).normal(size=(2, 4, 6))
    cosines = np.sum(q * k, axis=1) / np.linalg.norm(q, axis=1) / np.linalg.norm(k, axis=1)
    assert figure.error == pytest.approx(np.abs(cosines).max(), rel=1e-5)
    assert not figure.passed
    assert not figure.lost


@pytest.mark.parametrize("dtype", DTYPES)
def test_growth_on_paper(dtype: type) -> None:
    assert growth(GrowingKeys(4), 300, dtype, 0) == pytest.approx((1.0, 4.0), rel=1e-6)
    damped = JordanTransform(4, np.ones(1), np.full(1, 1e-3), np.zeros(1), 2)
    wanted = math.exp(-4.0), math.exp(4.0)
    assert growth(damped, 4000, dtype, 0) == pytest.approx(wanted, rel=1e-5)


def test_the_growth_of_the_strongest_head_counts() -> None:
    damping = np.asarray([[1e-4], [1e-3]])
    made = JordanTransform(4, np.ones(1), damping, np.zeros((2, 1)), 2)
    of_queries, of_keys = growth(made, 1000, np.float64, 0)
    assert of_keys == pytest.approx(math.e)
    assert of_queries == pytest.approx(math.exp(-0.1))


EXACT_TRANSFORMS = [
    name
    for name in (entry.name for entry in standard_transforms(1024))
    if not name.endswith(("bounded", "clamped"))
]


@pytest.mark.parametrize("length", [1024, 32768])
@pytest.mark.parametrize("name", EXACT_TRANSFORMS)
def test_exact_transforms_in_float64(name: str, length: int) -> None:
    (entry,) = [entry for entry in standard_transforms(length) if entry.name == name]
    score = relative_score(entry.transform, length - 1, np.float64, 0)
    assert score.passed
    assert score.error < 1e-5
    if entry.transform.linear:
        group = group_law(entry.transform, length - 1, np.float64)
        assert group.tolerance == EXACT
        assert group.error < 1e-11


@pytest.mark.parametrize(
    "name", ["rope_interleaved", "rope_half", "rope_yarn", "pj_rotary", "pope"]
)
def test_float32_at_32k(name: str) -> None:
    """Phases of up to 32,767 rad keep three digits: measurable, and explained."""
    (entry,) = [entry for entry in standard_transforms(32768) if entry.name == name]
    figure = relative_score(entry.transform, 32767, np.float32, 0)
    assert figure.passed
    assert 1e-5 < figure.error < 1e-3
    assert figure.error < figure.tolerance <= LOST


@pytest.mark.parametrize("dtype", DTYPES)
def test_positions_in_float16_are_caught(dtype: type) -> None:
    """2,049 becomes 2,048, which rounding in float32 does not explain."""
    exact = RotaryTransform(8, np.geomspace(1, 1e-3, 4), "half")
    narrow = NarrowPhases(8, exact.inv_freq, "half")
    assert relative_score(exact, 8191, dtype, 0).passed
    caught = relative_score(narrow, 8191, dtype, 0)
    assert not caught.passed
    assert not caught.lost
    assert not group_law(narrow, 8191, dtype).passed
    assert relative_score(narrow, 2047, dtype, 0).passed


def test_digits_lost_to_shear_are_told_from_a_broken_law() -> None:
    by_name = {entry.name: entry.transform for entry in standard_transforms(32768)}
    raw = relative_score(by_name["jordan_m4_raw"], 32767, np.float32, 0)
    assert not raw.passed
    assert raw.lost
    assert raw.tolerance == LOST
    bounded = relative_score(by_name["jordan_m4_bounded"], 32767, np.float64, 0)
    assert not bounded.passed
    assert not bounded.lost


def test_overflow_is_an_error_and_no_rounding() -> None:
    huge = JordanTransform(4, np.ones(1), np.zeros(1), np.full(1, 1e36), 2)
    figure = relative_score(huge, 1023, np.float32, 0)
    assert not figure.passed
    assert not figure.lost
    assert not math.isfinite(figure.error)
    assert not math.isfinite(growth(huge, 1023, np.float32, 0)[0])


def test_a_constant_factor_is_no_part_of_the_group() -> None:
    scaled = RotaryTransform(4, np.asarray([1.0, 0.1]), "half", attention_factor=1.3)
    figure = group_law(scaled, 1023, np.float64)
    assert figure.passed
    assert growth(scaled, 1023, np.float64, 0) == pytest.approx((1.0, 1.0))


def test_pope_is_no_group() -> None:
    (entry,) = [entry for entry in standard_transforms(1024) if entry.name == "pope"]
    with pytest.raises(ValueError, match="not linear"):
        group_law(entry.transform, 1023, np.float64)


def test_a_bias_is_relative_as_long_as_positions_can_be_told_apart() -> None:
    kernel = PositionKernel(
        64.0,
        Rho.LINEAR,
        np.asarray([[0.0, 1.0, 0.0]]),
        np.zeros(1),
        fj=None,
        lc=None,
        damping=None,
        slope=np.ones(1),
    )
    assert lag_kernel(kernel, 32767, np.float32).error == 0
    assert lag_kernel(kernel, 2**26 + 1, np.float64).error == 0
    beyond = lag_kernel(kernel, 2**26 + 1, np.float32)
    assert beyond.error > 0
