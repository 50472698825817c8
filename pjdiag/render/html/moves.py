"""Figures of a comparison: how shares and orders went over the checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.compared import (
    checkpoints,
    figure_title,
    first_name,
    kind_of,
    step_labels,
    subject,
)
from pjdiag.render.html.figure import Data, Figure, axes, bars, heat, line, rounded
from pjdiag.render.places import coarsest
from pjdiag.render.text import capitalised
from pjdiag.render.views.compare import traced_rows
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Scope, Sector

SETTINGS = "inspect"
"""What a model is built of has no course; its table tells it."""
MOST_FIGURES = 4
MOST_LINES = 7


def move_figures(result: Result) -> Iterator[Figure]:
    """A line for each part over the checkpoints, one figure for each kind of share or order.

    Two checkpoints are bars side by side. With more, a map of each sector's share by layer.
    """
    others = list(dict.fromkeys(row["compared"] for row in result.rows))
    place = next(iter(coarsest(result.rows)), None)
    if place is None:
        return
    several = len({row.get("family") for row in place.rows}) > 1
    groups: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in traced_rows(place.rows):
        if row["measured"] == SETTINGS:
            continue
        parts = groups.setdefault((str(row["measured"]), str(row["figure"])), {})
        parts.setdefault(subject(row, family=several) or figure_title(row), []).append(row)
    for (measured, name), parts in list(groups.items())[:MOST_FIGURES]:
        chosen = dict(list(parts.items())[:MOST_LINES])
        where = f"the {place.label}" if place.scope == Scope.MODEL else place.label
        yield _over(result, others, f"{measured}-{name.replace('_', '-')}", chosen, where)
    if len(others) > 1:
        yield from _layer_maps(result, others)


def _over(
    result: Result, others: Sequence[str], name: str, parts: dict[str, list[Row]], where: str
) -> Figure:
    stepped, labels = step_labels(result, others)
    shared, parts = _without_shared(parts)
    names = [first_name(result), *others]
    curves = {label: _curve(rows, others) for label, rows in parts.items()}
    traces: list[dict[str, Any]]
    if len(others) == 1:
        traces = [
            bars(index, each, list(curves), [curve[index] for curve in curves.values()])
            for index, each in enumerate(names)
        ]
    else:
        traces = [
            line(index, label, labels, curve) for index, (label, curve) in enumerate(curves.items())
        ]
    first = next(iter(parts.values()))[0]
    title = capitalised(figure_title(first))
    if shared:
        title += f", {shared}"
    top = max(curves, key=lambda label: _moved(curves[label]))
    write = numbers.percent if kind_of(first) == "share" else numbers.figure
    ends = [write(value) for value in (curves[top][0], curves[top][-1])]
    moved = f"{top} moved most, from {ends[0]} to {ends[1]}"
    caption = f"{title} of {where} from {names[0]} to {names[-1]}: "
    caption += f"{moved if _moved(curves[top]) else 'the same at both ends'}."
    axis = "training step" if stepped else "checkpoint"
    kind = {} if stepped and len(others) > 1 else {"xaxis_type": "category"}
    unit = "share" if kind_of(first) == "share" else figure_title(first)
    layout = axes(axis if len(others) > 1 else "", unit, yaxis_rangemode="tozero", **kind)
    if len(others) == 1:
        layout["barmode"] = "group"
    rows = [
        (each, label, curve[index])
        for index, each in enumerate(labels)
        for label, curve in curves.items()
    ]
    data = Data((axis.replace("training ", ""), "of", figure_title(first)), tuple(rows))
    return Figure(f"over-{name}", title, caption, tuple(traces), layout, data)


def _without_shared(parts: dict[str, list[Row]]) -> tuple[str, dict[str, list[Row]]]:
    """What all names begin with, such as ``both jets``, and the parts by what is left of them."""
    heads = {label.partition(", ")[0] for label in parts}
    if len(parts) < 2 or len(heads) > 1 or not all(", " in label for label in parts):
        return "", parts
    return heads.pop(), {label.partition(", ")[2]: rows for label, rows in parts.items()}


def _curve(rows: Sequence[Row], others: Sequence[str]) -> list[Any]:
    """A part's figure in the first checkpoint and in each other one."""
    found = {row["compared"]: rounded(row["value_b"]) for row in rows}
    return [rounded(rows[0]["value_a"]), *(found.get(other) for other in others)]


def _moved(curve: Sequence[Any]) -> float:
    """How far the last figure lies from the first."""
    first, last = curve[0], curve[-1]
    return 0.0 if first is None or last is None else float(abs(last - first))


def _layer_maps(result: Result, others: Sequence[str]) -> Iterator[Figure]:
    """Share of each sector by layer and checkpoint."""
    _, labels = step_labels(result, others)
    layers = [
        row
        for row in result.select(scope="layer", figure="sector_share")
        if row["value_a"] is not None or row["value_b"] is not None
    ]
    for sector in Sector:
        rows = [row for row in layers if row.get("sector") == sector.value]
        if not rows:
            continue
        cells: dict[tuple[int, Any], float | None] = {}
        for layer in sorted({row["layer"] for row in rows}):
            own = [row for row in rows if row["layer"] == layer]
            for label, value in zip(labels, _curve(own, others), strict=True):
                cells[layer, _label(label)] = value
        title = SECTOR_TITLES[sector]
        traces, layout = heat(cells, unit="share", share=True, columns="checkpoint")
        yield Figure(
            f"over-layers-{sector.value}",
            f"Share of {title} by layer",
            f"Share of {title} in the effective mass of each layer, from {first_name(result)} to "
            f"{others[-1]}.",
            traces,
            layout,
            Data(
                ("layer", "checkpoint", "sector_share"),
                tuple((layer, label, value) for (layer, label), value in cells.items()),
            ),
        )


def _label(label: Any) -> str:
    return numbers.count(label) if isinstance(label, int) else str(label)


def described(result: Result) -> list[tuple[str, Any]]:
    """Facts on each checkpoint that was compared."""
    return [
        (str(each.get("name")), ", ".join(str(each[k]) for k in ("path", "digest") if each.get(k)))
        for each in checkpoints(result)
    ]
