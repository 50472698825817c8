"""Retrieval by position code: one line per scope and precision, one column per lag bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, bucket_title, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell
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
    """Top-1, margin and the trained decision; with ``all_rows`` also near hits and ties."""
    found = places(result.rows, by)
    lengths = sorted({row["eval_length"] for row in result.rows if row.get("eval_length")})
    made = []
    for length in lengths:
        where = f", {numbers.count(length)} tokens"
        for name, title in FIGURES + (MORE_FIGURES if all_rows else ()):
            made.append(_table(result.rows, found, length, name, f"{title}{where}"))
        made += _decisions(found, length, where)
    return made


def _decisions(found: Sequence[Place], length: int, where: str) -> list[Table]:
    """The trained decision: near against far, the nearest confuser against a random lag."""
    lines = []
    buckets: list[str] = []
    for place in found:
        rows = [
            row
            for row in place.rows
            if row.get("eval_length") == length and row.get(HARD) is not None
        ]
        buckets += [row["bucket"] for row in rows if row["bucket"] not in buckets]
        for key in dict.fromkeys(_key(row) for row in rows):
            at = {row["bucket"]: row for row in rows if _key(row) == key}
            name = place.label if key[0] == OWN else key[0]
            lines += [
                (
                    Cell(name),
                    Cell(title),
                    *(_cell(at.get(bucket), column) for bucket in buckets),
                )
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


def _note(rows: Iterable[Row], name: str) -> str:
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
