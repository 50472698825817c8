"""Figures of experiments: one for each thing that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.html.figure import Figure, Trace, axes, bars, line, rounded, table
from pjdiag.render.views.reproduce import over_seeds, part_kind
from pjdiag.results import Result, Row

COLUMNS = ("subject", "variant", "part", "seed", "eval_length", "value", "ci_low", "ci_high", "n")
MOST_TRACES = 14
WIDE_RANGE = 1e3
"""Values that span more are drawn over a logarithmic axis, unless none is above 1."""
LOWEST = -1.0
"""Of figures that are at most 1, such as R^2: what lies below is cut off."""


def experiment_figures(result: Result) -> Iterator[Figure]:
    """A figure for each measured thing of each experiment, and for each kind of part: over length,
    or over subjects.
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in over_seeds(result.rows):
        if row["value"] is not None and row["layer"] is None:
            name = (str(row["experiment"]), str(row["figure"]), part_kind(row["part"]))
            groups.setdefault(name, []).append(row)
    for (experiment, figure, kind), rows in groups.items():
        for subject, own in _parted(rows):
            yield _figure(experiment, figure, " ".join(filter(None, (kind, subject))), own)


def _parted(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows by subject where all in one figure would be too many lines."""
    things = {(row["variant"], row["subject"], row["part"]) for row in rows}
    if len(things) <= MOST_TRACES or len({row["eval_length"] for row in rows}) < 2:
        yield "", rows
        return
    for subject in dict.fromkeys(str(row["subject"]) for row in rows):
        yield subject, [row for row in rows if row["subject"] == subject]


def _figure(experiment: str, figure: str, of: str, rows: list[Row]) -> Figure:
    lengths = sorted({row["eval_length"] for row in rows if row["eval_length"] is not None})
    by_length = len(lengths) > 1
    title = figure.replace("_", " ")
    unit = next((row["unit"] for row in rows if row["unit"]), "") or title
    x_of, x_title = _across(rows, by_length)
    named = _telling(rows, x_title)
    traces: dict[str, list[Row]] = {}
    for row in rows:
        traces.setdefault(_label(row, named), []).append(row)
    drawn = list(traces.items())[:MOST_TRACES]
    types = _axis_types(rows, lengths if by_length else [])
    draw = line if by_length else dots if types.get("yaxis_type") == "log" else bars
    layout = axes(x_title, unit, **types)
    left_out = len(traces) - len(drawn)
    most, least = (pick(rows, key=lambda row: row["value"]) for pick in (max, min))
    caption = (
        f"{title.capitalize()} in {experiment}: from {numbers.figure(least['value'])} "
        f"({_name(least)}) to {numbers.figure(most['value'])} ({_name(most)})."
    )
    if "yaxis_range" in types:
        caption += f" What lies below {LOWEST:g} is cut off; the table has it."
    if left_out:
        caption += f" {left_out} more are in the table only."
    return Figure(
        "-".join(filter(None, (experiment, figure, of.replace(" ", "-")))),
        ", ".join(filter(None, (title.capitalize(), of, experiment))),
        caption,
        tuple(_trace(draw, index, name, own, x_of) for index, (name, own) in enumerate(drawn)),
        layout,
        table(rows, *COLUMNS),
        wide=True,
    )


def _across(rows: Sequence[Row], by_length: bool) -> tuple[Callable[[Row], Any], str]:
    """What lies along the x axis, and its title."""
    if by_length:
        return lambda row: row["eval_length"], "length in tokens"
    parts = {row["part"] for row in rows}
    if len(parts) > 1:
        return lambda row: row["part"] or "whole", "part"
    return lambda row: row["subject"], "subject"


def dots(index: int, name: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Trace:
    """Markers alone: a bar has no foot on a logarithmic axis."""
    return {**line(index, name, x, y, **more), "mode": "markers"}


def _telling(rows: Sequence[Row], x_title: str) -> list[str]:
    """Columns that the x axis does not say and that tell rows apart."""
    names = [name for name in ("variant", "part", "subject", "seed") if name != x_title]
    return [name for name in names if len({row[name] for row in rows}) > 1]


def _label(row: Row, names: Sequence[str]) -> str:
    """What a trace is of."""
    found = {name: row[name] for name in names if row[name] is not None}
    words = [f"seed {value}" if name == "seed" else str(value) for name, value in found.items()]
    return ", ".join(words) or str(row["variant"] or row["subject"])


def _name(row: Row) -> str:
    found = [str(row[name]) for name in ("subject", "variant", "part") if row[name] is not None]
    return ", ".join(found)


def _trace(
    draw: Callable[..., Trace],
    index: int,
    name: str,
    rows: list[Row],
    x_of: Callable[[Row], Any],
) -> Trace:
    ordered = sorted(rows, key=lambda row: row["eval_length"] or 0)
    x, y = [x_of(row) for row in ordered], [rounded(row["value"]) for row in ordered]
    if all(row["ci_low"] is None for row in rows):
        return draw(index, name, x, y)
    reach = {
        "type": "data",
        "symmetric": False,
        "array": [_arm(row["value"], row["ci_high"]) for row in ordered],
        "arrayminus": [_arm(row["ci_low"], row["value"]) for row in ordered],
    }
    return draw(index, name, x, y, error_y=reach)


def _arm(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else float(rounded(high - low))


def _axis_types(rows: Sequence[Row], lengths: Sequence[int]) -> dict[str, Any]:
    values = [row["value"] for row in rows]
    found: dict[str, Any] = {}
    if max(values) > 1 and min(values) > 0 and max(values) > WIDE_RANGE * min(values):
        found["yaxis_type"] = "log"
    if max(values) <= 1 and min(values) < LOWEST:
        found["yaxis_range"] = [LOWEST, 1.05]
    if lengths:
        found |= {
            "xaxis_type": "log",
            "xaxis_tickvals": list(lengths),
            "xaxis_ticktext": [numbers.count(length) for length in lengths],
        }
    else:
        found |= {"xaxis_type": "category", "barmode": "group"}
    return found
