"""Retrieval by position code: one line per scope and precision, one column per lag bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, bucket_title, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell
from pjdiag.render.views import in_model
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

OWN = "checkpoint"
Key = tuple[str, str, str]

HARD, RANDOM = "hard_pair_accuracy", "random_pair_accuracy"
FIGURES = (
    ("top1", "The exact lag is the nearest neighbour (top-1)"),
    ("margin", "Margin to the best other lag (cosine)"),
)
MORE_FIGURES = (
    ("within_64", "The nearest neighbour is at most 64 lags away"),
    ("ties", "Candidates that tie with the lag itself (mean)"),
)
DECISIONS = (("nearest confuser", HARD), ("random lag", RANDOM))
SHARES = ("top1", "within_64", HARD, RANDOM)


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Top-1, margin and the trained decision; with ``all_rows`` also near hits and ties.

    Named coordinates open with one line each: how their codes grow against what they resolve.
    Retrieval by the running model has tables of its own.
    """
    if in_model.of_model(result):
        return in_model.tables(result, all_rows)
    found = places(result.rows, by)
    lengths = sorted({row["eval_length"] for row in result.rows if row.get("eval_length")})
    made = []
    for length in lengths:
        here = [row for row in result.rows if row.get("eval_length") == length]
        where = f", {numbers.count(length)} tokens"
        if {_key(row)[0] for row in here} != {OWN}:
            made.append(_trade_off(here, where))
            if not all_rows:
                continue
        for name, title in FIGURES + (MORE_FIGURES if all_rows else ()):
            made.append(_table(here, found, length, name, f"{title}{where}"))
        made += _decisions(found, length, where)
    return made


def _trade_off(rows: Sequence[Row], where: str) -> Table:
    """Scale against resolution, near against far, hard against random: a line a coordinate."""
    buckets = list(dict.fromkeys(row["bucket"] for row in rows))
    near, far = buckets[min(1, len(buckets) - 1)], buckets[-1]
    at = {(row["variant"], row["precision"], row["bucket"]): row for row in rows}
    precisions = list(dict.fromkeys(row["precision"] for row in rows))
    decided = any(row.get(HARD) is not None for row in rows)
    columns = (
        *(("top1", precision, bucket) for precision in precisions[:2] for bucket in (near, far)),
        *(
            (name, precisions[0], bucket)
            for bucket in (near, far)
            for name in (HARD, RANDOM)
            if decided
        ),
    )
    heads = {"top1": "top-1", HARD: "told from\nconfuser", RANDOM: "told from\nrandom"}
    headers = (
        Header("code", key=True),
        Header("size of\nfar codes", numeric=True),
        *(
            Header(
                f"{heads[name]}{f' {precision}' if name == 'top1' else ''}\n{bucket_title(bucket)}",
                numeric=True,
            )
            for name, precision, bucket in columns
        ),
    )
    lines = [
        (
            Cell(variant),
            _cell(at.get((variant, precisions[0], far)), "norm_growth"),
            *(
                _cell(at.get((variant, precision, bucket)), name)
                for name, precision, bucket in columns
            ),
        )
        for variant in dict.fromkeys(str(row["variant"]) for row in rows)
    ]
    note = "size: mean norm of the codes, times that below L; a decision's chance is 50%"
    return Table(f"Scale against resolution{where}", headers, tuple(lines), note)


def _decisions(found: Sequence[Place], length: int, where: str) -> list[Table]:
    """The trained decision: near against far, the nearest confuser against a random lag."""
    decided = [
        (place, row)
        for place in found
        for row in place.rows
        if row.get("eval_length") == length and row.get(HARD) is not None
    ]
    buckets = list(dict.fromkeys(row["bucket"] for _, row in decided))
    at = {(place.label, _key(row), row["bucket"]): row for place, row in decided}
    lines = [
        (
            Cell(label if key[0] == OWN else key[0]),
            Cell(title),
            *(_cell(at.get((label, key, bucket)), column) for bucket in buckets),
        )
        for label, key in dict.fromkeys((label, key) for label, key, _ in at)
        for title, column in DECISIONS
    ]
    if not lines:
        return []
    headers = (
        Header("code", key=True, group=True),
        Header("told from", key=True),
        *(Header(bucket_title(bucket), numeric=True) for bucket in buckets),
    )
    note = "accepts the lag itself and rejects the other; chance is 50%"
    return [Table(f"Trained decision on the codes{where}", headers, tuple(lines), note)]


def _table(
    rows: Sequence[Row], found: Sequence[Place], length: int, name: str, title: str
) -> Table:
    here = [row for row in rows if row.get("eval_length") == length]
    buckets = list(dict.fromkeys(row["bucket"] for row in here))
    variants = {_key(row)[0] for row in here} != {OWN}
    families = len({_key(row)[1] for row in here}) > 1
    headers = (
        Header("scope", key=True, group=True),
        *((Header("code", key=True, group=True),) if variants else ()),
        *((Header("family", key=True, group=True),) if families else ()),
        Header("precision", key=True),
        *(Header(bucket_title(bucket), numeric=True) for bucket in buckets),
    )
    lines = []
    for place in found:
        at = {
            (_key(row), row["bucket"]): row
            for row in place.rows
            if row.get("eval_length") == length
        }
        for key in dict.fromkeys(key for key, _ in at):
            variant, family, precision = key
            lines.append(
                (
                    Cell(place.label),
                    *((Cell(variant),) if variants else ()),
                    *((Cell(family),) if families else ()),
                    Cell(precision),
                    *(_cell(at.get((key, bucket)), name) for bucket in buckets),
                )
            )
    return Table(title, headers, tuple(lines), _note(here, name))


ROUNDING = (
    "float32 rounds cosines to about 1e-7: below a margin of 1e-6 rounding decides who is nearest, "
    "and differs between machines"
)


def _note(rows: Iterable[Row], name: str) -> str:
    if name == "margin":
        return ROUNDING
    if name != "top1":
        return ""
    note = "L = train length; train = lags below L"
    chances = {row["chance"] for row in rows if row.get("chance") is not None}
    if len(chances) == 1:
        note += f"; chance is 1 in {numbers.count(1 / chances.pop())}"
    return note


def _key(row: Row) -> Key:
    return (
        str(row.get("variant") or OWN),
        str(row.get("family") or "both"),
        str(row.get("precision") or numbers.UNKNOWN),
    )


def _cell(row: Row | None, name: str) -> Cell:
    if row is None:
        return BLANK
    return bare_share(row.get(name)) if name in SHARES else figure_cell(row.get(name))
