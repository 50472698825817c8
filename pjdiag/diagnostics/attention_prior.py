"""What a change of the lag kernel does to the attention prior, in O(T)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

BLOCK = 32768
"""Lags worked on at once: their temporaries stay in the cache, so time per lag stays the same."""
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
    return PrefixSums().advance(values, np.ones((1, values.shape[0])))[1]


def prior_kl(kernel: np.ndarray, removed: np.ndarray) -> float:
    """Mean over query positions i < T of ``KL(softmax b || softmax(b - C))`` over lags 0..i.

    ``kernel`` is b and ``removed`` is C, both ``[T]`` in logits; the result is in nats.
    ``KL_i = E_i[C] + log E_i[e^{-C}]`` with E_i the mean under softmax of b over lags 0..i.
    Time is O(T); memory beside the arguments is one array ``[T]`` and a few blocks.

    >>> prior_kl(np.zeros(4), np.ones(4))
    0.0
    >>> round(prior_kl(np.zeros(2), np.asarray([0.0, 1.0])), 6)
    0.060057
    """
    # Softmax ignores constants: a change centred near its middle loses the fewest digits.
    change = removed - (removed.max() + removed.min()) / 2
    divergence = _small_change if np.abs(change).max() < SMALL else _large_change
    before, after = PrefixSums(), PrefixSums()
    total = 0.0
    for start in range(0, kernel.shape[0], BLOCK):
        block = slice(start, start + BLOCK)
        found = divergence(before, after, kernel[block], change[block])
        total += float(np.maximum(found, 0.0).sum())
    return float(total / kernel.shape[0])


class PrefixSums:
    """``sum_{d <= i} w_d e^{v_d}`` for F weights, block after block of lags, without overflow."""

    def __init__(self) -> None:
        self.carried = np.zeros(1)
        """The sums so far over ``e^top``, one for each weight."""
        self.top = -np.inf

    def advance(self, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted means ``[F, T]`` and the log of the first sum ``[T]`` of the next T lags.

        ``values`` is ``[T]`` in nats, ``weights`` ``[F, T]`` with ones in its first row, so that
        a row of means is ``E_i[w]`` under softmax of the values over lags 0..i.
        """
        running = np.maximum.accumulate(np.maximum(values, self.top))
        stretch = np.floor((running - running[0]) / STRETCH)
        starts = [0, *(np.flatnonzero(np.diff(stretch)) + 1), values.shape[0]]
        sums = np.empty_like(weights)
        reference = np.empty_like(values)
        for start, stop in pairwise(starts):
            top = running[stop - 1]
            carried = self.carried * np.exp(self.top - top)
            part = sums[:, start:stop]
            np.multiply(weights[:, start:stop], np.exp(values[start:stop] - top), out=part)
            part[:, 0] += carried
            np.cumsum(part, axis=1, out=part)
            reference[start:stop] = top
            self.carried, self.top = part[:, -1].copy(), top
        return sums / sums[0], np.log(sums[0]) + reference


def _large_change(
    before: PrefixSums, after: PrefixSums, kernel: np.ndarray, change: np.ndarray
) -> np.ndarray:
    """KL_i as it is written."""
    ones = np.ones_like(kernel)
    means, log_before = before.advance(kernel, np.stack([ones, change]))
    log_after = after.advance(kernel - change, ones[None])[1]
    divergence: np.ndarray = means[1] + log_after - log_before
    return divergence


def _small_change(
    before: PrefixSums, _after: PrefixSums, kernel: np.ndarray, change: np.ndarray
) -> np.ndarray:
    """KL_i where the first-order terms, which cancel, are never formed.

    With ``f = e^{-C} - 1 + C`` and ``u = E[f] - E[C]``: ``KL = E[f] + log(1 + u) - u``.
    """
    weights = np.stack([np.ones_like(kernel), change, _expm1_minus_x(-change)])
    _, mean_change, mean_curvature = before.advance(kernel, weights)[0]
    divergence: np.ndarray = mean_curvature + _log1p_minus_x(mean_curvature - mean_change)
    return divergence


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
