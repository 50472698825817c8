"""Figures and tables as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from pjdiag.render.html.figure import Figure
from pjdiag.render.tables import Table
from pjdiag.render.text import visible

_QUOTED = re.compile(r"`([^`]+)`")


def text(value: object) -> str:
    """Any text as text: nothing of it is markup, nothing invisible.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return escape(visible(str(value)))


def prose(value: object) -> str:
    """As ``text``; what stands between backticks is code.

    >>> prose("see `pjdiag gate <file>`")
    'see <code>pjdiag gate &lt;file&gt;</code>'
    """
    return _QUOTED.sub(r"<code>\1</code>", text(value))


def figure_html(figure: Figure) -> Iterator[str]:
    """A figure with its controls, its sentence, its table and its download."""
    name = figure.name
    yield f'<figure id="figure-{name}"{" class=wide" if figure.wide else ""}>'
    yield f"<h3>{text(figure.title)}</h3>"
    if figure.choices or figure.switch:
        yield '<div class="controls">'
        if figure.choices:
            yield f'<label>Head <select data-pick="{name}">'
            for index, choice in enumerate(figure.choices):
                yield f'<option value="{index}">{text(choice.label)}</option>'
            yield "</select></label>"
        if figure.switch:
            on = figure.layout[f"{figure.switch}axis"].get("type") == "log"
            yield (
                f'<label><input type="checkbox" data-log="{name}"{" checked" if on else ""}> '
                f"Logarithmic {'lag' if figure.switch == 'x' else 'scale'}</label>"
            )
        yield "</div>"
    caption, title = text(figure.caption), text(figure.title)
    yield f'<div class="plot" id="plot-{name}" role="img" aria-label="{caption}"></div>'
    yield f"<figcaption>{caption}</figcaption>"
    yield (
        f'<details data-table="{name}"><summary>Table: {text(figure.title)}</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: '
        f'{text(figure.title)}"></div></details>'
    )
    yield (
        f'<button type="button" data-csv="{name}">CSV<span class="hidden"> of {title}</span>'
        "</button></figure>"
    )


def table_html(each: Table) -> Iterator[str]:
    """A table of words and numbers."""
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{text(each.title)}">'
    yield f"<table><caption>{text(each.title)}</caption><thead><tr>"
    for header in each.headers:
        kind = " class=number" if header.numeric else ""
        yield f'<th scope="col"{kind}>{text(" ".join(header.title.split()))}</th>'
    yield "</tr></thead><tbody>"
    for cells in each.lines:
        row = "".join(
            f"<td{' class=number' if header.numeric else ''}>{text(cell.text)}</td>"
            for header, cell in zip(each.headers, cells, strict=True)
        )
        yield f"<tr>{row}</tr>"
    yield "</tbody></table></div>"
    if each.note:
        yield f'<p class="note">{text(each.note)}</p>'
    if each.hidden:
        yield f'<p class="note">{each.left_out}; <code>--all</code> prints them.</p>'
