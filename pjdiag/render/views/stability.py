"""Scale stability: the attention prior, then growth, quantisation and phases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pjdiag.render import numbers
from pjdiag.render.places import Place, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Scope, Sector

OWN = "checkpoint"
WHOLE = "whole kernel"

PRIOR = (
    ("bias RMS", "bias_rms"),
    ("largest\nbias", "bias_max"),
    ("entropy\n(nats)", "attention_entropy"),
    ("support\n(tokens)", "effective_support"),
    ("mean lag\n(tokens)", "mean_distance"),
)
SCALE = (
    ("norm at\nlast lag", "norm_final"),
    ("int8\nerror", "int8_error_order"),
    ("int4\nerror", "int4_error_order"),
    ("phase\nper lag", "local_phase_ratio"),
    ("far span\n(rad)", "far_phase_span"),
    ("phases\ncollide", "wrapped_collision"),
    ("cond.\nnumber", "condition_number"),
)
SHARES = ("int8_error_order", "int4_error_order", "wrapped_collision")
ROUGH = 1e4
"""Condition numbers from here on are written as powers of ten: only the power matters."""
MEANS = "lines of several heads are means over them; the largest bias is the largest"
NOTE = (
    "far = upper half of the window; phase per lag is 1 where the carrier keeps turning; errors "
    "per order; phases collide within 1e-3 rad, mod 2 pi"
)


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Two tables over the scopes, sectors and lengths."""
    found = places(result.rows, by)
    whole, jets = found, found
    if not all_rows:
        jets = [*found[:1], *(_longest(place) for place in found[1:])]
        whole = [*found[:1], *(_whole(place) for place in jets[1:])]
    return [
        _table("Kernel and attention prior of the last row", whole, PRIOR, MEANS),
        _table("Growth, quantisation and phases of the jets", jets, SCALE, NOTE),
    ]


def _whole(place: Place) -> Place:
    """The whole kernel of a finer scope, its sectors left out."""
    return replace(place, rows=tuple(row for row in place.rows if row.get("sector") is None))


def _longest(place: Place) -> Place:
    """A finer scope at the longest length only."""
    longest = max(row["eval_length"] for row in place.rows)
    return replace(place, rows=tuple(r for r in place.rows if r["eval_length"] == longest))


def subject(row: Row) -> str:
    """What a row speaks of: a named coordinate, a sector or the whole kernel."""
    if row.get("variant") not in (None, OWN):
        return str(row["variant"])
    sector = row.get("sector")
    return WHOLE if sector is None else SECTOR_TITLES[Sector(sector)]


def _table(
    title: str, found: Sequence[Place], columns: Sequence[tuple[str, str]], note: str
) -> Table:
    headers = (
        Header("scope", key=True, group=True),
        Header("of", key=True, group=True),
        Header("tokens", numeric=True, key=True),
        *(Header(head, numeric=True) for head, _ in columns),
    )
    lines = [
        (
            Cell(place.label),
            Cell(subject(row)),
            Cell(numbers.count(row["eval_length"])),
            *(_cell(row, name) for _, name in columns),
        )
        for place in found
        for row in sorted(place.rows, key=_order)
        if any(row.get(name) is not None for _, name in columns)
    ]
    return Table(title, headers, tuple(lines), note)


def _order(row: Row) -> tuple[str, int]:
    """Lengths of one subject side by side; subjects in the order of the rows."""
    return subject(row) if row.get("variant") == OWN else "", row["eval_length"]


def _cell(row: Row, name: str) -> Cell:
    value = row.get(name)
    if name == "condition_number" and (value is None or math.isinf(value)):
        return Cell("singular")
    if value is None:
        return BLANK
    if name == "condition_number" and value >= ROUGH:
        mantissa, exponent = f"{value:.1e}".split("e")
        return Cell(f"{mantissa}e{int(exponent)}")
    return bare_share(value) if name in SHARES else figure_cell(value)
