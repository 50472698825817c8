"""What is compared, how it went over the steps, and the figures that moved most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pjdiag.render import numbers
from pjdiag.render.compared import (
    POOLED,
    checkpoints,
    figure_title,
    first_name,
    kind_of,
    side_text,
    step_labels,
    subject,
    where,
    worded,
)
from pjdiag.render.places import coarsest
from pjdiag.render.tables import BLANK, Cell, Header, Table
from pjdiag.results import Result, Row
from pjdiag.terms import Scope, Sector

LENGTHS = ("window", "eval_length")
TRACED = 7
"""Figures that are followed over the steps."""
TITLES = {Scope.MODEL: "the model", Scope.LAYER: "layers", Scope.HEAD: "heads"}
NOTE = "sorted by what moved most: a share by its difference, others by their part of the largest"
NOISE_NOTE = "; differences within the noise of both come last"


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """The checkpoints; three or more also over their steps; differences, coarse scopes first."""
    others = list(dict.fromkeys(row["compared"] for row in result.rows))
    found = [_checkpoints(result)]
    if len(others) > 1:
        found.append(_trajectory(result, others))
    shown = others if all_rows else others[-1:]
    scopes = tuple(Scope)
    for scope in scopes[: scopes.index(by) + 1]:
        for other in shown:
            rows = [
                row
                for row in result.rows
                if row["scope"] == scope.value and row["compared"] == other
            ]
            found.append(_differences(rows, scope, first_name(result), other, all_rows))
    return found


def _checkpoints(result: Result) -> Table:
    described = checkpoints(result)
    stepped = any(each.get("step") is not None for each in described)
    headers = (
        Header("checkpoint", key=True),
        *((Header("step", numeric=True),) if stepped else ()),
        Header("adapter"),
        Header("layers", numeric=True),
        Header("heads\nin all", numeric=True),
        Header("train\nlength", numeric=True),
    )
    lines = []
    for each in described:
        layers = each.get("layers")
        layers = None if layers is None else layers + (each.get("layers_skipped") or 0)
        cells = [Cell(str(each.get("name")))]
        if stepped:
            cells.append(Cell(numbers.count(each.get("step"))))
        cells += [
            Cell(str(each.get("adapter") or numbers.UNKNOWN)),
            Cell(numbers.count(layers)),
            Cell(numbers.count(each.get("heads"))),
            Cell(numbers.count(each.get("train_length"))),
        ]
        lines.append(tuple(cells))
    return Table(
        "Checkpoints; the first is what the others are compared with", headers, tuple(lines)
    )


Traced = tuple[str, str, str]
"""Diagnostic, figure and subject."""


def _traced(row: Row, *, family: bool) -> Traced:
    return str(row["measured"]), figure_title(row), subject(row, family=family)


def _trajectory(result: Result, others: Sequence[str]) -> Table:
    """The shares and orders of the coarsest scope over the checkpoints; else what moved most."""
    place = next(iter(coarsest(result.rows)), None)
    rows = [row for row in (place.rows if place else ()) if row["difference"] is not None]
    traced = partial(_traced, family=len({row.get("family") for row in rows}) > 1)
    wanted = traced_rows(rows)
    chosen = list(dict.fromkeys(map(traced, wanted)))[:TRACED]
    values = {(row["compared"], traced(row)): row for row in rows}
    first = {traced(row): row for row in rows}
    stepped, labels = step_labels(result, others)
    label_of = dict(zip([first_name(result), *others], labels, strict=True))

    def line(name: str, found: Mapping[Traced, Row], side: str) -> tuple[Cell, ...]:
        label = label_of[name]
        shown = Cell(numbers.count(label) if stepped else str(label))
        return (shown, *(_value_cell(found.get(each), side) for each in chosen))

    headers = (
        Header("step" if stepped else "checkpoint", numeric=stepped, key=True),
        *(Header("\n".join([*of.split(", "), figure]), numeric=True) for _, figure, of in chosen),
    )
    lines = [
        line(first_name(result), first, "a"),
        *(
            line(
                other,
                {each: values[other, each] for each in chosen if (other, each) in values},
                "b",
            )
            for other in others
        ),
    ]
    of = "" if place is None else f": {place.label}"
    over = "training" if stepped else "the checkpoints"
    return Table(f"Over {over}{of}", headers, tuple(lines) if chosen else ())


def traced_rows(rows: Sequence[Row]) -> list[Row]:
    """Shares and orders, those of sectors first; else all rows as they are."""
    known = [row for row in rows if row["difference"] is not None]
    return sorted(filter(_is_share_or_order, known), key=_by_share) or known


def _is_share_or_order(row: Row) -> bool:
    """Sector shares, the pooled shares of the orders, and the mean order."""
    if row["figure"] == "order_share":
        return row.get("sector") == POOLED or row.get("family") == "multiplicative"
    return row["figure"] in ("sector_share", "mean_order") or (
        row["figure"] == "share" and row.get("jet_order") is None
    )


def _by_share(row: Row) -> tuple[int, int, int]:
    """Sector shares first, then orders from 0 up, then means."""
    ranks = {"sector_share": 0, "share": 0, "order_share": 1, "mean_order": 2}
    sectors = [sector.value for sector in Sector]
    sector = sectors.index(row["sector"]) if row.get("sector") in sectors else len(sectors)
    return ranks.get(row["figure"], 3), row.get("jet_order") or 0, sector


def _value_cell(row: Row | None, side: str) -> Cell:
    return BLANK if row is None else Cell(side_text(row, side))


def _differences(
    rows: Sequence[Row], scope: Scope, first: str, other: str, all_rows: bool
) -> Table:
    moved = [row for row in rows if all_rows or row["difference"] != 0]
    noisy = any(row["noise"] is not None for row in moved)
    families = len({row.get("family") for row in moved}) > 1
    several = len({row["measured"] for row in moved}) > 1
    lengths = {row.get("window") or row.get("eval_length") for row in moved}
    (length,) = lengths if len(lengths) == 1 else (None,)
    without = LENGTHS if length is not None else ()
    about = any(subject(row, family=families, without=without) for row in moved)
    words = any(map(worded, moved))
    headers = (
        *((Header("where", key=True),) if scope != Scope.MODEL else ()),
        *((Header("diagnostic", key=True),) if several else ()),
        Header("figure", key=True),
        *((Header("of", key=True),) if about else ()),
        Header("from", numeric=not words),
        Header("to", numeric=not words),
        Header("difference", numeric=True),
        *((Header("noise", numeric=True),) if noisy else ()),
        Header("relative", numeric=True),
    )
    lines = []
    for row in moved:
        cells = [] if scope == Scope.MODEL else [Cell(where(row))]
        cells += [Cell(str(row["measured"]))] if several else []
        cells += [
            Cell(figure_title(row)),
            *((Cell(subject(row, family=families, without=without)),) if about else ()),
            Cell(side_text(row, "a")),
            Cell(side_text(row, "b")),
            BLANK if worded(row) else Cell(_signed(row)),
        ]
        if noisy:
            cells.append(BLANK if row["noise"] is None else Cell(numbers.figure(row["noise"], 2)))
        relative = row["relative"]
        cells.append(BLANK if relative is None else Cell(_percent_change(relative)))
        lines.append(tuple(cells))
    title = f"{TITLES[scope].capitalize()}: what moved from {first} to {other}"
    title += f", at {numbers.count(length)} tokens" if length is not None else ""
    return Table(title, headers, tuple(lines), NOTE + (NOISE_NOTE if noisy else ""))


def _signed(row: Row) -> str:
    difference = row["difference"]
    if difference is None:
        return ""
    if kind_of(row) == "share":
        points = f"{100 * difference:+.1f}"
        if float(points) == 0 and difference != 0:
            return "<0.1 pt"
        return f"{points} pt" if difference else "0 pt"
    count = kind_of(row) == "count"
    text = numbers.setting(difference) if count else numbers.figure(difference)
    return f"+{text}" if difference > 0 else text


def _percent_change(relative: float) -> str:
    if abs(relative) >= 10:
        return f"x {numbers.figure(1 + relative)}" if relative > 0 else numbers.figure(relative)
    return f"{relative:+.0%}" if abs(relative) >= 0.005 else "0%" if relative == 0 else "<1%"
