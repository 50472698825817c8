"""How far figures moved, and the order in which they are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pjdiag.comparison import channels
from pjdiag.results import Row
from pjdiag.terms import DIAGNOSTICS, Scope

UNSCALED = ("share", "flag")


def rank(names: Sequence[str]) -> Any:
    """Sort key: each checkpoint's rows together; outside the noise first; the most moved first.

    Which frequencies rotary channels have comes after what is done with them.
    """
    order = {name: number for number, name in enumerate(names)}
    scopes = {scope.value: number for number, scope in enumerate(Scope)}

    def key(row: Row) -> tuple[int, bool, bool, bool, bool, float, int]:
        return (
            order[row["compared"]],
            row["difference"] is None,
            row["difference"] == 0,
            row["within_noise"] is True,
            row["measured"] == channels.NAME and row["figure"] in channels.TURNS,
            -(row["moved"] or 0.0),
            scopes[row["scope"]],
        )

    return key


def moved(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows with ``moved``: a share as it is, others in parts of the largest of their scope."""
    kinds = {(row["measured"], row["figure"]): _kind(row) for row in rows}
    largest: dict[tuple[str, str, str], float] = {}
    for row in rows:
        where = (row["measured"], row["figure"], row["scope"])
        sizes = [abs(row[side]) for side in ("value_a", "value_b") if row[side] is not None]
        largest[where] = max([largest.get(where, 0.0), *sizes])
    for row in rows:
        where = (row["measured"], row["figure"], row["scope"])
        scale = 1.0 if kinds[where[:2]] in UNSCALED else largest[where]
        difference = row["difference"]
        moved = None if difference is None else abs(difference) / scale if scale else 0.0
        yield {**row, "moved": moved}


def _kind(row: Row) -> str:
    return next(c.kind for c in DIAGNOSTICS[row["measured"]] if c.name == row["figure"])
