"""Rows of measured kernels: heads as they are, layers and the model by percentiles over heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pjdiag.diagnostics.kernel_fits import Figures, Key
from pjdiag.diagnostics.kernel_terms import Control, Side
from pjdiag.diagnostics.scopes import Group, HeadItem, groups
from pjdiag.results import Row
from pjdiag.terms import DIAGNOSTICS, Scope

MEDIAN = "median"
PERCENTILES = {"p10": 10, MEDIAN: 50, "p90": 90}
SHARES_OF_HEADS = ("preferred", "decaying")
"""Figures that are 1 or 0 for a head; an aggregate gives the share of its heads."""
OF_HEADS_ONLY = ("bic",)
"""Figures that mean nothing across heads."""
NAMES = tuple(column.name for column in DIAGNOSTICS["kernel"])

Heads = HeadItem[dict[Key, Figures]]


def kernel_rows(items: Sequence[Heads], side: Side, control: Control | None) -> Iterator[Row]:
    """Rows of one side of one run: the model, each layer, each head.

    The median's row carries the shares of heads. A percentile is taken over the heads that have
    the figure.
    """
    for group in groups(items):
        keys = dict.fromkeys(key for figures in group.values for key in figures)
        for key in keys:
            found = [figures[key] for figures in group.values if key in figures]
            for statistic, figures in _statistics(group.scope, found):
                yield _row(group, side, control, statistic, key, figures)


def _statistics(scope: Scope, found: Sequence[Figures]) -> Iterator[tuple[str | None, Figures]]:
    if scope == Scope.HEAD:
        yield None, found[0]
        return
    for statistic, percent in PERCENTILES.items():
        if statistic == MEDIAN or scope == Scope.MODEL:
            yield (
                statistic,
                {name: _over_heads(name, found, statistic, percent) for name in found[0]},
            )


def _over_heads(
    name: str, found: Sequence[Figures], statistic: str, percent: float
) -> float | None:
    values = [value for figures in found if (value := figures[name]) is not None]
    if not values or name in OF_HEADS_ONLY:
        return None
    if name in SHARES_OF_HEADS:
        return float(np.mean(values)) if statistic == MEDIAN else None
    return float(np.percentile(values, percent))


def _row(
    group: Group[dict[Key, Figures]],
    side: Side,
    control: Control | None,
    statistic: str | None,
    key: Key,
    figures: Figures,
) -> Row:
    shape, sector_group, lag = key
    named = {
        "side": side.value,
        "control": None if control is None else control.value,
        "statistic": statistic,
        "shape": shape,
        "group": sector_group,
        "lag": lag,
    }
    return group.row(**{**dict.fromkeys(NAMES), **named, **figures})
