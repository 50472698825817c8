"""Leave one order out: one line per removed part and scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pjdiag.render import numbers
from pjdiag.render.places import Place, places, split_to_fit
from pjdiag.render.tables import BLANK, Cell, Header, Table, figure_cell
from pjdiag.render.views import model_loo
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

OWN_TARGET = "full kernel"
RESTATES = (
    "with the full kernel as its own target, delta MSE restates energy; "
    "prior KL is the figure to read"
)
FEW = 4
"""Removals that a line per scope can hold in full."""


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Prior KL and delta MSE by length; where that is more than a screen, one line per scope."""
    if model_loo.of_a_model(result):
        return model_loo.tables(result, by, all_rows)
    found = places(result.rows, by)
    lengths = sorted({row["eval_length"] for row in result.rows})
    if not lengths:
        return []
    if found and not all_rows and is_zero(found[0]):
        return [_zero_table(found[0], lengths, result)]
    detailed, compact = (found, []) if all_rows else split_to_fit(found, _line_count)
    return [_removal_table(detailed, lengths, result), _scope_table(compact, lengths[-1])]


def is_zero(place: Place) -> bool:
    """Whether all of a bias was removed, sector by sector, and nothing of it was there."""
    whole = any(str(row["removed"]).startswith("sector:") for row in place.rows)
    return whole and not any(row["prior_kl"] or row["loo_delta_mse"] for row in place.rows)


def _zero_table(place: Place, lengths: Sequence[int], result: Result) -> Table:
    """The sectors of the whole: every line below them is zero too."""
    sectors = [row for row in place.rows if str(row["removed"]).startswith("sector:")]
    made = _removal_table([replace(place, rows=tuple(sectors))], lengths, result)
    return replace(made, note="a bias that is zero has nothing to remove")


def _removal_table(found: Sequence[Place], lengths: Sequence[int], result: Result) -> Table:
    headers = [Header("scope", key=True, group=True), Header("removed", key=True)]
    for length in lengths:
        at = f"\nat {numbers.count(length)}"
        headers += [Header(f"prior KL{at}", numeric=True), Header(f"delta MSE{at}", numeric=True)]
    lines = []
    for place in found:
        rows = {(row["removed"], row["eval_length"]): row for row in place.rows}
        for removed in _removals([place]):
            cells = [Cell(place.label), Cell(removed)]
            for length in lengths:
                row = rows.get((removed, length))
                cells += [_cell(row, "prior_kl"), _cell(row, "loo_delta_mse")]
            lines.append(tuple(cells))
    note = "prior KL in nats, delta MSE in logit^2"
    if result.provenance.get("target") == OWN_TARGET:
        note += f"; {RESTATES}"
    return Table("What removing a part of the kernel does", tuple(headers), tuple(lines), note)


def _scope_table(found: Sequence[Place], length: int) -> Table:
    removals = _removals(found)
    if len(removals) > FEW:
        removals = [name for name in removals if name.startswith(("order:", "sector:"))]
    headers = (
        Header("scope", key=True),
        *(Header(name.replace(":", "\n"), numeric=True) for name in removals),
    )
    lines = []
    for place in found:
        rows = {row["removed"]: row for row in place.rows if row["eval_length"] == length}
        cells = (_cell(rows.get(name), "prior_kl") for name in removals)
        lines.append((Cell(place.label), *cells))
    title = f"Prior KL by scope, {numbers.count(length)} tokens"
    return Table(title, headers, tuple(lines), "in nats; every removal and delta MSE: --all")


def _removals(found: Sequence[Place]) -> list[str]:
    return list(dict.fromkeys(str(row["removed"]) for place in found for row in place.rows))


def _line_count(place: Place) -> int:
    return len(_removals([place]))


def _cell(row: Row | None, name: str) -> Cell:
    return BLANK if row is None else figure_cell(row.get(name))
