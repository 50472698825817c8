"""Retrieval by the running model: a line for each length, a column for each depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pjdiag.render import numbers
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell
from pjdiag.results import Result, Row

DEPTH_NOTE = "depth 0: the pair opens the context; 1: it comes just before the key at the end"
OTHER_NOTE = "other key: the same value is first although another key is asked for"


def of_model(result: Result) -> bool:
    """Whether a result of `probe` speaks of the running model, not of position codes."""
    return any(row.get("trials") is not None for row in result.rows)


def found(rows: Sequence[Row]) -> bool:
    """Whether anything is retrieved, all rows taken together."""
    return any(row["retrieved"] for row in rows)


def tables(result: Result, all_rows: bool) -> list[Table]:
    """Top-1 and mean rank; the whole lengths alone where nothing is found."""
    rows = [row for row in result.rows if row.get("trials") is not None]
    if all_rows:
        return [_every_row(rows)]
    if not found(rows):
        return [_lengths(rows)]
    ranks = "Mean rank of the right value"
    return [
        _grid(rows, "The right value ranks first (top-1)", "top1", bare_share, _note(rows)),
        _grid(rows, ranks, "mean_rank", figure_cell, _rank_note(result)),
    ]


def whole(rows: Sequence[Row]) -> list[Row]:
    """One row for each length: all depths together, or the only depth."""
    by_length = {row["eval_length"]: row for row in rows if row["depth"] is None}
    for row in rows:
        by_length.setdefault(row["eval_length"], row)
    return [by_length[length] for length in sorted(by_length)]


def _grid(
    rows: Sequence[Row], title: str, name: str, cell: Callable[[float | None], Cell], note: str
) -> Table:
    depths = sorted({row["depth"] for row in rows if row["depth"] is not None})
    at = {(row["eval_length"], row["depth"]): row for row in rows}
    shares = name == "top1"
    headers = (
        Header("context\n(tokens)", numeric=True, key=True),
        *(Header(f"depth\n{depth:g}", numeric=True) for depth in depths),
        Header("all\ndepths", numeric=True),
        *((Header("95%\ninterval"), Header("other\nkey", numeric=True)) if shares else ()),
    )
    lines = [
        (
            Cell(numbers.count(every["eval_length"])),
            *(
                cell(at[every["eval_length"], depth][name])
                if (every["eval_length"], depth) in at
                else BLANK
                for depth in depths
            ),
            cell(every[name]),
            *((_interval(every), bare_share(every["other_key_top1"])) if shares else ()),
        )
        for every in whole(rows)
    ]
    return Table(title, headers, tuple(lines), note)


def _lengths(rows: Sequence[Row]) -> Table:
    headers = (
        Header("context\n(tokens)", numeric=True, key=True),
        Header("all\ndepths", numeric=True),
        Header("95%\ninterval"),
        Header("other\nkey", numeric=True),
        Header("contexts", numeric=True),
    )
    lines = [_summary(row) for row in whole(rows)]
    chance = numbers.percent(rows[0]["chance"])
    note = f"chance is {chance}; {OTHER_NOTE}; --all prints every depth"
    return Table("The right value ranks first (top-1)", headers, tuple(lines), note)


def _every_row(rows: Sequence[Row]) -> Table:
    headers = (
        Header("context\n(tokens)", numeric=True, key=True, group=True),
        Header("depth", key=True),
        Header("top-1", numeric=True),
        Header("95%\ninterval"),
        Header("other\nkey", numeric=True),
        Header("contexts", numeric=True),
        Header("mean\nrank", numeric=True),
        Header("retrieved"),
    )
    lines = []
    for row in rows:
        length, *rest = _summary(row)
        depth = "all" if row["depth"] is None else f"{row['depth']:g}"
        flag = Cell("yes" if row["retrieved"] else "no")
        lines.append((length, Cell(depth), *rest, figure_cell(row["mean_rank"]), flag))
    note = f"chance is {numbers.percent(rows[0]['chance'])}; {DEPTH_NOTE}; {OTHER_NOTE}"
    return Table("Retrieval by length and depth", headers, tuple(lines), note)


def _summary(row: Row) -> tuple[Cell, ...]:
    return (
        Cell(numbers.count(row["eval_length"])),
        bare_share(row["top1"]),
        _interval(row),
        bare_share(row["other_key_top1"]),
        Cell(numbers.count(row["trials"])),
    )


def _interval(row: Row) -> Cell:
    return Cell(" to ".join(numbers.percent(row[end]) for end in ("ci_low", "ci_high")))


def _note(rows: Sequence[Row]) -> str:
    trials = sorted({row["trials"] for row in rows if row["depth"] is not None})
    counted = numbers.count(trials[0]) if len(trials) == 1 else "up to " + str(trials[-1])
    chance = numbers.percent(rows[0]["chance"])
    return (
        f"{counted} contexts of each length and depth; chance is {chance}; {DEPTH_NOTE}; "
        f"{OTHER_NOTE}"
    )


def _rank_note(result: Result) -> str:
    """The ranks that there are, and what a random order would give."""
    chance = result.select()[0]["chance"]
    candidates = round(1 / chance)
    return f"1 is first of {candidates} values; chance is {numbers.figure((candidates + 1) / 2)}"
