"""Nearest-neighbour search among position codes, chunk by chunk over the candidates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

TIE = 1e-6
"""Candidates scoring within this of the lag itself are ties."""
QUANTISED_BITS = {"int8": 8, "int4": 4}


def column_scale(largest: np.ndarray, precision: str) -> np.ndarray | None:
    """Step of a symmetric per-column quantiser, ``max|x| / (2^{b-1} - 1)``; None for floats.

    >>> column_scale(np.asarray([12.7]), "int8").round(6).tolist()
    [0.1]
    """
    bits = QUANTISED_BITS.get(precision)
    return None if bits is None else largest / (2 ** (bits - 1) - 1)


def quantise(codes: np.ndarray, step: np.ndarray | None) -> np.ndarray:
    """Codes rounded to multiples of their column's step; a column of zeros stays zero.

    >>> quantise(np.asarray([[0.26, 0.0]]), np.asarray([0.1, 0.0])).round(6).tolist()
    [[0.3, 0.0]]
    """
    if step is None:
        return codes
    safe = np.where(step > 0, step, 1).astype(codes.dtype)
    rounded: np.ndarray = np.round(codes / safe) * safe
    return rounded


def query_lags(first: int, last: int, count: int) -> np.ndarray:
    """``unique(round(linspace(first, last, count)))``, whole lags.

    >>> query_lags(1, 4, 128).tolist()
    [1, 2, 3, 4]
    """
    return np.unique(np.round(np.linspace(first, last, count)).astype(np.int64))


@dataclass
class Search:
    """The best candidates seen so far for each of Q query lags.

    Candidates come in chunks of consecutive lags, as unnormalised dot products with the
    queries; scores are cosines. A code of zeros scores 0 with everything.
    """

    queries: np.ndarray
    """Query lags, ``[Q]``."""
    query_norm: np.ndarray
    """Norm of each query's code, ``[Q]``."""
    best: np.ndarray = field(init=False)
    best_lag: np.ndarray = field(init=False)
    best_other: np.ndarray = field(init=False)
    own: np.ndarray = field(init=False)
    ties: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        count = self.queries.shape[0]
        self.best = np.full(count, -np.inf)
        self.best_lag = np.zeros(count, dtype=np.int64)
        self.best_other = np.full(count, -np.inf)
        self.own = np.where(self.query_norm > 0, 1.0, 0.0)
        self.ties = np.zeros(count, dtype=np.int64)

    def update(self, products: np.ndarray, candidate_norm: np.ndarray, first_lag: int) -> None:
        """Take in one chunk: dot products ``[Q, n]`` of candidates from ``first_lag`` on."""
        # Cosines times the query's norm: a row's order and winner do not depend on it.
        scores = products * _inverse(candidate_norm)
        to_cosine = _inverse(self.query_norm)
        rows = np.arange(scores.shape[0])
        winner = scores.argmax(axis=1)
        top = scores[rows, winner] * to_cosine
        threshold = self.own - TIE
        for row in np.flatnonzero(top >= threshold):
            self.ties[row] += int((scores[row] * to_cosine[row] >= threshold[row]).sum())
        better = top > self.best
        self.best_lag = np.where(better, winner + first_lag, self.best_lag)
        self.best = np.where(better, top, self.best)
        columns = self.queries - first_lag
        inside = np.flatnonzero((columns >= 0) & (columns < scores.shape[1]))
        self.own[inside] = scores[inside, columns[inside]] * to_cosine[inside]
        scores[inside, columns[inside]] = -np.inf
        top[inside] = scores[inside].max(axis=1) * to_cosine[inside]
        self.best_other = np.maximum(self.best_other, top)

    def figures(self, chosen: np.ndarray) -> dict[str, float | int]:
        """The probe's figures over the queries at positions ``chosen``."""
        distance = np.abs(self.best_lag - self.queries)[chosen]
        margin = (self.own - self.best_other)[chosen]
        return {
            "queries": int(chosen.shape[0]),
            "top1": float((distance == 0).mean()),
            "within_1": float((distance <= 1).mean()),
            "within_8": float((distance <= 8).mean()),
            "within_64": float((distance <= 64).mean()),
            "margin": float(margin.mean()),
            "min_margin": float(margin.min()),
            "ties": float(self.ties[chosen].mean()),
        }


def _inverse(norm: np.ndarray) -> np.ndarray:
    """``1 / norm``, and 0 where the code is zero: it then scores 0 with everything."""
    inverse: np.ndarray = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    return inverse
