"""The report: everything that applies to a checkpoint on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pjdiag.diagnostics.survey import Survey
from pjdiag.diagnostics.survey_loo import LOO_ON_DATA
from pjdiag.render import numbers
from pjdiag.render.html.findings import findings
from pjdiag.render.html.pieces import figure_html, prose, table_html, text
from pjdiag.render.html.sections import Section, on_page, sections
from pjdiag.render.html.shell import document, header, short_name
from pjdiag.render.page import facts, skipped_lines
from pjdiag.render.sentences import headline
from pjdiag.results import Result

ANSWERS = ("mass", "spectrum", "energy", "loo", LOO_ON_DATA, "probe", "stability", "nll", "kernel")
"""Diagnostics whose sentences open the page, in this order."""
SECTION_OF = {"mass": "shares", "kernel": "measured", LOO_ON_DATA: "model-loo"}


@dataclass(frozen=True)
class Report:
    """What a page is made of."""

    survey: Survey
    command: str
    """Makes this page again."""
    data: str | None = None
    """Path of the text that was read."""
    reading: tuple[str, ...] = ()
    """Options it took to read the checkpoint."""


def report_page(report: Report) -> str:
    """The page; the same text for the same report. Raises MissingDependencyError without plotly."""
    parts = sections(report.survey, report.command, report.data, report.reading)
    figures = [figure for part in parts for figure in part.figures]
    results = [measured.result for measured in report.survey.measured.values()]
    name = short_name(results[0].checkpoint.get("path") if results else None)
    body = [
        *header("pjdiag report", name, facts(results[0]) if results else "", figures),
        *_navigation(parts),
        '<main id="main">',
        *_answer(report, results),
        *(piece for part in parts for piece in _section(part)),
        *_provenance(report, results, parts),
        "</main>",
    ]
    return document(f"{name} - pjdiag report", "answer", body, figures)


def _navigation(parts: Sequence[Section]) -> Iterator[str]:
    yield '<nav aria-label="Sections"><ul>'
    names = [
        ("answer", "Answer"),
        *((p.name, p.title) for p in parts),
        ("provenance", "Provenance"),
    ]
    for anchor, title in names:
        yield f'<li><a href="#{anchor}">{text(title)}</a></li>'
    yield "</ul></nav>"


def _answer(report: Report, results: Sequence[Result]) -> Iterator[str]:
    survey = report.survey
    yield '<section id="answer" aria-labelledby="answer-title"><h2 id="answer-title">Answer</h2>'
    sentences = [
        (name, headline(survey.measured[name].result))
        for name in ANSWERS
        if name in survey.measured and survey.measured[name].result.rows
    ]
    for index, (name, sentence) in enumerate(sentences):
        anchor = SECTION_OF.get(name, name)
        kind = "first" if index == 0 else "more"
        yield f'<p class="{kind}">{prose(sentence)}. <a href="#{anchor}">{name}</a></p>'
    found = findings(survey)
    if found:
        yield '<h3 id="standouts">What stands out</h3><ul>'
        yield from (f"<li>{prose(line)}</li>" for line in found)
        yield "</ul>"
    yield '<h3 id="skipped">What was skipped, and why</h3>'
    yield from _skipped(survey, results)
    yield "</section>"


def _skipped(survey: Survey, results: Sequence[Result]) -> Iterator[str]:
    lines = [f"{name}: {reason}" for name, reason in survey.left_out.items()]
    for result in results:
        if result.rows:
            lines += [f"{result.diagnostic}, {each}" for each in skipped_lines(result.skipped)]
    coverage = results[0].provenance.get("coverage") if results else None
    yield f"<p>Layers that could be read: {numbers.percent(coverage)}.</p>"
    if lines:
        yield "<ul>"
        yield from (f"<li>{prose(on_page(survey, line))}</li>" for line in lines)
        yield "</ul>"


def _section(part: Section) -> Iterator[str]:
    yield f'<section id="{part.name}" aria-labelledby="{part.name}-title">'
    yield f'<h2 id="{part.name}-title">{text(part.title)}</h2>'
    if part.empty:
        yield f'<p class="note">Nothing to show: {prose(part.empty)}.</p>'
    if part.lead:
        yield f"<p>{prose(part.lead)}</p>"
    if part.figures:
        yield '<div class="figures">'
        for figure in part.figures:
            yield from figure_html(figure)
        yield "</div>"
    if part.tables:
        yield f"<details{'' if part.figures else ' open'}><summary>In numbers</summary>"
        for each in part.tables:
            yield from table_html(each)
        yield "</details>"
    for note in part.notes:
        yield f'<p class="note">{prose(note)}</p>'
    if part.command:
        word = "With a text" if part.empty else "Again"
        yield f'<p class="again">{word}: <code>{text(part.command)}</code></p>'
    yield "</section>"


def _provenance(
    report: Report, results: Sequence[Result], parts: Sequence[Section]
) -> Iterator[str]:
    yield '<section id="provenance" aria-labelledby="provenance-title">'
    yield '<h2 id="provenance-title">Provenance</h2>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Where this comes from">'
    yield "<table><caption>Where this comes from</caption><tbody>"
    if results:
        for name, value in results[0].checkpoint.items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            yield _fact(name.replace("_", " "), shown)
        yield _fact("pjdiag", results[0].provenance.get("tool_version"))
    for result in results:
        for name in ("data", "data_digest"):
            if result.provenance.get(name):
                yield _fact(
                    f"{result.diagnostic}: {name.replace('_', ' ')}", result.provenance[name]
                )
    yield "</tbody></table></div>"
    yield "<h3>How to make each figure again</h3><dl>"
    yield f"<dt>this page</dt><dd><code>{text(report.command)}</code></dd>"
    for part in parts:
        if part.command and not part.empty:
            yield f"<dt>{text(part.title)}</dt><dd><code>{text(part.command)}</code></dd>"
    yield "</dl><p>Add <code>-o json</code> for every row with its provenance.</p></section>"


def _fact(name: str, value: object) -> str:
    shown = numbers.UNKNOWN if value is None else value
    return f'<tr><th scope="row">{text(name)}</th><td>{text(shown)}</td></tr>'
