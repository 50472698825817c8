"""What each layer is: like layers on one line, and where every value comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.places import mechanism_title
from pjdiag.render.tables import BLANK, Cell, Header, Table
from pjdiag.render.text import spans
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

UNKNOWN_SOURCE = "unknown"


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Runs of like layers, then the source of every value; ``all_rows`` shows layer by layer."""
    del by  # inspection ends at the layer
    by_layer: dict[int, list[Row]] = {}
    for row in result.rows:
        if row.get("layer") is not None and row.get("head") is None:
            by_layer.setdefault(int(row["layer"]), []).append(row)
    return [_layer_table(by_layer, all_rows), _source_table(by_layer)]


def _layer_table(by_layer: Mapping[int, Sequence[Row]], all_rows: bool) -> Table:
    every = [row for rows in by_layer.values() for row in rows]
    fields = [field for field in FIELDS if any(_shown(field, row) is not BLANK for row in every)]
    runs: list[tuple[list[int], list[tuple[Cell, ...]]]] = []
    for layer, rows in sorted(by_layer.items()):
        cells = [
            (Cell(mechanism_title(row.get("mechanism"))), *(_shown(field, row) for field in fields))
            for row in rows
        ]
        if runs and not all_rows and runs[-1][1] == cells and runs[-1][0][-1] == layer - 1:
            runs[-1][0].append(layer)
        else:
            runs.append(([layer], cells))
    headers = (
        Header("layers", key=True, group=True),
        Header("mechanism", key=True),
        *(Header(TITLES.get(field, field), numeric=field in NUMERIC) for field in fields),
    )
    lines = tuple((Cell(spans(layers)), *cells) for layers, parts in runs for cells in parts)
    return Table("Position mechanism by layer", headers, lines)


def _source_table(by_layer: Mapping[int, Sequence[Row]]) -> Table:
    layers_of: dict[tuple[str, str], set[int]] = {}
    for layer, rows in by_layer.items():
        for row in rows:
            for field in FIELDS:
                source = row.get(f"{field}_source")
                known = source not in (None, "", UNKNOWN_SOURCE) or row.get(field) is not None
                if known and f"{field}_source" in row and source:
                    layers_of.setdefault((field, str(source)), set()).add(layer)
    fields_of: dict[tuple[str, str], list[str]] = {}
    for (field, source), layers in layers_of.items():
        where = "all" if layers == set(by_layer) else spans(layers)
        fields_of.setdefault((source, where), []).append(field)
    lines = tuple(
        (Cell(source), Cell(where), Cell(", ".join(fields)))
        for (source, where), fields in fields_of.items()
    )
    headers = (Header("source", key=True), Header("layers", key=True), Header("values"))
    return Table("Where the values come from", headers, lines)


def _shown(field: str, row: Row) -> Cell:
    value = row.get(field)
    if value is not None:
        return Cell(FIELDS[field](value))
    return Cell(numbers.UNKNOWN) if row.get(f"{field}_source") == UNKNOWN_SOURCE else BLANK


def _words(value: Any) -> str:
    return str(value)


def _list(value: Any) -> str:
    """A list of figures: how many, the first and the last.

    >>> _list([1.0, 0.1, 0.01]), _list([0.5])
    ('3: 1 to 0.01', '0.5')
    """
    figures = list(value)
    if len(figures) < 2:
        return ", ".join(numbers.setting(item) for item in figures)
    return f"{len(figures)}: {_short(figures[0])} to {_short(figures[-1])}"


def _short(value: Any) -> str:
    text = numbers.setting(value)
    return text if len(text) <= 7 else numbers.figure(value)


FIELDS: dict[str, Callable[[Any], str]] = {
    "sectors": ", ".join,
    "max_order": numbers.setting,
    "num_heads": numbers.setting,
    "num_kv_heads": numbers.setting,
    "head_dim": numbers.setting,
    "rope_layout": _words,
    "rope_theta": numbers.setting,
    "rope_type": _words,
    "rotary_dim": numbers.setting,
    "inv_freq": _list,
    "attention_factor": numbers.setting,
    "scale": numbers.setting,
    "window": numbers.setting,
    "slopes": _list,
}
TITLES = {
    "max_order": "highest\norder",
    "num_heads": "heads",
    "num_kv_heads": "kv\nheads",
    "head_dim": "head\ndim",
    "rope_layout": "pair\nlayout",
    "rope_theta": "theta",
    "rope_type": "rope\ntype",
    "rotary_dim": "rotary\ndim",
    "inv_freq": "frequencies\n(rad/token)",
    "attention_factor": "cos/sin\nfactor",
    "window": "window\n(tokens)",
}
NUMERIC = frozenset(
    name for name in FIELDS if name not in ("sectors", "rope_layout", "rope_type", "inv_freq")
)
