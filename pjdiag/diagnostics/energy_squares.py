"""Weighted sums of squares of a kernel's components over a bucket of lags."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pjdiag.diagnostics.lags import lag_chunks
from pjdiag.diagnostics.mass import AFFINE_ORDER, POOLED
from pjdiag.diagnostics.table_fit import TableFit
from pjdiag.position.kernel import PositionKernel, gated_components, jet_sectors
from pjdiag.terms import Bucket, LagWeights, Sector

Key = tuple[str, int | None]
FULL: Key = ("full", None)


@dataclass(frozen=True)
class Measure:
    """How a component is weighed."""

    lag_weights: LagWeights
    centred: bool
    """Whether each row's mean is taken out first: softmax ignores constants."""


@dataclass
class Squares:
    """Weighted sums of squares over a window, in logits squared.

    Keys are (sector, r) for components, (sector, None) for a sector's sum over orders, the
    pooled ``fj+lc`` likewise; ``full`` is the whole kernel.
    """

    by_key: dict[Key, float] = field(default_factory=dict)
    full: float = 0.0
    fitted: tuple[float, float] | None = None
    """Of a tabulated bias: what the fit explains of its weighted variance, and all of that."""

    def add(self, key: Key, value: float) -> None:
        """Add ``value`` to the sum at ``key``."""
        if key == FULL:
            self.full += value
            return
        self.by_key[key] = self.by_key.get(key, 0.0) + value


def kernel_squares(
    kernel: PositionKernel, bucket: Bucket, window: int, measure: Measure
) -> list[Squares]:
    """The squares of each head's components and sums, over the lags of ``bucket``."""
    if measure.centred:
        return _centred_squares(kernel, bucket, window, measure.lag_weights)
    squares = [Squares() for _ in range(kernel.num_heads)]
    for lags in lag_chunks(bucket.first, bucket.last):
        weights = weights_of(lags, window, measure.lag_weights)
        for key, function in _functions(kernel, lags).items():
            for head, value in enumerate((function**2) @ weights):
                squares[head].add(key, float(value))
    return squares


def table_squares(fit: TableFit, bucket: Bucket, window: int, measure: Measure) -> list[Squares]:
    """As ``kernel_squares``, of the components fitted to a tabulated bias."""
    jets = fit.components[Sector.FJ] + fit.components[Sector.LC]
    functions: dict[Key, np.ndarray] = {
        (Sector.FJ.value, 0): fit.components[Sector.FJ],
        (Sector.AFFINE.value, AFFINE_ORDER): fit.components[Sector.AFFINE],
        (Sector.LC.value, 0): fit.components[Sector.LC],
        (POOLED, 0): jets,
    }
    functions |= {(sector, None): function for (sector, _), function in functions.items()}
    functions[FULL] = fit.bias
    inside = slice(bucket.first, bucket.last + 1)
    lags = np.arange(bucket.first, bucket.last + 1, dtype=np.float64)
    weights = weights_of(lags, window, measure.lag_weights)
    squares = [Squares(fitted=fit.variances(head)) for head in range(fit.bias.shape[0])]
    for key, function in functions.items():
        for values, head in zip(function, squares, strict=True):
            if measure.centred:
                head.add(key, row_centred_square(values, inside, measure.lag_weights))
            else:
                head.add(key, float(values[inside] ** 2 @ weights))
    return squares


def weights_of(lags: np.ndarray, window: int, lag_weights: LagWeights) -> np.ndarray:
    """Weight of each lag in a window of T: 1, or how often it occurs, ``T - d``."""
    return np.ones_like(lags) if lag_weights == LagWeights.UNIFORM else window - lags


def _centred_squares(
    kernel: PositionKernel, bucket: Bucket, window: int, lag_weights: LagWeights
) -> list[Squares]:
    """As ``kernel_squares``, each row's mean over its own lags 0..i taken out first."""
    lags = np.arange(window, dtype=np.float64)
    inside = slice(bucket.first, bucket.last + 1)
    squares = []
    for position in range(kernel.num_heads):
        head = Squares()
        for key, (function,) in _functions(kernel.head(position), lags).items():
            head.add(key, row_centred_square(function, inside, lag_weights))
        squares.append(head)
    return squares


def row_centred_square(function: np.ndarray, inside: slice, lag_weights: LagWeights) -> float:
    """``sum (C_d - mean_i C)^2`` over the lags ``inside``, what softmax can see of C ``[T]``.

    Row i has the lags 0..i and their mean. Causal: over all rows i < T; uniform: over the last
    row only. O(T).

    >>> row_centred_square(np.full(5, 3.0), slice(0, 5), LagWeights.CAUSAL)
    0.0
    """
    shifted = function - function.mean()
    if lag_weights == LagWeights.UNIFORM:
        return float((shifted[inside] ** 2).sum())
    length = function.shape[0]
    means = np.cumsum(shifted) / np.arange(1, length + 1)
    later = np.cumsum(means[::-1])[::-1][inside]
    later_square = np.cumsum((means**2)[::-1])[::-1][inside]
    rows = np.arange(length, 0, -1)[inside]
    part = shifted[inside]
    return max(float((rows * part**2 - 2 * part * later + later_square).sum()), 0.0)


def _functions(kernel: PositionKernel, lags: np.ndarray) -> dict[Key, np.ndarray]:
    """Every function that is measured, ``[H, T]``: components, sector sums, the full kernel."""
    parts = {sector: gated_components(kernel, sector, lags) for sector in kernel.sectors}
    functions: dict[Key, np.ndarray] = {}
    for sector, part in parts.items():
        functions[sector.value, None] = part.sum(axis=1)
        for position in range(part.shape[1]):
            order = AFFINE_ORDER if sector == Sector.AFFINE else position
            functions[sector.value, order] = part[:, position]
    jets = [parts[sector] for sector in jet_sectors(kernel)]
    if jets:
        pooled = np.sum(jets, axis=0)
        functions[POOLED, None] = pooled.sum(axis=1)
        functions.update({(POOLED, order): pooled[:, order] for order in range(pooled.shape[1])})
    functions[FULL] = np.sum([part.sum(axis=1) for part in parts.values()], axis=0)
    return functions
