"""Ranks of values, and what they say: shares, intervals, and whether anything is retrieved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, lgamma, log, log1p
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.in_model_contexts import RetrievalTask
from pjdiag.diagnostics.scopes import model_row
from pjdiag.results import Row

CONFIDENCE = 0.95

Outcomes = list[list[float] | None]
"""Rank, top-1 and top-1 asked for another key; None where a log-probability is not finite."""


def ranked(log_probabilities: NDArray[np.float64]) -> Outcomes:
    """Rank of the first of each row ``[B, C]``, from 1 on, and whether it is the highest.

    Of m equal ones each has the mean of their ranks and a share 1/m of the first place.

    >>> ranked(np.asarray([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 2.0]]))
    [[1.0, 1.0], [1.5, 0.5], [3.0, 0.0]]
    """
    finite = np.all(np.isfinite(log_probabilities), axis=1)
    right, others = log_probabilities[:, :1], log_probabilities[:, 1:]
    better, equal = (others > right).sum(axis=1), (others == right).sum(axis=1)
    first = np.where(better == 0, 1 / (1 + equal), 0.0)
    both = np.stack([1 + better + equal / 2, first], axis=1).tolist()
    return [pair if sound else None for pair, sound in zip(both, list(finite), strict=True)]


def wilson(share: float, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval of a share that was found in ``trials``.

    >>> [round(end, 4) for end in wilson(0.5, 10)]
    [0.2366, 0.7634]
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * ((share * (1 - share) + spread / 4) / trials) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def rows_of(
    task: RetrievalTask, found: Mapping[tuple[int, float], NDArray[np.float64]]
) -> Iterator[Row]:
    """Rows of every length: each depth, then all depths together.

    ``found``: length and depth -> ``[trials, 3]``, as in ``Outcomes``.
    """
    lengths = sorted({length for length, _ in found})
    cells = {
        (length, depth): outcomes
        for length in lengths
        for depth, outcomes in _with_all(
            {depth: each for (own, depth), each in found.items() if own == length}
        )
    }
    for (length, depth), outcomes in cells.items():
        rank, top1, other = outcomes.mean(axis=0).tolist()
        low, high = wilson(top1, len(outcomes))
        level = (1 - CONFIDENCE) / len(cells)
        yield model_row(
            variant=None,
            family=None,
            precision=None,
            eval_length=length,
            bucket=None,
            depth=depth,
            top1=top1,
            chance=task.chance,
            trials=len(outcomes),
            ci_low=low,
            ci_high=high,
            mean_rank=rank,
            other_key_top1=other,
            retrieved=_is_retrieved(outcomes, task.chance, level),
        )


def _is_retrieved(outcomes: NDArray[np.float64], chance: float, level: float) -> bool:
    """Whether the right value is first more often than by chance, and because of the key."""
    top1, other = outcomes[:, 1], outcomes[:, 2]
    better, worse = int((top1 > other).sum()), int((top1 < other).sum())
    by_chance = tail(int(top1.sum()), len(outcomes), chance)
    return max(by_chance, tail(better, better + worse, 0.5)) <= level


def tail(successes: int, trials: int, chance: float) -> float:
    """Probability of at least so many successes, ``0 < chance < 1``.

    >>> round(tail(3, 3, 0.5), 12), tail(0, 5, 0.25)
    (0.125, 1.0)
    """
    if successes <= 0:
        return 1.0
    hit, miss = log(chance), log1p(-chance)
    logs = (
        lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) + k * hit + (trials - k) * miss
        for k in range(successes, trials + 1)
    )
    return min(1.0, sum(exp(each) for each in logs))


def _with_all(
    by_depth: Mapping[float, NDArray[np.float64]],
) -> Iterator[tuple[float | None, NDArray[np.float64]]]:
    yield from by_depth.items()
    if len(by_depth) > 1:
        yield None, np.concatenate(list(by_depth.values()))
