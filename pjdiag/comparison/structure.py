"""What models are built of, side by side: one line for what is the same in all layers of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.places import mechanism_title
from pjdiag.render.text import some_spans
from pjdiag.results import Result, Row
from pjdiag.terms import DIAGNOSTICS, FIGURE_KINDS, KEYS, SCOPE_COLUMNS, Column, Mechanism, Scope

NAME = "inspect"
MECHANISM = next(column for column in SCOPE_COLUMNS if column.name == "mechanism")
COLUMNS = (
    MECHANISM,
    *(
        column
        for column in DIAGNOSTICS[NAME]
        if column.kind in (*FIGURE_KINDS, "text") and not column.name.endswith("_source")
    ),
)

SAME = 1e-12
"""Relative difference that rounding makes, of a scale such as 1/sqrt(head_dim)."""

Layers = Mapping[int, tuple[Any, ...]]
"""By layer the different values that its parts have."""


def differences(a: Result, b: Result, scope: Scope) -> list[Row]:
    """Rows down to ``scope``; what has no numbers to compare has ``text_a`` and ``text_b``.

    A figure that is the same in all layers of each checkpoint is one row of the model. Another is
    a row for each layer, where layers can be compared and all have it; else it is told in words.
    ``difference`` is then 1 where the words differ, and 0 where they do not.
    """
    rows: list[Row] = []
    for column in COLUMNS:
        first, second = _by_layer(a, column), _by_layer(b, column)
        if not first and not second:
            continue
        numeric = column.kind in FIGURE_KINDS
        if numeric and _one(first) is not None and _one(second) is not None:
            rows.append(_row(column, None, _one(first), _one(second)))
        elif numeric and scope != Scope.MODEL and _alike(first, second):
            rows += (_row(column, layer, first[layer][0], second[layer][0]) for layer in first)
        else:
            rows.append({**_row(column, None, None, None), **_words(_told(first), _told(second))})
    return rows


def _by_layer(result: Result, column: Column) -> Layers:
    """Of each layer that has any, the values of its parts in their order."""
    found: dict[int, dict[Any, None]] = {}
    for row in result.rows:
        value = row.get(column.name)
        if value is not None and row.get("layer") is not None:
            found.setdefault(row["layer"], {})[value] = None
    return {layer: tuple(values) for layer, values in sorted(found.items())}


def _one(layers: Layers) -> float | None:
    """The number that all layers have; None where there are several, or none."""
    values = set(layers.values())
    (only,) = values if len(values) == 1 else ((),)
    return float(only[0]) if len(only) == 1 else None


def _alike(first: Layers, second: Layers) -> bool:
    """Whether both have one number in the same layers."""
    return set(first) == set(second) and all(
        len(values) == 1 for each in (first, second) for values in each.values()
    )


def _told(layers: Layers) -> str | None:
    """The values in words, with their layers where these differ; None where there are none."""
    where: dict[tuple[Any, ...], list[int]] = {}
    for layer, values in layers.items():
        where.setdefault(values, []).append(layer)
    if not where:
        return None
    texts = {" + ".join(map(_said, values)): found for values, found in where.items()}
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{text} in {_layers(found)}" for text, found in texts.items())


def _layers(found: list[int]) -> str:
    return f"layer{'' if len(found) == 1 else 's'} {some_spans(found)}"


def _said(value: Any) -> str:
    if value in tuple(Mechanism):
        return mechanism_title(str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return numbers.setting(value) if isinstance(value, int | float) else str(value)


def _words(a: str | None, b: str | None) -> Row:
    changed = float(a != b)
    return {"text_a": a, "text_b": b, "difference": changed, "moved": changed}


def _row(column: Column, layer: int | None, a: float | None, b: float | None) -> Row:
    a, b = (None if value is None else float(value) for value in (a, b))
    difference = None if a is None or b is None else b - a
    if difference is not None and math.isclose(a or 0.0, b or 0.0, rel_tol=SAME):
        difference = 0.0
    largest = max((abs(value) for value in (a, b) if value is not None), default=0.0)
    return {
        "layer": layer,
        "head": None,
        "scope": (Scope.MODEL if layer is None else Scope.LAYER).value,
        "mechanism": None,
        "measured": NAME,
        "figure": column.name,
        **dict.fromkeys(KEYS[NAME]),
        "value_a": a,
        "value_b": b,
        "text_a": None,
        "text_b": None,
        "difference": difference,
        "relative": difference / abs(a) if difference is not None and a else None,
        "noise": None,
        "within_noise": None,
        "moved": abs(difference) / largest if difference is not None and largest else difference,
    }
