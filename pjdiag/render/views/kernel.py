"""Measured kernels: the shapes that fit them, the sectors they could be made of, their curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pjdiag.diagnostics.compact_shapes import LONGEST_DECAY, RAPIDITY_SCALES, SHORTEST_DECAY
from pjdiag.diagnostics.kernel_terms import SHAPE_TITLES, Control, Shape, Side
from pjdiag.render import numbers
from pjdiag.render.places import Place, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell, text_cell
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

MEDIAN = "median"
AT_END = 1e-3
"""How near to an end of the search, relatively, a scale counts as lying on it."""
SUMS = ("total", "residual")
"""Groups of the sector fit that stand last, and stay where others are left out."""
PERCENTILES = ("p10", MEDIAN, "p90")
CONTROL_TITLES = {Control.SHUFFLED.value: "shuffled\ntokens", Control.FRESH.value: "fresh\nweights"}
SHAPES_NOTE = (
    "R2: part of the kernel's variance, pairs weighted; scale: l, decay length, wavelength, or the "
    "step's lag; best: ranked first by BIC"
)
GROUPS_NOTE = (
    "in order: what a group adds to those above it; alone: what is lost without it; the groups "
    "overlap, and no single split is right"
)


@dataclass(frozen=True)
class ScaleEnds:
    """Between which scales each shape is fitted: at an end the figure is a bound."""

    lags: int | None
    """Of the kernel; None: not stated."""

    @classmethod
    def of(cls, result: Result, place: Place) -> ScaleEnds:
        """Those of a scope; a layer with a window has no more lags than that."""
        length = result.provenance.get("length")
        if not isinstance(length, int):
            return cls(None)
        lags = length - (result.provenance.get("skip_first") or 0)
        windows = result.provenance.get("sliding_windows") or {}
        layer = place.rows[0].get("layer") if place.rows else None
        return cls(min(lags, windows.get(str(layer)) or lags))

    def cell(self, shape: Shape | None, scale: float | None) -> Cell:
        """The scale, marked where it is the shortest or the longest that is searched."""
        if scale is None or shape in (None, Shape.STEP):
            return _optional(scale)
        shown = figure_cell(scale)
        low, high = SHORTEST_DECAY, LONGEST_DECAY * (self.lags or math.inf)
        if shape == Shape.RAPIDITY:
            low, high = min(RAPIDITY_SCALES), max(RAPIDITY_SCALES)
        if scale >= high * (1 - AT_END):
            return replace(shown, text=f">={shown.text}")
        return replace(shown, text=f"<={shown.text}") if scale <= low * (1 + AT_END) else shown


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Shapes and sectors of the coarsest scope, then a line for each finer one, then the curve.

    The sectors make room for the finer scopes unless all rows are asked for, and the curve is
    shown for a head or with all rows.
    """
    found = places(result.rows, by)
    made: list[Table] = []
    for side in _sides(result.rows):
        where = f", {side} side" if len(_sides(result.rows)) > 1 else ""
        here = [_of_side(place, side) for place in found]
        first = here[0]
        made.append(_shape_table(first, where, ScaleEnds.of(result, first)))
        made.append(_scope_table([place for place in here if place.rows], where, result))
        fitted = any(row["group"] is not None for row in first.rows)
        if fitted and (all_rows or len(here) == 1):
            made.append(_group_table(first, where))
        if all_rows or first.scope == Scope.HEAD:
            made.append(_curve_table(first, where))
    return made


def value(
    rows: Iterable[Row], column: str, statistic: str | None = MEDIAN, **conditions: object
) -> float | None:
    """A figure of the model itself, or of a control; the median where heads are aggregated."""
    wanted = {"shape": None, "group": None, "lag": None, "control": None, **conditions}
    for row in rows:
        if row.get("statistic") in (None, statistic) and all(
            row.get(name) == expected for name, expected in wanted.items()
        ):
            figure: float | None = row.get(column)
            return figure
    return None


def best_shape(rows: Sequence[Row]) -> Shape | None:
    """The shape that BIC ranks first for most heads; None where none was fitted."""
    shares = {shape: value(rows, "preferred", shape=shape.value) or 0.0 for shape in Shape}
    best = max(Shape, key=lambda shape: shares[shape])
    return best if shares[best] else None


def _sides(rows: Iterable[Row]) -> list[str]:
    present = {row["side"] for row in rows}
    return [side.value for side in Side if side.value in present]


def _of_side(place: Place, side: str) -> Place:
    return Place(place.label, place.scope, tuple(r for r in place.rows if r["side"] == side))


def _controls(rows: Iterable[Row]) -> list[str]:
    present = {row["control"] for row in rows}
    return [control.value for control in Control if control.value in present]


def _shape_table(place: Place, where: str, ends: ScaleEnds) -> Table:
    rows, controls = place.rows, _controls(place.rows)
    lone = place.scope == Scope.HEAD
    spread = place.scope == Scope.MODEL
    headers = (
        Header("shape", key=True),
        *((Header("R2\np10", numeric=True),) if spread else ()),
        Header("R2" if lone else "R2\nmedian", numeric=True),
        *((Header("R2\np90", numeric=True),) if spread else ()),
        Header("scale\n(tokens)", numeric=True),
        Header("BIC" if lone else "best\n(heads)", numeric=True),
        *(Header(f"R2, {CONTROL_TITLES[control]}", numeric=True) for control in controls),
    )
    named = [shape for shape in Shape if shape != Shape.NONE]
    ranked = sorted(named, key=lambda shape: -(value(rows, "r2", shape=shape.value) or 0.0))
    lines = [
        (
            Cell(SHAPE_TITLES[shape]),
            *(
                bare_share(value(rows, "r2", statistic, shape=shape.value))
                for statistic in (PERCENTILES if spread else (MEDIAN,))
            ),
            ends.cell(shape, value(rows, "fitted_scale", shape=shape.value)),
            figure_cell(value(rows, "bic", shape=shape.value))
            if lone
            else bare_share(value(rows, "preferred", shape=shape.value)),
            *(
                bare_share(value(rows, "r2", shape=shape.value, control=control))
                for control in controls
            ),
        )
        for shape in ranked
        if value(rows, "r2", shape=shape.value) is not None
    ]
    of = "the kernel" if lone else f"the kernels of the {place.label}'s heads"
    note = SHAPES_NOTE + _told_ends(lines)
    return Table(f"Shapes of {of}{where}", headers, tuple(lines), note)


def _group_table(place: Place, where: str) -> Table:
    rows, controls = place.rows, _controls(place.rows)
    groups = list(dict.fromkeys(row["group"] for row in rows if row["group"] is not None))
    headers = (
        Header("group", key=True),
        Header("in order", numeric=True),
        Header("alone", numeric=True),
        *(Header(f"in order,\n{CONTROL_TITLES[c].split()[0]}", numeric=True) for c in controls),
    )

    def cell(group: str, column: str, control: str | None = None) -> Cell:
        found = value(rows, column, group=group, control=control)
        if found is None and column == "incremental_r2":
            found = value(rows, "r2", group=group, control=control)
        return BLANK if found is None else bare_share(found)

    lines = [
        (
            Cell(group),
            cell(group, "incremental_r2"),
            cell(group, "unique_r2"),
            *(cell(group, "incremental_r2", control) for control in controls),
        )
        for group in groups
    ]
    median = "" if place.scope == Scope.HEAD else " (medians)"
    whole = sum(group in SUMS for group in groups)
    return Table(f"Sector fit{median}{where}", headers, tuple(lines), GROUPS_NOTE, last=whole)


def _scope_table(found: Sequence[Place], where: str, result: Result) -> Table:
    headers = (
        Header("scope", key=True),
        Header("best shape"),
        Header("R2", numeric=True),
        Header("scale\n(tokens)", numeric=True),
        Header("range\n(logits)", numeric=True),
        Header("decaying", numeric=True),
        Header("lag\nshare", numeric=True),
        Header("first\npositions", numeric=True),
    )
    lines = []
    for place in found:
        best = best_shape(place.rows)
        name = None if best is None else best.value
        ends = ScaleEnds.of(result, place)
        lines.append(
            (
                Cell(place.label),
                text_cell(None if best is None else SHAPE_TITLES[best]),
                bare_share(value(place.rows, "r2", shape=name)),
                ends.cell(best, value(place.rows, "fitted_scale", shape=name)),
                figure_cell(value(place.rows, "range")),
                *(
                    bare_share(value(place.rows, column))
                    for column in ("decaying", "lag_share", "sink_share")
                ),
            )
        )
    note = (
        "medians over heads; decaying: share of heads; lag share: variance of K over that of the "
        "logits less row effects; first positions: attention on what K leaves out"
    )
    return Table(f"Kernels by scope{where}", headers, tuple(lines), note + _told_ends(lines))


def _told_ends(lines: Iterable[Sequence[Cell]]) -> str:
    marked = any(cell.text.startswith((">=", "<=")) for line in lines for cell in line)
    return "; >= and <=: at the end of the range that is searched" if marked else ""


def _curve_table(place: Place, where: str) -> Table:
    lone = place.scope == Scope.HEAD
    spread = place.scope == Scope.MODEL
    lags = sorted({row["lag"] for row in place.rows if row["lag"] is not None})
    names = PERCENTILES if spread else (MEDIAN,)
    headers = (
        Header("lag", numeric=True, key=True),
        *(
            Header("K(d) - K(0)" if lone else f"K(d) - K(0)\n{name}", numeric=True)
            for name in names
        ),
        Header("standard\nerror", numeric=True),
    )
    figure: Callable[[str, int, str], float | None] = lambda column, lag, name: value(  # noqa: E731
        place.rows, column, name, lag=lag
    )
    lines = [
        (
            Cell(numbers.count(lag)),
            *(figure_cell(figure("kernel", lag, name)) for name in names),
            _optional(figure("standard_error", lag, MEDIAN)),
        )
        for lag in lags
    ]
    note = "in logits; error: over windows, blank with one"
    return Table(f"The kernel by lag{where}", headers, tuple(lines), note)


def _optional(figure: float | None) -> Cell:
    """Blank where a shape has no such figure."""
    return BLANK if figure is None else figure_cell(figure)
