"""The lag effect against dense least squares with a dummy for every row and every lag."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjdiag.position.lag_regression import (
    LagSums,
    lag_effect,
    lag_share,
    lag_sums,
    pair_counts,
    row_counts,
)
from tests.position.backends import torch_array

TIGHT = 1e-8


def logits(q, k, scale=1.0, bias=None):
    """``[H, T, T]`` with every key head repeated for its group."""
    group = q.shape[0] // k.shape[0]
    s = scale * np.einsum("hid,hjd->hij", q, np.repeat(k, group, axis=0))
    if bias is not None:
        length = q.shape[1]
        lags = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
        s = s + bias[:, lags]
    return s


def dense(tables, window=None):
    """Kernel, and share of K in the variance of ``s - a``, of square tables ``[T, T]``.

    One table or several that share a kernel. Nothing but a design matrix with explicit dummies.
    """
    lines, values, pairs, row = [], [], [], 0
    most = max(len(table) for table in tables)
    size = most if window is None else min(most, window)
    for table in tables:
        for i in range(len(table)):
            for j in range(max(0, i - size + 1), i + 1):
                lines.append((row, i - j))
                values.append(table[i, j])
                pairs.append(i - j)
            row += 1
    design = np.zeros((len(lines), row + size))
    for n, (r, d) in enumerate(lines):
        design[n, r] = design[n, row + d] = 1
    found = np.linalg.lstsq(design, np.asarray(values), rcond=None)[0]
    kernel = found[row:] - found[row]
    effects = design[:, :row] @ found[:row]
    return kernel, np.var(kernel[pairs]) / np.var(np.asarray(values) - effects)


def random_heads(rng, heads, kv_heads, length, channels=5):
    q = rng.normal(size=(heads, length, channels)) + rng.normal(size=(heads, 1, channels))
    k = rng.normal(size=(kv_heads, length, channels)) + rng.normal(size=(kv_heads, 1, channels))
    return q, k


def close(found, expected):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=TIGHT * scale)


@pytest.mark.parametrize("window", [None, 1, 2, 7, 23, 24, 99])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_dense_least_squares(array, window, biased, kv_heads):
    rng = np.random.default_rng([kv_heads, biased])
    q, k = random_heads(rng, 4, kv_heads, 24)
    bias = -np.outer([0.5, 0.1, 0.0, 2.0], np.arange(24.0)) if biased else None
    sums = lag_sums(
        array(q),
        array(k),
        0.37,
        window=window,
        bias_by_lag=None if bias is None else array(bias),
    )
    effect = lag_effect(sums)
    shares = np.asarray(lag_share(sums, effect.kernel))
    assert np.asarray(effect.residual).max() < 1e-10
    for head, table in enumerate(logits(q, k, 0.37, bias)):
        kernel, share = dense([table], window)
        if window == 1:  # one lag: no kernel, and no variance within rows
            assert effect.kernel.tolist() == [[0.0]] * 4
            continue
        close(effect.kernel[head], kernel)
        assert shares[head] == pytest.approx(share, rel=1e-8)


@pytest.mark.parametrize("window", [None, 6])
def test_windows_of_different_lengths_are_one_regression(window):
    rng = np.random.default_rng(3)
    heads = [random_heads(rng, 2, 1, length) for length in (9, 20, 14)]
    first, second, third = (lag_sums(q, k, window=window) for q, k in heads)
    sums = first + second + third
    effect = lag_effect(sums)
    for head in range(2):
        kernel, share = dense([logits(q, k)[head] for q, k in heads], window)
        close(effect.kernel[head], kernel)
        assert lag_share(sums, effect.kernel)[head] == pytest.approx(share, rel=1e-8)


def test_equal_windows_average():
    rng = np.random.default_rng(4)
    both = [lag_sums(*random_heads(rng, 3, 3, 40)) for _ in range(2)]
    pooled = lag_effect(both[0] + both[1]).kernel
    close(pooled, np.mean([lag_effect(sums).kernel for sums in both], axis=0))


@pytest.mark.parametrize(
    ("length", "window"),
    [(64, None), (1024, None), (8192, None), (2048, 16), (2048, 512), (2048, 2047)],
)
def test_ten_steps_are_enough(length, window):
    rng = np.random.default_rng(length)
    walk = np.cumsum(rng.normal(size=(3, length, 4)), axis=1) / 10  # far from white
    sums = lag_sums(walk, np.roll(walk, 3, axis=1), window=window)
    assert lag_effect(sums, tolerance=1e-10).steps <= 10
    effect = lag_effect(sums, tolerance=1e-14)
    assert effect.residual.max() <= 1e-14
    assert effect.steps <= 13


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(2, 40),
    window=st.none() | st.integers(1, 45),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_planted_kernel_comes_back_whatever_the_rows_add(length, window, seed):
    """Content that is the same for all keys is a row effect: only the bias is left."""
    rng = np.random.default_rng(seed)
    bias = rng.normal(size=(2, length)) * 10.0 ** rng.integers(-3, 4)
    q = rng.normal(size=(2, length, 3))
    k = np.broadcast_to(rng.normal(size=(2, 1, 3)), (2, length, 3))
    sums = lag_sums(q, k, window=window, bias_by_lag=bias)
    effect = lag_effect(sums)
    size = effect.kernel.shape[1]
    expected = bias[:, :size] - bias[:, :1]
    np.testing.assert_allclose(
        effect.kernel, expected, rtol=0, atol=1e-9 * max(np.abs(bias).max(), 1e-300)
    )
    if size > 1:
        np.testing.assert_allclose(lag_share(sums, effect.kernel), 1.0, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 30), min_size=1, max_size=4),
    window=st.none() | st.integers(2, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_solution_solves_the_equations(lengths, window, seed):
    rng = np.random.default_rng(seed)
    sums = None
    for length in lengths:
        one = lag_sums(*random_heads(rng, 2, 1, length), window=window)
        sums = one if sums is None else sums + one
    effect = lag_effect(sums)
    size = len(sums.rows)
    means = np.cumsum(effect.kernel, axis=1) / np.arange(1, size + 1)
    left = pair_counts(sums.rows) * effect.kernel
    for n in range(size):
        left[:, : n + 1] -= sums.rows[n] * means[:, n : n + 1]
    scale = np.abs(sums.excess).max()
    np.testing.assert_allclose(left, sums.excess, rtol=0, atol=1e-9 * scale)


def test_a_plain_mean_by_lag_would_be_wrong():
    """Row effects that grow along the window leak into the mean logit by lag."""
    length = 200
    q = np.arange(float(length))[None, :, None]
    k = np.ones((1, length, 1))
    lags = np.arange(length)
    plain = np.asarray([np.trace(q[0] @ k[0].T, -d) / (length - d) for d in lags])
    assert plain[-1] - plain[0] > 90
    np.testing.assert_allclose(lag_effect(lag_sums(q, k)).kernel, 0, atol=1e-9)


def test_a_shift_of_all_keys_changes_nothing():
    rng = np.random.default_rng(5)
    q, k = random_heads(rng, 2, 2, 60)
    plain, shifted = (lag_sums(q, keys) for keys in (k, k + 1000.0))
    close(lag_effect(shifted).kernel, lag_effect(plain).kernel)
    np.testing.assert_allclose(shifted.squares, plain.squares, rtol=1e-8)


def test_low_precision_is_computed_in_float64():
    import torch

    rng = np.random.default_rng(6)
    q, k = (torch_array(x).to(torch.bfloat16) for x in random_heads(rng, 2, 1, 50))
    found = lag_effect(lag_sums(q, k))
    assert found.kernel.dtype == torch.float64
    close(found.kernel, lag_effect(lag_sums(q.double().numpy(), k.double().numpy())).kernel)


def test_counts():
    assert row_counts(5, None, np.zeros(1)).tolist() == [1, 1, 1, 1, 1]
    assert row_counts(5, 9, np.zeros(1)).tolist() == [1, 1, 1, 1, 1]
    assert pair_counts(row_counts(7, 3, np.zeros(1))).tolist() == [7, 6, 5]


def test_nothing_to_explain_is_nan():
    sums = lag_sums(np.zeros((1, 8, 2)), np.zeros((1, 8, 2)))
    effect = lag_effect(sums)
    assert effect.steps == 0
    assert effect.kernel.tolist() == [[0.0] * 8]
    assert np.isnan(lag_share(sums, effect.kernel)).all()


@pytest.mark.parametrize(
    ("q", "k", "more", "message"),
    [
        ((4, 8, 2), (3, 8, 2), {}, "a divisor of 4"),
        ((4, 8, 2), (4, 9, 2), {}, r"expected \[H_kv, 8, 2\]"),
        ((4, 8, 2), (4, 8, 3), {}, r"expected \[H_kv, 8, 2\]"),
        ((1, 1, 2), (1, 1, 2), {}, "holds 1 tokens"),
        ((1, 8, 2), (1, 8, 2), {"window": 0}, "sliding window is 0"),
        ((2, 8, 2), (1, 8, 2), {"bias_by_lag": np.zeros((2, 7))}, r"expected \[2, 8\]"),
        ((2, 8, 2), (1, 8, 2), {"bias_by_lag": np.zeros((1, 8))}, r"expected \[2, 8\]"),
    ],
)
def test_shapes_that_do_not_fit(q, k, more, message):
    with pytest.raises(ValueError, match=message):
        lag_sums(np.zeros(q), np.zeros(k), **more)


def test_sums_are_values():
    sums = LagSums(np.ones((1, 2)), np.ones(2), np.ones(1))
    longer = LagSums(np.ones((1, 3)), np.ones(3), np.ones(1))
    assert (sums + longer).excess.tolist() == [[2.0, 2.0, 1.0]]
    assert (longer + sums).rows.tolist() == [2.0, 2.0, 1.0]
