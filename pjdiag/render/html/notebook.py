"""A result in a notebook: its page as HTML, and the report's figure of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pjdiag.errors import DataError, MissingDependencyError, pip_install
from pjdiag.render.html.drawers import figures_of
from pjdiag.render.html.figure import COLOURS, Figure
from pjdiag.render.html.pieces import table_html, text
from pjdiag.render.page import page
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.results import Result


def fragment(result: Result) -> str:
    """The sentence, the tables and what was skipped, as HTML without a script.

    >>> import pjdiag
    >>> fragment(pjdiag.mass(pjdiag.sample()))[:50]
    '<p><strong>Fourier-jet carries 79% of the effectiv'
    """
    words = page(result, Scope.MODEL, all_rows=False)
    parts = [f"<p><strong>{text(words.headline)}</strong></p>", f"<p>{text(words.facts)}</p>"]
    parts += [piece for table in words.tables for piece in table_html(table)]
    notes = [*words.warnings, *(f"skipped: {line}" for line in words.skipped)]
    return "\n".join([*parts, *(f"<p>{text(note)}</p>" for note in notes)])


def plot(result: Result, name: str | None = None) -> Any:
    """The report's figure ``name`` as a plotly Figure; without a name the first.

    Raises DataError where there is none, and MissingDependencyError without plotly.
    """
    found = {figure.name: figure for figure in figures_of(result)}
    if not found:
        raise DataError(
            f"there is no figure of this {result.diagnostic} result", "see its rows or its table"
        )
    if name is not None and name not in found:
        raise DataError(f"no figure {name!a}", f"the figures are {', '.join(found)}")
    return _drawn(found[name] if name is not None else next(iter(found.values())))


def _drawn(figure: Figure) -> Any:
    try:
        from plotly import graph_objects  # type: ignore[import-untyped]  # only a plot pays
    except ImportError as error:
        raise MissingDependencyError("a plot needs plotly", pip_install("plotly")) from error
    layout = {**figure.layout, "title": {"text": figure.title}}
    traces = [_coloured(trace) for trace in figure.traces]
    return graph_objects.Figure({"data": traces, "layout": _coloured(layout)})


def _coloured(value: Any) -> Any:
    """Names of colours as the colours on light paper."""
    if isinstance(value, str):
        return "#ffffff" if value == "--paper" else COLOURS.get(value, (value,))[0]
    if isinstance(value, dict):
        return {name: _coloured(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_coloured(item) for item in value]
    return value
