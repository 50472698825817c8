"""Fit a table to a width: bars into cells, repeated scopes blanked, wide tables split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from pjdiag.render.tables import BLANK, Cell, Table
from pjdiag.render.text import encodable, visible
from pjdiag.render.wrapping import PROSE_WIDTH, narrowed, stacked, text_width

WIDE_GAP, NARROW_GAP = 2, 1
"""Blank columns between cells."""
FITS = ((10, WIDE_GAP), (6, WIDE_GAP), (6, NARROW_GAP), (0, WIDE_GAP), (0, NARROW_GAP))
"""Characters of a full bar and the gap, tried in turn until the table fits."""


_FIGURE = re.compile(r"-?[\d,]+((?:\.\d+)?(?:e-?\d+)?)")


@dataclass(frozen=True)
class Glyphs:
    """Characters for rules and bars."""

    rule: str
    blocks: str
    """Bar characters from the emptiest to the full one."""


BOX_DRAWING = Glyphs("─", "▏▎▍▌▋▊▉█")
ASCII_ONLY = Glyphs("-", "#")


def glyphs_for(encoding: str) -> Glyphs:
    """Box drawing where ``encoding`` can write it.

    >>> glyphs_for("utf-8").rule, glyphs_for("cp1252").rule
    ('─', '-')
    """
    wanted = BOX_DRAWING.rule + BOX_DRAWING.blocks
    return BOX_DRAWING if encodable(wanted, encoding) else ASCII_ONLY


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A bar of ``width`` characters; a share above 0 is never invisible.

    >>> bar(0.55, 10, ASCII_ONLY), bar(0.001, 4, ASCII_ONLY), bar(0.0, 2, ASCII_ONLY)
    ('######    ', '#   ', '  ')
    """
    steps = len(glyphs.blocks)
    filled = round(min(max(share, 0.0), 1.0) * width * steps)
    if share > 0:
        filled = max(filled, 1)
    whole, part = divmod(filled, steps)
    drawn = glyphs.blocks[-1] * whole + (glyphs.blocks[part - 1] if part else "")
    return drawn.ljust(width)


@dataclass(frozen=True)
class Part:
    """A table as it goes on a page, whole or some of its columns."""

    table: Table
    gap: int
    fits: bool
    """Its cells are padded to their columns; otherwise they are left to wrap."""

    @property
    def width(self) -> int:
        """Characters from the first column to the last."""
        return _total(_widths(self.table), self.gap)

    def text_lines(self) -> Iterator[str]:
        """The padded cells of each line, side by side; a cell may take several lines."""
        widths = _widths(self.table)
        for line in self.table.lines:
            for texts in stacked(line, widths):
                yield (" " * self.gap).join(texts).rstrip()

    def header_lines(self) -> Iterator[str]:
        """The header, its titles standing on the last line."""
        titles = [header.title.split("\n") for header in self.table.headers]
        height = max(map(len, titles))
        widths = _widths(self.table)
        for row in range(height):
            cells = (
                " " * width if row < height - len(title) else title[row - height + len(title)]
                for title, width in zip(titles, widths, strict=True)
            )
            yield (" " * self.gap).join(cells).rstrip()


def laid_out(table: Table, width: int, encoding: str) -> Iterator[Part]:
    """``table`` as one part that fits ``width`` columns, or several with the keys repeated.

    Cells hold their bars and only characters that ``encoding`` can write. Words are broken over
    lines where that spares a split, sentences also where the page is wide. A part that cannot fit
    even so is left to wrap; nothing is cut off.
    """
    prose = any(header.prose for header in table.headers)
    width = min(width, PROSE_WIDTH) if prose else width
    clean = _points_aligned(_visible(table, encoding))
    glyphs = glyphs_for(encoding)
    for bar_width, gap in FITS:
        drawn = _with_bars(clean, bar_width, glyphs)
        if _total(_widths(drawn), gap) <= width:
            break
    else:
        gap = WIDE_GAP if prose else gap
        drawn = narrowed(drawn, width, gap, _widths(drawn))
    for columns in _split(drawn, width, gap):
        part = _without_repeats(columns)
        fits = _total(_widths(part), gap) <= width
        yield Part(_justified(part) if fits else part, gap, fits)


def _visible(table: Table, encoding: str) -> Table:
    headers = tuple(
        replace(h, title="\n".join(visible(part, encoding) for part in h.title.split("\n")))
        for h in table.headers
    )
    lines = tuple(
        tuple(replace(cell, text=visible(cell.text, encoding)) for cell in line)
        for line in table.lines
    )
    return replace(table, headers=headers, lines=lines)


def _points_aligned(table: Table) -> Table:
    """Figures of a column padded so that their decimal points stand below each other."""
    lines = [list(line) for line in table.lines]
    for index, header in enumerate(table.headers):
        if header.numeric:
            tails = [_tail(line[index].text) for line in lines]
            longest = max((len(tail) for tail in tails if tail is not None), default=0)
            for line, tail in zip(lines, tails, strict=True):
                if tail is not None:
                    padding = " " * (longest - len(tail))
                    line[index] = replace(line[index], text=line[index].text + padding)
    return replace(table, lines=tuple(map(tuple, lines)))


def _tail(text: str) -> str | None:
    """What follows the units digit of a figure; None for anything else, percents included."""
    found = _FIGURE.fullmatch(text)
    return None if found is None else found.group(1)


def _justified(table: Table) -> Table:
    """Every cell and title padded to its column."""
    widths = _widths(table)
    right = [header.numeric for header in table.headers]
    headers = tuple(
        replace(h, title=_padded(h.title, widths[i], right[i])) for i, h in enumerate(table.headers)
    )
    lines = tuple(
        tuple(Cell(_padded(cell.text, widths[i], right[i])) for i, cell in enumerate(line))
        for line in table.lines
    )
    return replace(table, headers=headers, lines=lines)


def _padded(text: str, width: int, right: bool) -> str:
    return "\n".join(_pad(part, width, right) for part in text.split("\n"))


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _with_bars(table: Table, width: int, glyphs: Glyphs) -> Table:
    barred = [
        width > 0 and any(line[column].share is not None for line in table.lines)
        for column in range(len(table.headers))
    ]
    texts = [
        max((cell_len(line[column].text) for line in table.lines), default=0)
        for column in range(len(table.headers))
    ]

    def drawn(cell: Cell, column: int) -> Cell:
        if not barred[column] or cell.share is None:
            return cell
        return Cell(f"{bar(cell.share, width, glyphs)} {cell.text.rjust(texts[column])}")

    lines = tuple(
        tuple(drawn(cell, column) for column, cell in enumerate(line)) for line in table.lines
    )
    return replace(table, lines=lines)


def _split(table: Table, width: int, gap: int) -> Iterator[Table]:
    """As few parts as fit, of columns in order, each with the key columns; as even as can be."""
    widths = _widths(table)
    keys = [index for index, header in enumerate(table.headers) if header.key]
    base = _total([widths[index] for index in keys], gap)
    groups = _groups(table, widths, base, gap, width)
    if len(groups) > 1:
        low, high = base, width
        while high - low > 1:  # the narrowest page that takes no more parts
            middle = (low + high) // 2
            if len(_groups(table, widths, base, gap, middle)) == len(groups):
                high = middle
            else:
                low = middle
        groups = _groups(table, widths, base, gap, high)
    for chosen in groups:
        yield _columns(table, sorted([*keys, *chosen]))


def _groups(
    table: Table, widths: Sequence[int], base: int, gap: int, width: int
) -> list[list[int]]:
    """Columns beside the keys, a new group where one more would not fit."""
    groups: list[list[int]] = [[]]
    used = base
    for index, header in enumerate(table.headers):
        if header.key:
            continue
        if groups[-1] and used + gap + widths[index] > width:
            groups.append([])
            used = base
        groups[-1].append(index)
        used += gap + widths[index]
    return groups


def _columns(table: Table, chosen: Sequence[int]) -> Table:
    return replace(
        table,
        headers=tuple(table.headers[index] for index in chosen),
        lines=tuple(tuple(line[index] for index in chosen) for line in table.lines),
    )


def _without_repeats(table: Table) -> Table:
    """Blank a group cell that repeats the one above, until a group to its left changes."""
    groups = [index for index, header in enumerate(table.headers) if header.group]
    above: tuple[str, ...] = ()
    lines = []
    for line in table.lines:
        here = tuple(line[index].text for index in groups)
        same = 0
        while same < len(above) and above[same] == here[same]:
            same += 1
        blanked = set(groups[:same])
        lines.append(tuple(BLANK if i in blanked else cell for i, cell in enumerate(line)))
        above = here
    return replace(table, lines=tuple(lines))


def _widths(table: Table) -> list[int]:
    return [
        max([text_width(header.title), *(text_width(line[index].text) for line in table.lines)])
        for index, header in enumerate(table.headers)
    ]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * max(0, len(widths) - 1)
