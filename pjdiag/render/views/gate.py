"""Checks of a gate: what is violated first; checks that pass fold into a line per rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pjdiag.gate.checks import Status
from pjdiag.gate.policy import ERROR
from pjdiag.render.checks import places, span
from pjdiag.render.tables import BLANK, Cell, Header, Table
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

ORDER = (
    Status.VIOLATED,
    Status.INCONCLUSIVE,
    Status.KNOWN,
    Status.SUPPRESSED,
    Status.PASSED,
)


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """One table of all checks; finer places than ``by`` share a line of their rule and status."""
    compared = any(row.get("baseline") is not None for row in result.rows)
    noted = any(row.get("reason") for row in result.rows)
    headers = (
        Header("status", key=True, group=True),
        Header("rule", key=True, group=True),
        Header("where", key=True),
        Header("figure", numeric=True),
        Header("required"),
        *((Header("baseline", numeric=True), Header("change")) if compared else ()),
        *((Header("reason"),) if noted else ()),
    )
    lines = []
    for rows in _lines(result.rows, by, all_rows):
        first = rows[0]
        cells = [
            Cell(word(first)),
            Cell(str(first["rule"])),
            Cell(places(rows)),
            Cell(span(rows) or "missing"),
            Cell(str(first["requirement"])),
        ]
        if compared:
            cells += [Cell(span(rows, "baseline")), Cell(first["change"] or "")]
        if noted:
            cells.append(Cell(str(first["reason"])) if first.get("reason") else BLANK)
        lines.append(tuple(cells))
    return [Table("Checks", headers, tuple(lines))]


def word(row: Row) -> str:
    """The status as a person reads it: a violation that fails no build is a warning."""
    if row["status"] == Status.VIOLATED and row["severity"] != ERROR:
        return "warning"
    return str(row["status"])


def _lines(rows: Sequence[Row], by: Scope, all_rows: bool) -> Iterator[list[Row]]:
    ranked = sorted(rows, key=lambda row: (ORDER.index(row["status"]), word(row) == "warning"))
    found: dict[object, list[Row]] = {}
    for row in ranked:
        coarse = Scope.MODEL if row["status"] == Status.PASSED and not all_rows else by
        layer = None if coarse == Scope.MODEL else row["layer"]
        head = row["head"] if coarse == Scope.HEAD else None
        place = (layer, head, row["layer"] is None)
        found.setdefault((word(row), row["rule"], row["change"], place), []).append(row)
    yield from found.values()
