"""Loss by context length, by position in the window, and where attention looks."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, bucket_title, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

WHOLE = "all"
LOSS_DIGITS = 4
ATTENTION = (
    ("entropy\n(nats)", "attention_entropy"),
    ("support\n(tokens)", "effective_support"),
    ("mean lag\n(tokens)", "mean_distance"),
)
ATTENTION_NOTE = (
    "means over queries, windows and heads; support = e^(mean entropy); first token = share of "
    "attention on position 0"
)


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Three tables; attention over whole windows only, unless all rows are asked for."""
    losses = [row for row in result.rows if row["nll"] is not None]
    seen = [row for row in result.rows if row["attention_entropy"] is not None]
    return [
        _loss_table(result, [row for row in losses if row["bucket"] == WHOLE]),
        _position_table(losses),
        _attention_table(places(seen, by), all_rows),
    ]


def _loss_table(result: Result, rows: Sequence[Row]) -> Table:
    headers = (
        Header("context\n(tokens)", numeric=True, key=True),
        Header("loss\n(nats)", numeric=True),
        Header("95%\ninterval"),
        Header("windows", numeric=True),
        Header("predicted\ntokens", numeric=True),
    )
    lines = [
        (
            Cell(numbers.count(row["eval_length"])),
            figure_cell(row["nll"], LOSS_DIGITS),
            _interval(row),
            Cell(numbers.count(row["windows"])),
            Cell(numbers.count(row["tokens"])),
        )
        for row in rows
    ]
    unit = result.provenance.get("unit") or "token"
    note = "interval: bootstrap over windows; blank with fewer than 4"
    size = result.provenance.get("bytes_per_token")
    if unit == "token" and size is not None:
        note += f"; a token is {numbers.figure(size, LOSS_DIGITS)} bytes of this text"
    return Table(f"Loss per {unit} by context length", headers, tuple(lines), note)


def _position_table(rows: Sequence[Row]) -> Table:
    """One column for each bucket; empty where no window exceeds the train length."""
    buckets = list(dict.fromkeys(row["bucket"] for row in rows if row["bucket"] != WHOLE))
    losses = {(row["eval_length"], row["bucket"]): row["nll"] for row in rows}
    headers = (
        Header("context\n(tokens)", numeric=True, key=True),
        *(Header(bucket_title(name), numeric=True) for name in buckets),
    )
    lengths = list(dict.fromkeys(row["eval_length"] for row in rows)) if len(buckets) > 1 else []
    lines = [
        (
            Cell(numbers.count(length)),
            *(
                figure_cell(losses[length, name], LOSS_DIGITS)
                if (length, name) in losses
                else BLANK
                for name in buckets
            ),
        )
        for length in lengths
    ]
    note = "columns: tokens already seen, in train lengths L; train: fewer than L"
    return Table("Loss by position in the window", headers, tuple(lines), note)


def _attention_table(found: Sequence[Place], all_rows: bool) -> Table:
    headers = (
        Header("scope", key=True, group=True),
        Header("context\n(tokens)", numeric=True, key=True, group=all_rows),
        *((Header("position", key=True),) if all_rows else ()),
        *(Header(head, numeric=True) for head, _ in ATTENTION),
        Header("first\ntoken", numeric=True),
    )
    lines = [
        (
            Cell(place.label),
            Cell(numbers.count(row["eval_length"])),
            *((Cell(bucket_title(row["bucket"])),) if all_rows else ()),
            *(figure_cell(row[name]) for _, name in ATTENTION),
            bare_share(row["sink_mass"]),
        )
        for place in found
        for row in place.rows
        if all_rows or row["bucket"] == WHOLE
    ]
    return Table("Where attention looks", headers, tuple(lines), ATTENTION_NOTE)


def _interval(row: Row) -> Cell:
    ends = [row["ci_low"], row["ci_high"]]
    if None in ends:
        return BLANK
    return Cell(" to ".join(numbers.figure(end, LOSS_DIGITS) for end in ends))
