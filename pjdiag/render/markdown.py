"""A page as GitHub markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pjdiag.render.page import Page, page
from pjdiag.render.tables import Table
from pjdiag.render.text import visible
from pjdiag.results import Result
from pjdiag.terms import Scope

_ACTIVE = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def to_markdown(result: Result, *, by: Scope, all_rows: bool) -> str:
    """The page of ``result`` as GitHub markdown, ending in a newline.

    Everything that comes from a checkpoint is escaped: it can start no markup, link or mention.
    """
    return "\n".join(_lines(page(result, by, all_rows)))


def escaped(text: str) -> str:
    r"""Text that markdown and HTML show as it is, on one line.

    >>> escaped("a|b`<i>\n")
    'a\\|b\\`&lt;i&gt;\\\\n'
    """
    shown = "".join(_ENTITIES.get(character, character) for character in visible(text))
    return _ACTIVE.sub(_backslash, shown)


def _backslash(match: re.Match[str]) -> str:
    """Escape what is active, except where it is part of an entity or only joins words."""
    character, text, place = match.group(), match.string, match.start()
    if character == "#" and text[place - 1 : place] == "&":
        return character
    inside_word = text[place - 1 : place].isalnum() and text[place + 1 : place + 2].isalnum()
    if character in "-+()!#$" and (inside_word or place > 0):
        return character
    return f"\\{character}"


def _lines(content: Page) -> Iterator[str]:
    yield f"**{escaped(content.headline)}**"
    if content.facts:
        yield ""
        yield escaped(content.facts)
    for table in content.tables:
        yield ""
        yield f"### {escaped(table.title)}"
        yield ""
        yield from _table(table)
        if table.note:
            yield ""
            yield escaped(table.note)
        if table.hidden:
            yield ""
            yield f"{table.left_out}: `--all` prints them"
    if content.warnings or content.skipped:
        yield ""
    for warning in content.warnings:
        yield f"- warning: {escaped(warning)}"
    for line in content.skipped:
        yield f"- skipped: {escaped(line)}"
    if content.next_command:
        yield ""
        yield f"Next: {_code(content.next_command)}"
    yield ""


def _table(table: Table) -> Iterator[str]:
    titles = (header.title.replace("\n", " ") for header in table.headers)
    yield _row(titles)
    yield "|" + "|".join("---:" if header.numeric else "---" for header in table.headers) + "|"
    for line in table.lines:
        yield _row(cell.text for cell in line)


def _row(cells: Iterator[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def _code(text: str) -> str:
    """A code span around any text: its fence is longer than every run of backticks inside."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if "`" in shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
