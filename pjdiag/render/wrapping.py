"""Cells of words broken over lines where a terminal is too narrow; figures are never broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from rich.cells import cell_len

from pjdiag.render.tables import Cell, Table

NARROWEST_WORDS = 14
"""Characters that a column of words keeps."""
MOST_LINES = 3
"""Lines of a cell, where the whole table is to stand side by side; sentences may have more."""
PROSE_WIDTH = 100
"""Columns of a table with sentences, where nothing sets fewer."""

_BREAK = re.compile(r"(?<=[A-Za-z][-_/.])(?=[A-Za-z])|(?<=[,=/\[])(?=[A-Za-z])")


def broken(text: str, width: int) -> str:
    r"""``text`` over lines of at most ``width``; a word that is longer stays whole.

    >>> broken("the long run is under way", 12)
    'the long run\nis under way'
    >>> broken("order-two-stays-unused >= 0.5", 12)
    'order-two-\nstays-unused\n>= 0.5'
    """
    lines: list[str] = []
    now = ""
    for gap, piece in _pieces(text):
        if now and cell_len(now) + len(gap) + cell_len(piece) > width:
            lines.append(now)
            now = piece
        else:
            now += gap + piece
    return "\n".join([*lines, now])


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Parts that stay whole, each with what stands before it: a space, or nothing."""
    for number, word in enumerate(text.split(" ")):
        ends = [0, *(found.start() for found in _BREAK.finditer(word)), len(word)]
        for first, last in pairwise(ends):
            yield (" " if number and first == 0 else ""), word[first:last]


def text_width(text: str) -> int:
    """Columns of the widest line."""
    return max(map(cell_len, text.split("\n")))


def narrowed(table: Table, width: int, gap: int, widths: Sequence[int]) -> Table:
    """``table`` with its widest columns of words broken: to fit whole, else to be split well.

    ``widths`` are those of its columns as they are.
    """
    words = [i for i, header in enumerate(table.headers) if not header.numeric]
    whole = _shrunk(table, list(widths), words, width - gap * (len(widths) - 1))
    prose = any(header.prose for header in table.headers)
    if whole is not None and (prose or _height(whole) <= MOST_LINES):
        return whole
    keys = [i for i in words if table.headers[i].key]
    others = [i for i in range(len(widths)) if not table.headers[i].key]
    if not keys or not others:
        return table
    widest = min(max(widths[i] for i in others), max(NARROWEST_WORDS, width * 3 // 10))
    room = width - widest - gap * len(keys)
    fixed = sum(widths[i] for i, h in enumerate(table.headers) if h.key and h.numeric)
    kept = [widths[i] if i in keys else 0 for i in range(len(widths))]
    split = _shrunk(table, kept, keys, room - fixed)
    if split is None:
        return table
    left = width - fixed - sum(_column_width(split, i) for i in keys) - gap * len(keys)
    limits = {i: left for i in words if i in others and widths[i] > left}
    return _broken(split, limits)


def _shrunk(table: Table, widths: list[int], words: Sequence[int], room: int) -> Table | None:
    """The columns ``words`` broken, the widest first, until all ``widths`` fit into ``room``."""
    floors = {i: max(NARROWEST_WORDS, _title_width(table, i)) for i in words}
    limits: dict[int, int] = {}
    while sum(widths) > room:
        able = [i for i in words if widths[i] > floors[i]]
        if not able:
            return None
        widest = max(able, key=lambda i: widths[i])
        widths[widest] -= 1
        limits[widest] = widths[widest]
    made = _broken(table, limits)
    fits = all(_column_width(made, i) <= limit for i, limit in limits.items())
    return made if fits else None


def _broken(table: Table, limits: dict[int, int]) -> Table:
    lines = tuple(
        tuple(
            replace(cell, text=broken(cell.text, limits[i])) if i in limits else cell
            for i, cell in enumerate(line)
        )
        for line in table.lines
    )
    return replace(table, lines=lines)


def _height(table: Table) -> int:
    return max((cell.text.count("\n") + 1 for line in table.lines for cell in line), default=1)


def _title_width(table: Table, index: int) -> int:
    return text_width(table.headers[index].title)


def _column_width(table: Table, index: int) -> int:
    cells = [text_width(line[index].text) for line in table.lines]
    return max([_title_width(table, index), *cells])


def stacked(line: Sequence[Cell], widths: Sequence[int]) -> Iterator[list[str]]:
    """The lines that a row of padded cells takes, blank where a cell has fewer."""
    parts = [cell.text.split("\n") for cell in line]
    for row in range(max(map(len, parts), default=1)):
        yield [
            part[row] if row < len(part) else " " * width
            for part, width in zip(parts, widths, strict=True)
        ]
