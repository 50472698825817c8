"""The opening sentence of `kernel`."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.diagnostics.kernel_terms import SHAPE_TITLES, Control, Shape, Side
from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed
from pjdiag.render.views.kernel import best_shape, value
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

CONTROL_WORDS = {Control.SHUFFLED: "on shuffled tokens", Control.FRESH: "with fresh weights"}


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, sentence)


def sentence(place: Place) -> str:
    """The shape that fits best, how well, how much depends on the lag, and the controls."""
    rows = [row for row in place.rows if row["side"] == Side.PAST.value]
    ahead = [row for row in place.rows if row["side"] == Side.FUTURE.value]
    lone = place.scope == Scope.HEAD
    if ahead:
        return f"towards earlier tokens {_side(rows, lone)}; towards later ones {_best(ahead)}"
    return _side(rows, lone)


def _side(rows: Sequence[Row], lone: bool) -> str:
    best = best_shape(rows)
    if best is None:
        return f"the measured {'kernel does' if lone else 'kernels do'} not vary with the lag"
    share = numbers.percent(value(rows, "preferred", shape=best.value))
    of = "the measured kernel" if lone else f"the measured kernels of {share} of the heads"
    text = f"{SHAPE_TITLES[best]} describes {of} best"
    if best == Shape.NONE:
        return text
    over = "" if lone else ", median of all"
    text += f" (R2 {_percent(rows, best, None)}{over}){_strength(rows, lone)}"
    controls = [
        f"{_percent(rows, best, control)} {words}"
        for control, words in CONTROL_WORDS.items()
        if value(rows, "r2", shape=best.value, control=control.value) is not None
    ]
    return f"{text}; its R2 is {listed(controls)}" if controls else text


def _best(rows: Sequence[Row]) -> str:
    """The shape that fits best and how well."""
    best = best_shape(rows)
    if best is None:
        return "nothing varies with the lag"
    return f"{SHAPE_TITLES[best]} (R2 {_percent(rows, best, None)})"


def _percent(rows: Sequence[Row], shape: Shape, control: Control | None) -> str:
    name = None if control is None else control.value
    return numbers.percent(value(rows, "r2", shape=shape.value, control=name))


def _strength(rows: Sequence[Row], lone: bool) -> str:
    """How far the kernel ranges, and its part of the logits' variance."""
    size = numbers.figure(value(rows, "range"))
    share = numbers.percent(value(rows, "lag_share"))
    median = "" if lone else "a median of "
    return f"; the lag moves the logits by {median}{size} and makes {share} of their variance"
