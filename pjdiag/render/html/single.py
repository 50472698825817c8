"""One result as a page of its own: the answer, its figures, its tables, where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pjdiag.render import numbers
from pjdiag.render.html.drawers import figures_of
from pjdiag.render.html.figure import Figure
from pjdiag.render.html.moves import described
from pjdiag.render.html.pieces import figure_html, prose, table_html, text
from pjdiag.render.html.shell import document, header, short_name
from pjdiag.render.page import Page, page
from pjdiag.results import Result
from pjdiag.terms import Scope

FACTS = ("path", "format", "digest", "dtype", "adapter", "train_length")
SETTINGS = ("command", "seed", "data", "data_digest", "coverage")


def result_page(result: Result, by: Scope, all_rows: bool) -> str:
    """The page of ``result`` down to the scope ``by``; everything from a file is text.

    Raises MissingDependencyError without plotly where the result has figures.

    >>> import pjdiag
    >>> text = result_page(pjdiag.inspect(pjdiag.sample()), Scope.LAYER, all_rows=False)
    >>> text[:15], "plotly" in text, len(text) < 50_000
    ('<!doctype html>', False, True)
    """
    words = page(result, by, all_rows)
    figures = figures_of(result)
    name = _name(result)
    body = [
        *header(f"pjdiag {result.diagnostic}", name, words.facts, figures),
        '<main id="main">',
        *_answer(words),
        *_figures(figures),
        *_numbers(words),
        *_provenance(result, words),
        "</main>",
    ]
    return document(f"{name} - pjdiag {result.diagnostic}", "answer", body, figures)


def _name(result: Result) -> str:
    compared = [name for name, _ in described(result)]
    if compared:
        more = f" and {len(compared) - 2} more" if len(compared) > 2 else ""
        return f"{compared[0]} against {compared[-1]}{more}"
    tried = list(dict.fromkeys(str(row.get("experiment")) for row in result.rows))
    if result.diagnostic == "reproduce" and tried:
        return tried[0] if len(tried) == 1 else f"{len(tried)} experiments"
    return short_name(result.checkpoint.get("path"))


def _answer(words: Page) -> Iterator[str]:
    yield '<section id="answer" aria-labelledby="answer-title"><h2 id="answer-title">Answer</h2>'
    yield f'<p class="first">{prose(words.headline)}.</p>'
    notes = [*(f"warning: {each}" for each in words.warnings)]
    notes += [f"skipped: {each}" for each in words.skipped]
    if notes:
        yield "<ul>"
        yield from (f"<li>{prose(note)}</li>" for note in notes)
        yield "</ul>"
    yield "</section>"


def _figures(figures: Sequence[Figure]) -> Iterator[str]:
    if not figures:
        return
    yield '<section id="pictures" aria-labelledby="pictures-title">'
    yield '<h2 id="pictures-title">Figures</h2><div class="figures">'
    for figure in figures:
        yield from figure_html(figure)
    yield "</div></section>"


def _numbers(words: Page) -> Iterator[str]:
    if not words.tables:
        return
    yield '<section id="numbers" aria-labelledby="numbers-title">'
    yield '<h2 id="numbers-title">In numbers</h2>'
    for each in words.tables:
        yield from table_html(each)
    yield "</section>"


def _provenance(result: Result, words: Page) -> Iterator[str]:
    yield '<section id="provenance" aria-labelledby="provenance-title">'
    yield '<h2 id="provenance-title">Provenance</h2>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Where this comes from">'
    yield "<table><caption>Where this comes from</caption><tbody>"
    facts = [(name.replace("_", " "), result.checkpoint.get(name)) for name in FACTS]
    facts += [(name.replace("_", " "), result.provenance.get(name)) for name in SETTINGS]
    facts += [("pjdiag", result.provenance.get("tool_version"))]
    facts += described(result)
    for name, value in facts:
        if value is not None:
            shown = numbers.percent(value) if name == "coverage" else value
            yield f'<tr><th scope="row">{text(name)}</th><td>{text(shown)}</td></tr>'
    yield "</tbody></table></div>"
    if words.next_command:
        yield f'<p class="again">Next: <code>{text(words.next_command)}</code></p>'
    yield "<p>Every row with its provenance: <code>-o json</code>.</p></section>"
