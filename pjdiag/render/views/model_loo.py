"""Leave one out of the running model: what the loss gains, beside a control of the same size."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, places, split_to_fit
from pjdiag.render.tables import BLANK, Cell, Header, Table, figure_cell
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

ROUNDING = 1e-6
"""Nats: what float32 makes of a mean loss."""
TINY = "1e-6"
MEASURABLE = 1e-4
"""Nats a token. A smaller change of the loss counts as nothing measurable, whatever its interval:
it is a part in ten thousand of the perplexity."""
SINGLE = ("fj:", "lc:")
"""Removals of one sector's order, which the whole order covers."""
FEW = 4
"""Removals that a line per scope can hold in full."""


def of_a_model(result: Result) -> bool:
    """Whether the rows are those of a running model."""
    return "queries" in result.provenance


def idle(row: Row) -> bool:
    """Whether the change of the loss is none, as far as the windows tell."""
    low, high = row["ci_low"], row["ci_high"]
    if abs(row["loo_delta_nll"]) < MEASURABLE:
        return True
    return low is not None and low <= 0 <= high


def leading(rows: Sequence[Row]) -> Row | None:
    """The removal to name first, at the longest length: what costs most, as far as any does.

    Without a loss, what moves attention most; None where there is no figure at all.
    """
    length = max(row["eval_length"] for row in rows)
    rows = [row for row in rows if row["eval_length"] == length]
    known = [row for row in rows if row["loo_delta_nll"] is not None]
    if not known:
        moved = [row for row in rows if row["attention_kl"] is not None]
        return max(moved, key=lambda row: row["attention_kl"], default=None)
    seen = [row for row in known if not idle(row)]
    costly = [row for row in seen if row["loo_delta_nll"] > 0]
    return max(costly or seen or known, key=lambda row: abs(row["loo_delta_nll"]))


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Every removal of a scope; where that is more than a screen, finer scopes on a line each."""
    found = places(result.rows, by)
    if not found:
        return []
    losses = any(row["loo_delta_nll"] is not None for row in result.rows)
    detailed, compact = (found, []) if all_rows else split_to_fit(found, lambda p: len(p.rows))
    unit = str(result.provenance.get("unit") or "token")
    return [
        _loss_table(detailed, unit, result) if losses else _attention_table(detailed),
        _scope_table(
            compact,
            "loo_delta_nll" if losses else "attention_kl",
            None if detailed else leading(found[0].rows),
        ),
    ]


def _loss_table(found: Sequence[Place], unit: str, result: Result) -> Table:
    lengths = _lengths(found)
    headers = (
        *_keys(lengths),
        Header("loss\nchanges by", numeric=True),
        Header("95%\ninterval"),
        Header("random\ncontrol", numeric=True),
        Header("attention\nKL", numeric=True),
    )
    lines = [
        (
            *_key_cells(place, row, lengths),
            _change(row["loo_delta_nll"]),
            _interval(row),
            _change(row["control_delta_nll"]),
            BLANK if row["attention_kl"] is None else figure_cell(row["attention_kl"]),
        )
        for place in found
        for row in place.rows
    ]
    note = (
        f"in nats per {unit}; interval: paired bootstrap over windows, blank with fewer than 4; "
        "random control: the same part with random signs; attention KL in nats, on sampled queries"
    )
    if any(cell.text.startswith((f"<{TINY}", "within")) for line in lines for cell in line):
        note += f"; <{TINY} is rounding, of either sign"
    return Table(_title(lengths, "loss"), headers, tuple(lines), _whole(result, lengths) + note)


def _whole(result: Result, lengths: Sequence[int]) -> str:
    """The loss that the changes are of."""
    stated = result.provenance.get("whole_nll") or {}
    known = [(length, stated.get(str(length))) for length in lengths]
    told = [
        f"{numbers.figure(loss)}" + (f" at {numbers.count(length)}" if len(lengths) > 1 else "")
        for length, loss in known
        if loss is not None
    ]
    return f"with every part the loss is {', '.join(told)}; " if told else ""


def _attention_table(found: Sequence[Place]) -> Table:
    lengths = _lengths(found)
    headers = (*_keys(lengths), Header("attention\nKL", numeric=True))
    lines = [
        (*_key_cells(place, row, lengths), figure_cell(row["attention_kl"]))
        for place in found
        for row in place.rows
    ]
    return Table(_title(lengths, "attention"), headers, tuple(lines), "in nats, on sampled queries")


def _scope_table(found: Sequence[Place], name: str, named: Row | None) -> Table:
    """A line for each place; ``named`` is what the headline names, which has a column."""
    removals = list(dict.fromkeys(str(row["removed"]) for place in found for row in place.rows))
    if len(removals) > FEW:
        kept = None if named is None else named["removed"]
        removals = [each for each in removals if each == kept or not each.startswith(SINGLE)]
    length = max(_lengths(found), default=0)
    headers = (
        Header("scope", key=True),
        *(Header(removed.replace(":", "\n"), numeric=True) for removed in removals),
    )
    lines = []
    for place in found:
        rows = {row["removed"]: row for row in place.rows if row["eval_length"] == length}
        cells = [rows.get(removed) for removed in removals]
        lines.append(
            (Cell(place.label), *(BLANK if r is None else _figure(r[name], name) for r in cells))
        )
    what = "Change of the loss" if name == "loo_delta_nll" else "Attention KL"
    note = "in nats; intervals, controls and every removal: --all"
    return Table(f"{what} by scope, {numbers.count(length)} tokens", headers, tuple(lines), note)


def _figure(figure: float | None, name: str) -> Cell:
    return _change(figure) if name == "loo_delta_nll" else figure_cell(figure)


def _lengths(found: Sequence[Place]) -> list[int]:
    return sorted({row["eval_length"] for place in found for row in place.rows})


def _title(lengths: Sequence[int], what: str) -> str:
    at = f", {numbers.count(lengths[0])} tokens" if len(lengths) == 1 else ""
    return f"What removing a part does to the {what}{at}"


def _keys(lengths: Sequence[int]) -> tuple[Header, ...]:
    several = (Header("context\n(tokens)", numeric=True, key=True),) if len(lengths) > 1 else ()
    return (Header("scope", key=True, group=True), Header("removed", key=True), *several)


def _key_cells(place: Place, row: Row, lengths: Sequence[int]) -> tuple[Cell, ...]:
    several = (Cell(numbers.count(row["eval_length"])),) if len(lengths) > 1 else ()
    return (Cell(place.label), Cell(str(row["removed"])), *several)


def _interval(row: Row) -> Cell:
    ends = [row["ci_low"], row["ci_high"]]
    if None in ends:
        return BLANK
    if max(map(abs, ends)) < ROUNDING:
        return Cell(f"within {TINY}")
    return Cell(" to ".join(map(numbers.figure, ends)))


def _change(figure: float | None) -> Cell:
    """A change of the loss; one that is rounding has neither digits nor a sign."""
    if figure is None or not 0 < abs(figure) < ROUNDING:
        return figure_cell(figure)
    return Cell(f"<{TINY}")
