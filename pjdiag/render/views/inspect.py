"""What each layer is: like layers on one line, and where every value comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.places import mechanism_title
from pjdiag.render.tables import BLANK, Cell, Header, Table
from pjdiag.render.text import some_spans, spans
from pjdiag.results import Result, Row
from pjdiag.terms import Mechanism, Scope

UNKNOWN_SOURCE = "unknown"
"""What a source starts with where the value could not be told."""


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Layers that are alike, then the source of every value that is shown.

    ``all_rows`` shows layer by layer, and every value's source.
    """
    del by  # inspection ends at the layer
    by_layer = layer_rows(result)
    every = [row for rows in by_layer.values() for row in rows]
    telling = [field for field in FIELDS if any(not _says_nothing(field, row) for row in every)]
    unknown = [field for field in telling if all(is_unknown(field, row) for row in every)]
    fields = [field for field in telling if field not in unknown]
    layers = _layer_table(by_layer, fields, all_rows)
    if unknown:
        names = ", ".join(TITLES.get(field, field).replace("\n", " ") for field in unknown)
        layers = replace(layers, note=f"unknown in every layer: {names}")
    sources = _source_table(by_layer, FIELDS if all_rows else telling, all_rows)
    length = str(result.checkpoint.get("train_length_source") or UNKNOWN_SOURCE)
    if sources.lines and length != UNKNOWN_SOURCE:
        line = (Cell("train_length"), Cell("all"), Cell(length))
        sources = replace(sources, lines=(*sources.lines, line))
    return [layers, sources]


def layer_rows(result: Result) -> dict[int, list[Row]]:
    """The rows of each layer: one for each mechanism in it."""
    by_layer: dict[int, list[Row]] = {}
    for row in result.rows:
        if row.get("layer") is not None and row.get("head") is None:
            by_layer.setdefault(int(row["layer"]), []).append(row)
    return dict(sorted(by_layer.items()))


def is_unknown(field: str, row: Row) -> bool:
    """True where the reader could not tell the value; a value that does not apply is not that."""
    return row.get(field) is None and _source(field, row).startswith(UNKNOWN_SOURCE)


def _layer_table(
    by_layer: Mapping[int, Sequence[Row]], fields: Sequence[str], all_rows: bool
) -> Table:
    alike: dict[tuple[tuple[tuple[Cell, ...], ...], int | None], list[int]] = {}
    for layer, rows in by_layer.items():
        cells = tuple(
            (Cell(mechanism_title(row.get("mechanism"))), *(_shown(field, row) for field in fields))
            for row in rows
        )
        alike.setdefault((cells, layer if all_rows else None), []).append(layer)
    headers = (
        Header("layers", key=True, group=True),
        Header("mechanism", key=True),
        *(Header(TITLES.get(field, field), numeric=field in NUMERIC) for field in fields),
    )
    lines = tuple(
        (Cell(_named(layers)), *cells) for (parts, _), layers in alike.items() for cells in parts
    )
    return Table("Position mechanism by layer", headers, lines)


def _source_table(
    by_layer: Mapping[int, Sequence[Row]], fields: Iterable[str], all_rows: bool
) -> Table:
    layers_of: dict[tuple[str, str], set[int]] = {}
    for field in fields:
        for layer, rows in by_layer.items():
            for row in rows:
                if _source(field, row) not in ("", UNKNOWN_SOURCE):
                    layers_of.setdefault((field, _source(field, row)), set()).add(layer)
    fields_of: dict[tuple[str, str], list[str]] = {}
    for (field, source), layers in layers_of.items():
        listed = spans(layers) if all_rows else _named(layers)
        where = "all" if layers == set(by_layer) else listed
        fields_of.setdefault((source, where), []).append(field)
    lines = tuple(
        (Cell(", ".join(names)), Cell(where), Cell(source))
        for (source, where), names in fields_of.items()
    )
    headers = (Header("value", key=True), Header("layers", key=True), Header("comes from"))
    return Table("Where the values come from", headers, lines)


def _named(layers: Collection[int]) -> str:
    """The layers, and how many where not all are named."""
    text = some_spans(layers)
    return text if text == spans(layers) else f"{text} ({len(layers)})"


def _source(field: str, row: Row) -> str:
    """Where a value comes from; the layer's own number in a tensor's name is no difference."""
    source = str(row.get(f"{field}_source") or "")
    return source.replace(f".{row.get('layer')}.", ".N.")


def _shown(field: str, row: Row) -> Cell:
    value = row.get(field)
    if value is not None:
        return Cell(FIELDS[field](value))
    return Cell(numbers.UNKNOWN) if is_unknown(field, row) else BLANK


def _says_nothing(field: str, row: Row) -> bool:
    """True where the value is what a reader takes for granted."""
    value = row.get(field)
    if value is None:
        return not is_unknown(field, row)
    if field == "sectors":  # of the others the mechanism says it
        return bool(row.get("mechanism") != Mechanism.PJ_BIAS.value)
    if field == "rotary_dim":
        return bool(value == row.get("head_dim"))
    return field in GRANTED and bool(value == GRANTED[field])


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


def _wavelengths(value: Any) -> str:
    """Rotary frequencies as tokens of a turn: how many, from the fastest to the slowest.

    >>> _wavelengths([1.0, 0.1, 1e-5]), _wavelengths([1.0, 0.0]), _wavelengths([])
    ('3: 6.28 to 6.3e5', '2: 6.28, 1 still', 'none')
    """
    turning = sorted(abs(w) for w in value if w)
    still = len(value) - len(turning)
    ends = [numbers.tokens(2 * math.pi / w) for w in (*turning[-1:], *turning[:1])]
    parts = [" to ".join(dict.fromkeys(ends)), f"{still} still" if still else ""]
    text = ", ".join(part for part in parts if part)
    return f"{len(value)}: {text}" if text else "none"


def _short(value: Any) -> str:
    text = numbers.setting(value)
    return text if len(text) <= 7 else numbers.figure(value)


def _yes(value: Any) -> str:
    return "yes" if value else "no"


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
    "inv_freq": _wavelengths,
    "attention_factor": numbers.setting,
    "scale": numbers.setting,
    "causal": _yes,
    "window": numbers.setting,
    "slopes": _list,
    "softcap": numbers.setting,
    "qk_norm": _words,
    "sinks": _yes,
    "shared_kv_layer": numbers.setting,
    "num_buckets": numbers.setting,
    "max_distance": numbers.setting,
    "max_positions": numbers.setting,
}
GRANTED = {
    "max_order": 0,
    "attention_factor": 1.0,
    "rope_type": "default",
    "causal": True,
    "sinks": False,
}
"""Values that need no column as long as all layers have them."""
TITLES = {
    "max_order": "highest\norder",
    "num_heads": "heads",
    "num_kv_heads": "kv\nheads",
    "head_dim": "head\ndim",
    "rope_layout": "pair\nlayout",
    "rope_theta": "theta",
    "rope_type": "rope\ntype",
    "rotary_dim": "rotary\ndim",
    "inv_freq": "channels,\nturn (tokens)",
    "attention_factor": "cos/sin\nfactor",
    "window": "window\n(tokens)",
    "qk_norm": "q, k\nnorm",
    "shared_kv_layer": "keys of\nlayer",
    "num_buckets": "buckets",
    "max_distance": "last\nbucket",
    "max_positions": "positions",
}
WORDY = ("sectors", "rope_layout", "rope_type", "inv_freq", "causal", "qk_norm", "sinks")
NUMERIC = frozenset(name for name in FIELDS if name not in WORDY)
