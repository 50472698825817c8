"""What every page has around its sections: head, style, script and figures; nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from pjdiag.errors import MissingDependencyError, pip_install
from pjdiag.render.html.figure import COLOURS, Figure
from pjdiag.render.html.pieces import text

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""The page may fetch nothing, whatever a script in it asks for."""


def document(title: str, skip: str, body: Iterable[str], figures: Sequence[Figure]) -> str:
    """A page of its own. ``skip`` names the section that its first link leads to.

    Without figures it is small: plotly is left out. Raises MissingDependencyError where there
    are figures and plotly is not installed.
    """
    script = _plotly() if figures else ""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{text(title)}</title>",
            f"<style>\n{_colours()}\n{_asset('style.css')}</style>",
            "</head>",
            "<body>",
            f'<a class="skip" href="#{skip}">Skip to the {skip}</a>',
            *body,
            f'<script type="application/json" id="figures">{script_json(_drawn(figures))}</script>',
            *([f"<script>{script}</script>"] if script else []),
            f"<script>\n{_asset('page.js')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def header(kind: str, name: str, facts: str, figures: Sequence[Figure]) -> Iterable[str]:
    """The page's heading, with the switch between light and dark paper."""
    yield "<header>"
    yield f"<p class=kind>{text(kind)}</p><h1>{text(name)}</h1>"
    if facts:
        yield f"<p>{text(facts)}</p>"
    yield '<button type="button" id="theme" aria-pressed="false">Dark</button>'
    if figures:
        yield (
            '<p class="note" id="needs-script">The figures need JavaScript; sentences and tables '
            "do not.</p>"
        )
    yield "</header>"


def short_name(path: object) -> str:
    """A file with its folder.

    >>> short_name("runs/a/model.safetensors"), short_name(None)
    ('a/model.safetensors', 'checkpoint')
    """
    return "/".join(str(path or "checkpoint").replace("\\", "/").rstrip("/").split("/")[-2:])


def script_json(value: Any) -> str:
    r"""JSON that cannot end the script element it stands in.

    >>> script_json({"a": "</script><!--"})
    '{"a":"\\u003c/script\\u003e\\u003c!--"}'
    """
    written = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def require_plotly() -> None:
    """Raises MissingDependencyError where plotly is not installed; does not import it."""
    if find_spec("plotly") is None:
        raise MissingDependencyError("a page with figures needs plotly", pip_install("plotly"))


def _plotly() -> str:
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # only a page pays

    source: str = get_plotlyjs()
    return source.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return files("pjdiag.render.html").joinpath(name).read_text(encoding="utf-8")


def _colours() -> str:
    light = "".join(f"{name}:{pair[0]};" for name, pair in COLOURS.items())
    dark = "".join(f"{name}:{pair[1]};" for name, pair in COLOURS.items())
    return (
        f":root{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}\n"
        f"@media print{{:root,:root:not([data-theme=light]),:root[data-theme=dark]{{{light}}}}}"
    )


def _drawn(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    return [
        {
            "name": figure.name,
            "traces": figure.traces,
            "layout": figure.layout,
            "switch": figure.switch,
            "headers": figure.data.headers,
            "rows": figure.data.rows,
            "choices": [{"label": each.label, "curves": each.curves} for each in figure.choices],
        }
        for figure in figures
    ]
