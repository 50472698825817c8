"""Words for measured kernels: the side, the control, and the shapes fitted."""

from __future__ import annotations

from enum import StrEnum


class Side(StrEnum):
    """Keys before the query, itself included, or after it."""

    PAST = "past"
    FUTURE = "future"


class Control(StrEnum):
    """What a measured kernel is compared with."""

    SHUFFLED = "shuffled"
    FRESH = "fresh"


class Shape(StrEnum):
    """A function of the lag with few parameters, fitted to a measured kernel."""

    NONE = "none"
    LINEAR = "linear_recency"
    RAPIDITY = "rapidity_recency"
    DAMPED = "damped"
    STEP = "step"
    CHARACTER = "character"
    LIGHT_CONE = "light_cone"
    JET_1 = "jet_1"
    JET_2 = "jet_2"


SHAPE_TITLES = {
    Shape.NONE: "nothing",
    Shape.LINEAR: "linear recency",
    Shape.RAPIDITY: "rapidity recency",
    Shape.DAMPED: "exponential decay",
    Shape.STEP: "step",
    Shape.CHARACTER: "one character",
    Shape.LIGHT_CONE: "light-cone character",
    Shape.JET_1: "damped jet, r = 1",
    Shape.JET_2: "damped jet, r = 2",
}
