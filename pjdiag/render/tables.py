"""Tables between the rows of a Result and a page: plain text cells, no markup, no layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pjdiag.render import numbers

SCREEN_LINES = 24
"""Data lines that a command prints by default, all its tables together."""


@dataclass(frozen=True)
class Header:
    """The head of a column."""

    title: str
    """May hold a line break where the console should break it."""
    numeric: bool = False
    """Right-aligned."""
    key: bool = False
    """Says what the line is about; repeated where a narrow terminal splits the table."""
    group: bool = False
    """Printed only where it changes from the line above."""
    prose: bool = False
    """Sentences, broken over as many lines as they need, in a pipe too."""


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str
    share: float | None = None
    """Length of the in-cell bar, 0 to 1; None for no bar."""


BLANK = Cell("")
UNDEFINED = Cell(numbers.UNDEFINED)


@dataclass(frozen=True)
class Table:
    """A table with its title; every line has one cell per header."""

    title: str
    headers: tuple[Header, ...]
    lines: tuple[tuple[Cell, ...], ...]
    note: str = ""
    hidden: int = 0
    """Lines left out to fit one screen."""
    last: int = 0
    """Lines at the end, such as a total, that stay where others are left out; as many as the table
    has, and it stays whole.
    """

    @property
    def left_out(self) -> str:
        """How many lines are left out, and what shows them; empty where none is."""
        total = len(self.lines) + self.hidden
        return f"{self.hidden:,} of {total:,} rows left out" if self.hidden else ""


def text_cell(value: str | None) -> Cell:
    """A word, or unknown."""
    return Cell(numbers.UNKNOWN if value is None else str(value))


def share_cell(value: float | None) -> Cell:
    """A share with its bar."""
    text = numbers.share_cell(value)
    return Cell(text) if text == numbers.UNKNOWN or value is None else Cell(text, float(value))


def bare_share(value: float | None) -> Cell:
    """A share without a bar."""
    return Cell(numbers.share_cell(value))


def figure_cell(value: float | None, digits: int = 3) -> Cell:
    """A figure in ``digits`` significant digits."""
    return Cell(numbers.figure(value, digits))


def shorten(tables: Sequence[Table], limit: int = SCREEN_LINES) -> list[Table]:
    """``tables`` with ``limit`` lines in all; a table that needs less leaves room to the others.

    >>> long = Table("t", (Header("a"),), ((BLANK,),) * 30)
    >>> [(len(t.lines), t.hidden) for t in shorten([long, replace(long, lines=long.lines[:4])])]
    [(20, 10), (4, 0)]
    """
    room = dict.fromkeys(range(len(tables)), 0)
    left, waiting = limit, sorted(room, key=lambda index: len(tables[index].lines))
    while waiting:
        index = waiting.pop(0)
        room[index] = min(
            len(tables[index].lines), max(1, tables[index].last, left // (len(waiting) + 1))
        )
        left -= room[index]
    return [_cut(table, room[index]) for index, table in enumerate(tables)]


def _cut(table: Table, room: int) -> Table:
    """``table`` with ``room`` lines: the first, and those at its end that stay."""
    hidden = len(table.lines) - room
    if hidden <= 0:
        return table
    last = min(table.last, room - 1)
    lines = (*table.lines[: room - last], *table.lines[len(table.lines) - last :])
    return replace(table, lines=lines, hidden=hidden)
