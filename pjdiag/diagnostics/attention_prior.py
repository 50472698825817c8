"""What a change of the lag kernel does to the attention prior, in O(T)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

STRETCH = 300.0
"""Rise of the running maximum, in nats, after which prefix sums are rescaled."""
SMALL = 0.5
"""Largest change, in logits, for which the KL is summed by its second-order form."""


def prefix_logsumexp(values: np.ndarray) -> np.ndarray:
    """``log sum_{d <= i} e^{values_d}`` for every i: ``[T] -> [T]``, exact to rounding.

    Values are in nats. The prefix sum is rescaled whenever the running maximum has risen by
    ``STRETCH``, so that neither overflow nor underflow touches a term that counts.

    >>> prefix_logsumexp(np.zeros(3)).round(4).tolist()
    [0.0, 0.6931, 1.0986]
    """
    sums, reference = _prefix_scaled_sums(values, np.ones((1, values.shape[0])))
    logs: np.ndarray = np.log(sums[0]) + reference
    return logs


def prior_kl(kernel: np.ndarray, removed: np.ndarray) -> float:
    """Mean over query positions i < T of ``KL(softmax b || softmax(b - C))`` over lags 0..i.

    ``kernel`` is b and ``removed`` is C, both ``[T]`` in logits; the result is in nats.
    ``KL_i = E_i[C] + log E_i[e^{-C}]`` with E_i the mean under softmax of b over lags 0..i.
    Time and memory are O(T).

    >>> prior_kl(np.zeros(4), np.ones(4))
    0.0
    >>> round(prior_kl(np.zeros(2), np.asarray([0.0, 1.0])), 6)
    0.060057
    """
    # Softmax ignores constants: a change centred near its middle loses the fewest digits.
    change = removed - (removed.max() + removed.min()) / 2
    if np.abs(change).max() < SMALL:
        return float(np.maximum(_small_change(kernel, change), 0.0).mean())
    before = prefix_logsumexp(kernel)
    after = prefix_logsumexp(kernel - change)
    return float(np.maximum(_prefix_means(kernel, [change])[0] + after - before, 0.0).mean())


def _small_change(kernel: np.ndarray, change: np.ndarray) -> np.ndarray:
    """KL_i where the first-order terms, which cancel, are never formed.

    With ``f = e^{-C} - 1 + C`` and ``u = E[f] - E[C]``: ``KL = E[f] + log(1 + u) - u``.
    """
    curvature = _expm1_minus_x(-change)
    mean_change, mean_curvature = _prefix_means(kernel, [change, curvature])
    divergence: np.ndarray = mean_curvature + _log1p_minus_x(mean_curvature - mean_change)
    return divergence


def _prefix_means(kernel: np.ndarray, functions: list[np.ndarray]) -> list[np.ndarray]:
    """``E_i[f]`` under softmax of the kernel over lags 0..i, for each function."""
    weights = np.stack([np.ones_like(kernel), *functions])
    sums = _prefix_scaled_sums(kernel, weights)[0]
    return [sums[row] / sums[0] for row in range(1, weights.shape[0])]


def _prefix_scaled_sums(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``sum_{d <= i} w_d e^{v_d - m_i}`` as ``[F, T]`` and the reference ``m_i``, ``[T]``."""
    running = np.maximum.accumulate(values)
    stretch = np.floor((running - running[0]) / STRETCH)
    starts = [0, *(np.flatnonzero(np.diff(stretch)) + 1), values.shape[0]]
    sums = np.empty_like(weights)
    reference = np.empty_like(values)
    carried = np.zeros(weights.shape[0])
    previous = running[0]
    for start, stop in pairwise(starts):
        top = running[stop - 1]
        carried = carried * np.exp(previous - top)
        terms = weights[:, start:stop] * np.exp(values[start:stop] - top)
        sums[:, start:stop] = np.cumsum(terms, axis=1) + carried[:, None]
        reference[start:stop] = top
        carried, previous = sums[:, stop - 1].copy(), top
    return sums, reference


def _expm1_minus_x(x: np.ndarray) -> np.ndarray:
    """``e^x - 1 - x`` for |x| <= 1 by its series, without cancellation."""
    total = np.zeros_like(x)
    for order in range(18, 1, -1):
        total = (total + 1.0) * x / order
    total *= x
    return total


def _log1p_minus_x(x: np.ndarray) -> np.ndarray:
    """``log(1 + x) - x``; by its series where x is small."""
    series = np.zeros_like(x)
    for order in range(12, 1, -1):
        series = (1.0 if order % 2 == 1 else -1.0) / order + x * series
    exact: np.ndarray = np.where(np.abs(x) < 0.01, series * x * x, np.log1p(x) - x)
    return exact
