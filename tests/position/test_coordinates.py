"""Coordinates: against the oracle, their bounds, and the precision of lags."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.coordinates import phase, rapidity, recency, velocity
from pjdiag.terms import Rho
from tests import oracle
from tests.position.backends import BACKENDS, AsArray

lags = st.just(0.0) | st.floats(1e-6, 1e6)
lengths = st.floats(1, 1e5)
backends = st.sampled_from(sorted(BACKENDS))


@given(lags, lengths, backends)
def test_against_the_oracle(lag: float, length: float, backend: str) -> None:
    lag_array = BACKENDS[backend]([lag])
    found = {
        "rapidity": rapidity(lag_array, length),
        "phase": phase(lag_array, length),
        "velocity": velocity(lag_array, length),
    }
    for name, value in found.items():
        # The written-out logarithm of the oracle loses relative precision at small d/L.
        scale = length if name == "phase" else 1.0
        expected = getattr(oracle, name)(lag, length)
        assert float(value[0]) == pytest.approx(expected, rel=1e-12, abs=1e-15 * scale)


@given(lags, lengths, st.sampled_from(list(Rho)))
def test_recency(lag: float, length: float, rho: Rho) -> None:
    expected = oracle.recency(lag, length, rho.value)
    assert float(recency(np.asarray(lag), length, rho)) == pytest.approx(
        expected, rel=1e-14, abs=1e-15
    )


@given(lags, lengths, backends)
def test_velocity_stays_below_one(lag: float, length: float, backend: str) -> None:
    found = float(velocity(BACKENDS[backend]([lag]), length)[0])
    assert 0 <= found < 1
    assert (found == 0) == (lag == 0)


@pytest.mark.parametrize("length", [1, 64, 1024])
def test_phases_rise_with_the_lag(array: AsArray, length: int) -> None:
    grid = array(np.arange(32768.0))
    for coordinate in (rapidity, phase, velocity):
        values = np.asarray(coordinate(grid, length))
        assert (np.diff(values) > 0).all()
    # Light-cone phase: one token a token at first, never faster, and slower later.
    steps = np.diff(np.asarray(phase(grid, length)))
    assert steps.max() <= 1
    assert (np.diff(steps) < 1e-9).all()


@given(st.floats(1e-6, 1e3), st.floats(1, 1e4))
def test_velocity_is_tanh_of_rapidity(share: float, length: float) -> None:
    lag = np.asarray(share * length)
    assert float(velocity(lag, length)) == pytest.approx(float(np.tanh(rapidity(lag, length))))


@pytest.mark.parametrize(
    "dtype", [torch.float32, np.float32], ids=["torch float32", "numpy float32"]
)
@pytest.mark.parametrize("length", [64, 1024])
def test_single_precision_to_32k(dtype: Any, length: int) -> None:
    exact = np.arange(32768.0)
    grid = torch.arange(32768.0) if dtype is torch.float32 else exact.astype(np.float32)
    assert grid.dtype == dtype
    for coordinate in (rapidity, phase, velocity):
        found = coordinate(grid, length)
        assert found.dtype == dtype
        np.testing.assert_allclose(np.asarray(found), coordinate(exact, length), rtol=5e-7)


LOW_PRECISION = [
    torch.arange(8, dtype=torch.bfloat16),
    torch.arange(8, dtype=torch.float16),
    torch.arange(8),
    np.arange(8, dtype=np.float16),
    np.arange(8).astype(ml_dtypes.bfloat16),
    np.arange(8),
]


@pytest.mark.parametrize("grid", LOW_PRECISION, ids=lambda grid: str(grid.dtype))
def test_lags_of_other_dtypes_are_refused(grid: Any) -> None:
    for refuse in (
        lambda: rapidity(grid, 64),
        lambda: phase(grid, 64),
        lambda: velocity(grid, 64),
        lambda: recency(grid, 64, Rho.LINEAR),
    ):
        with pytest.raises(TypeError, match="expected float32 or float64"):
            refuse()


def test_why_low_precision_is_refused() -> None:
    positions = torch.arange(32768)
    assert len(positions.to(torch.bfloat16).unique()) == 1153
    assert len(positions.to(torch.float16).unique()) == 6145
    assert torch.tensor(257).to(torch.bfloat16).item() == 256
    rounded = torch.tensor(0.1, dtype=torch.bfloat16).double().item()
    assert abs(rounded - 0.1) * 32767 == pytest.approx(3.2, abs=0.01)
