"""T5 buckets: known values, their edges, and the bias over the lag."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.relative_bias import bias_by_lag, bucket_starts, relative_buckets
from tests import oracle
from tests.position.backends import BACKENDS, AsArray


@pytest.mark.parametrize(
    ("relative", "bucket"), [(-8, 8), (-16, 10), (-128, 15), (1, 17), (8, 24), (128, 31)]
)
def test_bidirectional(array: AsArray, relative: int, bucket: int) -> None:
    assert relative_buckets(array([relative]), True).tolist() == [bucket]


@pytest.mark.parametrize(("relative", "bucket"), [(-16, 16), (-127, 31), (1, 0), (500, 0), (0, 0)])
def test_causal(array: AsArray, relative: int, bucket: int) -> None:
    assert relative_buckets(array([relative]), False).tolist() == [bucket]


def test_causal_edges(array: AsArray) -> None:
    starts = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    assert list(bucket_starts(32, 128)) == [*range(16), *starts]
    found = relative_buckets(array([-start for start in starts]), False)
    assert found.tolist() == list(range(16, 32))
    before = relative_buckets(array([1 - start for start in starts]), False)
    assert before.tolist() == list(range(15, 31))


@given(
    st.integers(-40000, 40000),
    st.booleans(),
    st.sampled_from([(32, 128), (32, 256), (64, 128), (16, 1000), (8, 20)]),
    st.sampled_from(sorted(BACKENDS)),
)
def test_against_the_logarithm(
    relative: int, bidirectional: bool, table: tuple[int, int], backend: str
) -> None:
    found = relative_buckets(BACKENDS[backend]([relative]), bidirectional, *table)
    assert found.tolist() == [oracle.t5_bucket(-relative, bidirectional, *table)]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_against_single_precision_logarithms(bidirectional: bool) -> None:
    """Models were trained with the edges of a float32 logarithm; at 32/128 they are exact."""
    relative = torch.arange(-300, 301)
    distance = relative.abs() if bidirectional else (-relative).clamp(min=0)
    side = 16 if bidirectional else 32
    exact = side // 2
    ratio = torch.log(distance.float() / exact) / math.log(128 / exact)
    large = (exact + ratio * (side - exact)).nan_to_num(neginf=0).long().clamp(max=side - 1)
    expected = torch.where(distance < exact, distance, large)
    expected = expected + (relative > 0) * (side if bidirectional else 0)
    assert torch.equal(relative_buckets(relative, bidirectional), expected)


def test_bias_by_lag(array: AsArray) -> None:
    table = np.random.default_rng(0).normal(size=(32, 3))
    lags = [0, 1, 15, 16, 19, 127, 32767]
    for bidirectional in (True, False):
        found = np.asarray(bias_by_lag(array(table), array(lags), bidirectional))
        expected = table[[oracle.t5_bucket(lag, bidirectional) for lag in lags]].T
        np.testing.assert_array_equal(found, expected)
    future = np.asarray(bias_by_lag(array(table), array([-1.0, -8.0]), True))
    np.testing.assert_array_equal(future, table[[17, 24]].T)


def test_bias_carries_gradients_to_the_table() -> None:
    table = torch.zeros(32, 2, requires_grad=True)
    bias_by_lag(table, torch.tensor([0, 0, 5]), False).sum().backward()
    assert table.grad is not None
    assert table.grad[:6, 0].tolist() == [2, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(("buckets", "distance"), [(1, 128), (32, 16), (0, 4)])
def test_impossible_tables_are_refused(buckets: int, distance: int) -> None:
    with pytest.raises(ValueError, match=f"{buckets} buckets up to distance {distance}"):
        bucket_starts(buckets, distance)
