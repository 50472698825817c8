"""Functional energy: how large each component is as a function of the lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.heads import LayerKernel, overflow, sound_heads, unwarned_overflow
from pjdiag.diagnostics.lags import check_lengths, lag_chunks
from pjdiag.diagnostics.mass import AFFINE_ORDER, POOLED
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.scopes import Group, HeadItem, groups
from pjdiag.position.kernel import PositionKernel, gated_components, jet_sectors
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Bucket, LagWeights, Sector, lag_buckets

DEGENERATE = 1e-9
"""A denominator below this share of the largest component gives no ratio."""

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

    def add(self, key: Key, value: float) -> None:
        """Add ``value`` to the sum at ``key``."""
        if key == FULL:
            self.full += value
            return
        self.by_key[key] = self.by_key.get(key, 0.0) + value


@unwarned_overflow
def energy(
    reading: Reading,
    lengths: Sequence[int] | None = None,
    lag_weights: LagWeights = LagWeights.UNIFORM,
    *,
    centred: bool = False,
) -> Result:
    """Energy of each sector and order over windows of T lags and over lag buckets.

    For a set S of jet sectors, ``C_r`` the sum of its gated order-r components and
    ``b_S = sum_r C_r``: ``functional_energy = ||C_r|| / ||b_S||``, a ratio that exceeds 1 where
    orders cancel. ``kernel_energy = ||C|| / ||b||``, b the full kernel with affine.
    ``energy_share`` is ``||C||^2`` over the sum of ``||C||^2``: over all sectors and orders for
    one sector's rows, over the orders for ``fj+lc``. Lags are 0..T-1, weighted equally or by
    ``T - d``; ``centred`` takes each row's mean over its lags out first, as softmax does (causal:
    every row; uniform: the last one). Aggregates add the squares of heads and layers and then
    divide. ``lengths`` in tokens, default the train length. Raises UsageError for a length
    below 2.
    """
    train_length = require_train_length(reading)
    measure = Measure(LagWeights(lag_weights), centred)
    windows = check_lengths(lengths if lengths is not None else [train_length])
    sound = sound_heads(reading, spectra=False)
    rows: list[Row] = []
    problems: list[Skipped] = []
    for window in windows:
        for bucket in (Bucket("all", 0, window - 1), *lag_buckets(train_length, window)):
            items, bad = _measure(sound.kernels, bucket, window, measure)
            problems += [entry for entry in bad if entry not in problems]
            where = {
                "window": window,
                "bucket": bucket.name,
                "lag_weights": measure.lag_weights.value,
                "centred": centred,
            }
            rows += [row for group in groups(items) for row in _rows(group, where)]
    return outcome(
        reading,
        "energy",
        rows,
        (*sound.skipped, *problems),
        lengths=list(windows),
        lag_weights=measure.lag_weights.value,
        centred=centred,
    )


def _measure(
    layers: Sequence[LayerKernel], bucket: Bucket, window: int, measure: Measure
) -> tuple[list[HeadItem[Squares]], list[Skipped]]:
    items: list[HeadItem[Squares]] = []
    problems: list[Skipped] = []
    for layer in layers:
        if measure.centred:
            squares = _centred_squares(layer, bucket, window, measure.lag_weights)
        else:
            squares = _plain_squares(layer, bucket, window, measure.lag_weights)
        for head, value in zip(layer.heads, squares, strict=True):
            if np.isfinite([value.full, *value.by_key.values()]).all():
                items.append(HeadItem(layer.layer, head, layer.mechanism, value))
            else:
                problems.append(overflow(layer.layer, head, f"the kernel at {window} tokens"))
    return items, problems


def _plain_squares(
    layer: LayerKernel, bucket: Bucket, window: int, lag_weights: LagWeights
) -> list[Squares]:
    squares = [Squares() for _ in layer.heads]
    for lags in lag_chunks(bucket.first, bucket.last):
        weights = np.ones_like(lags) if lag_weights == LagWeights.UNIFORM else window - lags
        for key, function in _functions(layer.kernel, lags).items():
            for head, value in enumerate((function**2) @ weights):
                squares[head].add(key, float(value))
    return squares


def _centred_squares(
    layer: LayerKernel, bucket: Bucket, window: int, lag_weights: LagWeights
) -> list[Squares]:
    """As ``_plain_squares``, each row's mean over its own lags 0..i taken out first."""
    lags = np.arange(window, dtype=np.float64)
    inside = slice(bucket.first, bucket.last + 1)
    squares = []
    for position in range(len(layer.heads)):
        head = Squares()
        for key, (function,) in _functions(layer.kernel.head(position), lags).items():
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


def _rows(group: Group[Squares], where: Mapping[str, Any]) -> Iterator[Row]:
    total = Squares()
    for head in group.values:
        total.full += head.full
        for key, value in head.by_key.items():
            total.add(key, value)
    components = _component_sum(total, [sector.value for sector in Sector])
    pooled = _component_sum(total, [POOLED])
    largest = max(value for (_, order), value in total.by_key.items() if order is not None)
    for (sector, order), value in sorted(total.by_key.items(), key=_reading_order):
        own = value if order is not None else _component_sum(total, [sector])
        jet_sum = total.by_key[sector, None] if sector != Sector.AFFINE else None
        functional, degenerate = _ratio(value, jet_sum, _largest(total, sector))
        relative, degenerate_full = _ratio(value, total.full, largest)
        yield group.row(
            sector=sector,
            jet_order=order,
            **where,
            functional_energy=functional if order is not None else None,
            kernel_energy=relative,
            energy_share=_share(own, pooled if sector == POOLED else components),
            degenerate=degenerate or degenerate_full,
        )


def _reading_order(entry: tuple[Key, float]) -> tuple[int, int]:
    """fj, affine, lc, then the pooled rows; a sector's sum before its orders."""
    (sector, order), _ = entry
    names = [*(sector.value for sector in Sector), POOLED]
    return names.index(sector), -1 if order is None else order


def _component_sum(squares: Squares, sectors: Sequence[str]) -> float:
    return sum(
        value
        for (sector, order), value in squares.by_key.items()
        if order is not None and sector in sectors
    )


def _largest(squares: Squares, sector: str) -> float:
    return max(
        v for (name, order), v in squares.by_key.items() if name == sector and order is not None
    )


def _ratio(part: float, whole: float | None, largest: float) -> tuple[float | None, bool]:
    """``sqrt(part / whole)``, and whether the denominator is too small to divide by."""
    if whole is None:
        return None, False
    if whole <= DEGENERATE**2 * largest or whole == 0:
        return None, True
    return float(np.sqrt(part / whole)), False


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
