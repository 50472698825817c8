"""The rows of a result that a metric speaks of, one figure for each place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pjdiag.gate.metrics import PLACES, Metric, Value, is_text
from pjdiag.gate.policy import EVERY_HEAD, EVERY_LAYER, FRACTION, MODEL
from pjdiag.results import Result, Row

AGGREGATES = {"bucket": (None, "all")}
"""What a key has in a row that speaks of all its values; null where nothing is said here."""
_NAMED = 6


class AmbiguousError(ValueError):
    """Several rows match where one was asked for."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Figure:
    """One figure and its place."""

    layer: int | None
    head: int | None
    mechanism: str | None
    value: float | None
    """None where there is none; ``reason`` then says why."""
    reason: str = ""
    text: str | None = None
    """The words of a column that holds words, which has no value of its own."""


def figures(result: Result, metric: Metric, scope: str | None) -> list[Figure]:
    """The figures of ``metric``: one for each layer or head of the scope, else a single one.

    Keys that are not named choose aggregate rows where there are such. A metric without rows has
    one figure without a value. The scope ``fraction`` gives the heads, or the layers where no
    head has a row. Raises AmbiguousError where a place has several rows.

    >>> rows = [{"layer": layer, "head": None, "sector": "fj", "sector_share": 0.5}
    ...         for layer in (None, 0, 1)]
    >>> result = Result("mass", {}, {}, tuple(rows))
    >>> metric = Metric("mass", "sector_share", {"sector": "fj"})
    >>> [(f.layer, f.value) for f in figures(result, metric, "every layer")]
    [(0, 0.5), (1, 0.5)]
    """
    matching = [row for row in result.rows if _matches(row, metric)]
    if scope == FRACTION:
        chosen = _at(matching, EVERY_HEAD) or _at(matching, EVERY_LAYER)
    else:
        chosen = _at(matching, scope)
    if not chosen:
        layer, head = (metric.named.get(name) for name in PLACES)
        reason = _absence(result, metric)
        return [Figure(_index(layer), _index(head), None, None, reason)]
    if scope in (None, MODEL):
        return [_figure(chosen, metric)]
    by_place: dict[tuple[int, int], list[Row]] = {}
    for row in chosen:
        by_place.setdefault((row["layer"], -1 if row["head"] is None else row["head"]), []).append(
            row
        )
    return [_figure(by_place[place], metric) for place in sorted(by_place)]


def _matches(row: Row, metric: Metric) -> bool:
    return all(row.get(key) == wanted for key, wanted in metric.conditions.items())


def _at(rows: Sequence[Row], scope: str | None) -> list[Row]:
    """Rows of one scope; of all where none is asked for."""
    if scope == MODEL:
        return [row for row in rows if row["layer"] is None and row["head"] is None]
    if scope == EVERY_LAYER:
        return [row for row in rows if row["layer"] is not None and row["head"] is None]
    if scope == EVERY_HEAD:
        return [row for row in rows if row["head"] is not None]
    return list(rows)


def _figure(rows: Sequence[Row], metric: Metric) -> Figure:
    unnamed = [key for key in (*PLACES, *metric.keys) if key not in metric.named]
    for key in unnamed:
        aggregate = [row for row in rows if row.get(key) in AGGREGATES.get(key, (None,))]
        rows = aggregate or rows
    if len(rows) > 1:
        raise _ambiguity(rows, metric, unnamed)
    row = rows[0]
    if is_text(metric) and row.get(metric.column) is not None:
        word = str(row[metric.column])
        return Figure(row["layer"], row["head"], row.get("mechanism"), None, text=word)
    value, reason = _value(row, metric.column)
    return Figure(row["layer"], row["head"], row.get("mechanism"), value, reason)


def _value(row: Row, column: str) -> tuple[float | None, str]:
    found = row.get(column)
    if found is None:
        absent = row.get("sector_gate") == 0 and row.get("effective_mass") is None
        return None, "the sector is absent" if absent else f"there is no {column} here"
    value = float(found)
    return (value, "") if math.isfinite(value) else (None, f"{column} is not finite")


def _ambiguity(rows: Sequence[Row], metric: Metric, unnamed: Iterable[str]) -> AmbiguousError:
    differing = {
        key: values
        for key in (*unnamed, "mechanism")
        if len(values := list(dict.fromkeys(row.get(key) for row in rows))) > 1
    }
    places = [key for key in PLACES if key in differing]
    shown = "; ".join(f"{key} {_some(values)}" for key, values in differing.items())
    message = f"{metric} matches {len(rows)} rows" + (f": {shown}" if shown else "")
    if places:
        return AmbiguousError(message, "give the rule a scope, such as 'every layer'")
    return AmbiguousError(message, _told_apart(rows, metric, list(differing)))


def _told_apart(rows: Sequence[Row], metric: Metric, differing: Sequence[str]) -> str:
    """The metrics that mean one of the rows each, ready to be written; else what to name."""
    for count in range(1, len(differing) + 1):
        for keys in combinations(differing, count):
            values: list[tuple[Any, ...]] = [tuple(row.get(key) for key in keys) for row in rows]
            if len(set(values)) == len(rows) and not any(None in each for each in values):
                named = [str(_naming(metric, keys, each)) for each in values]
                return f"write {_one_of(named)}"
    return f"name {' and '.join(differing or ['another key'])}"


def _naming(metric: Metric, keys: Sequence[str], values: Sequence[Value]) -> Metric:
    for key, value in zip(keys, values, strict=True):
        metric = metric.with_named(key, value)
    return metric


def _one_of(names: Sequence[str]) -> str:
    shown = [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else [])]
    return f"{', '.join(shown[:-1])} or {shown[-1]}"


def _absence(result: Result, metric: Metric) -> str:
    """Why no row matches: the first named key whose value does not occur."""
    rows: Sequence[Row] = result.rows
    if not rows:
        return f"{metric.diagnostic} has no rows for this checkpoint"
    for key, wanted in metric.conditions.items():
        matching = [row for row in rows if row.get(key) == wanted]
        if not matching:
            values = dict.fromkeys(row.get(key) for row in rows if row.get(key) is not None)
            return f"no row has {key} {wanted}; there are {_some(list(values)) or 'none'}"
        rows = matching
    return f"{metric.diagnostic} has no rows of this scope"


def _some(values: Sequence[object]) -> str:
    text = ", ".join("none" if value is None else str(value) for value in values[:_NAMED])
    return f"{text} and {len(values) - _NAMED} more" if len(values) > _NAMED else text


def _index(value: object) -> int | None:
    return value if isinstance(value, int) else None
