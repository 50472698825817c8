"""A figure as plain data: what plotly draws, what a reader hears, and the table behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.html.shades import BLACK, SCALE, WHITE, ink, shade

Trace = dict[str, Any]

COLOURS = {
    "--fj": ("#0072b2", "#56b4e9"),
    "--affine": ("#b34700", "#ff9a52"),
    "--lc": ("#007a57", "#2fc99b"),
    "--total": ("#1f2430", "#e8eaf0"),
    "--pink": ("#a8427f", "#e6a0c8"),
    "--gold": ("#8a6100", "#f0c04a"),
    "--muted": ("#5b6270", "#a9b0bf"),
}
"""Name in a figure -> colour on light and on dark paper; told apart by colour-blind eyes too."""
SEQUENCE = ("--fj", "--affine", "--lc", "--pink", "--gold", "--muted", "--total")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
"""Lines differ by dash and marker as well as by colour."""
UNSEEN = "\u200b"
"""A character without width."""


@dataclass(frozen=True)
class Data:
    """The table behind a figure: raw values, None where there is none."""

    headers: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Choice:
    """One entry of a figure's picker: the y values of each trace, over the figure's own x."""

    label: str
    curves: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Figure:
    """One figure."""

    name: str
    """Unique on the page; also the name of its CSV file."""
    title: str
    caption: str
    """A sentence that says what is seen; read out in place of the picture."""
    traces: tuple[Trace, ...]
    layout: dict[str, Any]
    data: Data
    choices: tuple[Choice, ...] = ()
    """For a picker; the first is shown."""
    switch: str = ""
    """``x`` or ``y``: this axis can be switched between linear and logarithmic."""
    wide: bool = False
    """Takes the whole width."""


def rounded(value: Any, digits: int = 5) -> Any:
    """``value`` as a JSON number of ``digits`` significant digits; None where not finite.

    >>> rounded(0.123456789), rounded(float("nan")), rounded(3), rounded("train")
    (0.12346, None, 3, 'train')
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    number = float(value)
    return float(f"{number:.{digits - 1}e}") if math.isfinite(number) else None


def column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """One column of rows."""
    return [rounded(row.get(name)) for row in rows]


def table(rows: Sequence[dict[str, Any]], *names: str) -> Data:
    """Rows as the table behind a figure; a column that is empty throughout is left out."""
    kept = [name for name in names if any(row.get(name) is not None for row in rows)]
    return Data(tuple(kept), tuple(tuple(rounded(row.get(n)) for n in kept) for row in rows))


def line(index: int, name: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Trace:
    """A line with markers in the ``index``-th colour, dash and symbol."""
    turn = index % len(SEQUENCE)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": SEQUENCE[turn], "dash": DASHES[turn], "width": 2},
        "marker": {"color": SEQUENCE[turn], "symbol": SYMBOLS[turn], "size": 8},
        **more,
    }


def bars(index: int, name: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Trace:
    """Bars in the ``index``-th colour."""
    patterns = ("", "/", ".", "x", "\\", "-", "+")
    turn = index % len(SEQUENCE)
    shape = {
        "shape": patterns[turn],
        "fillmode": "overlay",
        "fgcolor": "--paper",
        "fgopacity": 0.55,
        "size": 7,
    }
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": list(y),
        "marker": {"color": SEQUENCE[turn], "pattern": shape, "line": {"width": 0}},
        **more,
    }


def heat(
    cells: dict[tuple[int, Any], float | None],
    *,
    unit: str,
    share: bool = False,
    rows: str = "layer",
    columns: str = "head",
) -> tuple[tuple[Trace, ...], dict[str, Any]]:
    """A map of ``(row, column) -> value`` and its layout; figures in the cells where they fit."""
    down = sorted({key[0] for key in cells})
    across = list(dict.fromkeys(key[1] for key in sorted(cells, key=lambda key: key[0])))
    if columns == "head":
        across = sorted(across)
    values = [[rounded(cells.get((row, each))) for each in across] for row in down]
    low, high = (0.0, 1.0) if share else _range(values)
    form = "%{z:.1%}" if share else "%{z:.2g}"
    trace = {
        "type": "heatmap",
        "x": [str(each) for each in across],
        "y": [str(row) for row in down],
        "z": values,
        "zmin": low,
        "zmax": high,
        "colorscale": SCALE,
        "hoverongaps": False,
        "xgap": 1 if len(across) <= 16 else 0,
        "ygap": 1 if len(across) <= 16 else 0,
        "colorbar": {"thickness": 10, "title": {"text": unit, "side": "right"}},
        "hovertemplate": f"{rows} %{{y}}, {columns} %{{x}}: {form}<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": columns}, "type": "category", "showgrid": False},
        "yaxis": {
            "title": {"text": rows},
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
        },
        "height": max(240, min(760, 130 + 26 * len(down))),
        "showlegend": False,
    }
    write = numbers.percent if share else partial(numbers.figure, digits=2)
    if len(across) > 8 or len(down) > 16:  # they do not fit
        return (trace,), layout
    written = [  # of the values themselves: rounded, all but the whole is the whole
        ["" if z is None else write(cells[row, each]) for each, z in zip(across, own, strict=True)]
        for row, own in zip(down, values, strict=True)
    ]
    return _labelled(trace, written), layout


def _range(values: list[list[Any]]) -> tuple[float, float]:
    """The ends of the scale; of one value alone half a unit around it."""
    known = [float(value) for row in values for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _labelled(trace: Trace, written: list[list[str]]) -> tuple[Trace, ...]:
    """The map with its figures ``written``, each in the ink that its cell asks for.

    A map's labels have one colour, so that those in black are those of a second map, which
    consists of their cells alone. Both have a label in every cell, of the same length, since their
    sizes are made to fit by that.
    """
    low, high = trace["zmin"], trace["zmax"]
    inks = [
        ["" if value is None else ink(shade((value - low) / (high - low))) for value in row]
        for row in trace["z"]
    ]

    def texts(colour: str) -> list[list[str]]:
        return [
            [_label(text, shown == colour) for text, shown in zip(row, own, strict=True)]
            for row, own in zip(written, inks, strict=True)
        ]

    def labels(colour: str) -> Trace:
        return {"text": texts(colour), "texttemplate": "%{text}", "textfont": {"color": colour}}

    used = {each for row in inks for each in row} - {""}
    if used <= {WHITE} or used == {BLACK}:
        return ({**trace, **labels(used.pop() if used else WHITE)},)
    bright = [
        [value if shown == BLACK else None for value, shown in zip(row, own, strict=True)]
        for row, own in zip(trace["z"], inks, strict=True)
    ]
    over = {**trace, **labels(BLACK), "z": bright, "showscale": False, "hoverinfo": "skip"}
    return {**trace, **labels(WHITE)}, over


def _label(written: str, shown: bool) -> str:
    """A figure as a cell shows it, or as much without width; nothing where there is none."""
    return written if shown else UNSEEN * len(written)


def axes(x: str, y: str, **more: Any) -> dict[str, Any]:
    """A layout with two titled axes; keywords such as ``xaxis_type`` reach into it."""
    layout: dict[str, Any] = {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
    for name, value in more.items():
        axis, _, key = name.partition("_")
        if key and axis in layout:
            layout[axis][key] = value
        else:
            layout[name] = value
    return layout
