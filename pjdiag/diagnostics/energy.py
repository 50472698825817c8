"""Functional energy: how large each component is as a function of the lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.arguments import require_choice
from pjdiag.diagnostics.energy_squares import (
    Key,
    Measure,
    Squares,
    kernel_squares,
    table_squares,
    weights_of,
)
from pjdiag.diagnostics.heads import (
    LayerKernel,
    LayerTable,
    layers_in_words,
    overflow,
    sound_heads,
    unwarned_overflow,
)
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.mass import POOLED
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.rotary_only import rotary_only
from pjdiag.diagnostics.scopes import Group, HeadItem, groups
from pjdiag.diagnostics.table_fit import (
    BIDIRECTIONAL,
    DICTIONARY,
    TableFit,
    fit_table,
    same_tables,
    table_by_lag,
    unfit,
)
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Bucket, LagWeights, Sector, lag_buckets

DEGENERATE = 1e-9
"""A denominator below this share of the largest component gives no ratio."""


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
    divide. ``lengths`` in tokens, default the train length. A tabulated bias (T5) has no
    parameters: its components are those of a least-squares fit over the window, ``fitted`` is
    true and ``r2`` says how much of it the fit explains (``table_fit.fit_table``). Raises
    UsageError for a length below 2.
    """
    train_length = require_train_length(reading)
    require_choice(lag_weights, LagWeights, "lag_weights")
    measure = Measure(LagWeights(lag_weights), centred)
    windows = check_lengths(lengths if lengths is not None else [train_length])
    sound = sound_heads(reading, spectra=False)
    rows: list[Row] = []
    problems = rotary_only(reading)
    for window in windows:
        fits, bad = _fits(sound.tables, window, measure.lag_weights, train_length)
        problems += [entry for entry in bad if entry not in problems]
        for bucket in (Bucket("all", 0, window - 1), *lag_buckets(train_length, window)):
            items, bad = _measure(sound.kernels, bucket, window, measure)
            problems += [entry for entry in bad if entry not in problems]
            tabulated = [
                HeadItem(layer.layer, head, layer.mechanism, squares)
                for layer, fit in fits
                for head, squares in zip(
                    layer.heads, table_squares(fit, bucket, window, measure), strict=True
                )
            ]
            where = {
                "window": window,
                "bucket": bucket.name,
                "lag_weights": measure.lag_weights.value,
                "centred": centred,
            }
            for found in (items, sorted(tabulated, key=lambda item: item.layer)):
                rows += [row for group in groups(found) for row in _rows(group, where)]
    return outcome(
        reading,
        "energy",
        rows,
        (*sound.skipped, *problems),
        _warnings(sound.tables),
        lengths=list(windows),
        lag_weights=measure.lag_weights.value,
        centred=centred,
        **({"table_fit": DICTIONARY} if sound.tables else {}),
    )


def _warnings(tables: Sequence[LayerTable]) -> list[str]:
    two_sided = [layer.layer for layer in tables if not layer.causal]
    return [f"{layers_in_words(two_sided)}: {BIDIRECTIONAL}"] if two_sided else []


def _fits(
    tables: Sequence[LayerTable], window: int, lag_weights: LagWeights, train_length: int
) -> tuple[list[tuple[LayerTable, TableFit]], list[Skipped]]:
    """A fit for each layer with a table; layers that share a table share the fit."""
    reason = unfit(window)
    if reason:
        return [], [Skipped(layer.layer, reason) for layer in tables]
    weights = weights_of(np.arange(window, dtype=np.float64), window, lag_weights)
    made = []
    for layers in same_tables(tables):
        fit = fit_table(table_by_lag(layers[0], window), weights, train_length)
        made += [(layer, fit) for layer in layers]
    return made, []


def _measure(
    layers: Sequence[LayerKernel], bucket: Bucket, window: int, measure: Measure
) -> tuple[list[HeadItem[Squares]], list[Skipped]]:
    items: list[HeadItem[Squares]] = []
    problems: list[Skipped] = []
    for layer in layers:
        squares = kernel_squares(layer.kernel, bucket, window, measure)
        for head, value in zip(layer.heads, squares, strict=True):
            if np.isfinite([value.full, *value.by_key.values()]).all():
                items.append(HeadItem(layer.layer, head, layer.mechanism, value))
            else:
                problems.append(overflow(layer.layer, head, f"the kernel at {window} tokens"))
    return items, problems


def _rows(group: Group[Squares], where: Mapping[str, Any]) -> Iterator[Row]:
    total = Squares()
    for head in group.values:
        total.full += head.full
        for key, value in head.by_key.items():
            total.add(key, value)
    explained, variance = np.sum([head.fitted or (0.0, 0.0) for head in group.values], axis=0)
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
            fitted=group.values[0].fitted is not None,
            r2=_share(float(explained), float(variance)),
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
