"""A page on a terminal, in a pipe or in a text file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from rich.box import Box
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from pjdiag.render.layout import Part, glyphs_for, laid_out
from pjdiag.render.page import Page, page
from pjdiag.render.tables import Table
from pjdiag.render.text import visible
from pjdiag.results import Result
from pjdiag.terms import Scope

UNLIMITED = 100_000
"""Width where nothing sets one: a pipe or a file must not clip a name."""
NARROWEST = 20
PLAIN_WIDTH = 100


@dataclass(frozen=True)
class Target:
    """What the text is written for."""

    width: int
    color: bool
    encoding: str


def render_console(
    result: Result,
    stream: TextIO,
    *,
    by: Scope,
    all_rows: bool,
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write the page of ``result`` to ``stream``, in characters that it can encode.

    ``color`` and ``width`` (columns) are by default what the stream and the environment ask
    for. OSError of the stream passes through.
    """
    target = target_of(stream, color=color, width=width)
    stream.write(page_text(page(result, by, all_rows), target))
    stream.flush()


def plain(result: Result) -> str:
    """The page of ``result`` as the command prints it, without colour, 100 columns wide.

    >>> plain(Result("mass", {"path": "a.pt"}, {}, ())).splitlines()[1]
    'a.pt'
    """
    target = Target(PLAIN_WIDTH, color=False, encoding="utf-8")
    return page_text(page(result, Scope.MODEL, all_rows=False), target).rstrip("\n")


def print_tables(headline: str, tables: Iterable[Table], stream: TextIO) -> None:
    """Write tables that belong to no Result, such as the plugins, as a page with ``headline``."""
    made = Page(headline, "", tuple(table for table in tables if table.lines))
    stream.write(page_text(made, target_of(stream)))
    stream.flush()


def target_of(stream: TextIO, *, color: bool | None = None, width: int | None = None) -> Target:
    """Width, colour and encoding for ``stream``.

    COLUMNS sets the width; otherwise a terminal has its own and anything else none. Colour
    only on a terminal that understands it, and never with NO_COLOR.
    """
    terminal = stream.isatty()
    if color is None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
        color = terminal and not plain
    if width is None:
        width = _width(stream if terminal else None)
    return Target(max(width, NARROWEST), color, getattr(stream, "encoding", None) or "utf-8")


def page_text(content: Page, target: Target) -> str:
    """The page as text for ``target``."""
    console = Console(
        file=io.StringIO(),
        width=target.width,
        force_terminal=target.color,
        color_system="standard" if target.color else None,
        legacy_windows=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    for block in _blocks(content, target):
        console.print(block, soft_wrap=isinstance(block, _Unwrapped))
    written = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO, made above
    return "".join(f"{line.rstrip()}\n" for line in written.splitlines())


class _Unwrapped(Text):
    """Text that fits its width, or that is to be copied: a terminal may break it, we do not."""


def _blocks(content: Page, target: Target) -> Iterator[Text | RichTable]:
    def text(words: str, style: str = "") -> Text:
        return Text(visible(words, target.encoding), style=style)

    if content.headline:
        yield text(content.headline, "bold")
    if content.facts:
        yield text(content.facts, "dim")
    for table in content.tables:
        yield Text("")
        yield text(table.title, "cyan")
        for part in laid_out(table, target.width, target.encoding):
            rule = glyphs_for(target.encoding).rule
            yield _fitting(part, rule) if part.fits else _wrapping(part, rule)
        if table.note:
            yield text(table.note, "dim")
        if table.hidden:
            yield text(f"{table.left_out}: --all prints them", "dim")
    if content.warnings or content.skipped:
        yield Text("")
    for warning in content.warnings:
        yield text(f"warning: {warning}", "yellow")
    for line in content.skipped:
        yield text(f"skipped: {line}", "yellow")
    if content.next_command:
        yield Text("")
        yield _Unwrapped(f"Next: {visible(content.next_command, target.encoding)}")


def _fitting(part: Part, rule: str) -> Text:
    """A table of which every line is one line; laying it out cell by cell would take seconds."""
    header = "\n".join(part.header_lines())
    return _Unwrapped.assemble(
        (header, "bold"), "\n", rule * part.width, "\n", "\n".join(part.text_lines())
    )


def _wrapping(part: Part, rule: str) -> RichTable:
    made = RichTable(
        box=_box(rule),
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, part.gap - 1),
        header_style="bold",
    )
    for header in part.table.headers:
        justify: JustifyMethod = "right" if header.numeric else "left"
        made.add_column(Text(header.title), justify=justify, overflow="fold")
    for line in part.table.lines:
        made.add_row(*(Text(cell.text) for cell in line))
    return made


def _box(rule: str) -> Box:
    blank = "    \n"
    return Box(blank * 2 + f"{rule * 4}\n" + blank * 5, ascii=rule.isascii())


def _width(terminal: TextIO | None) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return int(columns)
    if terminal is None:
        return UNLIMITED
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
