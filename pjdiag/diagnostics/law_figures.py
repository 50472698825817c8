"""The laws of one transform at one length, as the figures of rows, with their reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.diagnostics.laws import Figure, group_law, growth, lag_kernel, relative_score
from pjdiag.position.jordan import MAX_EXPONENT, shear_time
from pjdiag.position.kernel import PositionKernel
from pjdiag.position.transforms import PositionTransform

PRECISIONS: dict[str, type] = {"float32": np.float32, "float64": np.float64}
GROUP, RELATIVE = "group", "relative_score"
QUERY_GROWTH, KEY_GROWTH = "query_growth", "key_growth"

BEFORE_CLAMP = "before the clamp"
NO_GROUP = "not a group action: the softplus of the content is no matrix"
ONLY_THE_LAG = "a bias is a function of i - j alone; checked: the lag in this precision"
UNEXPLAINED = {
    GROUP: "rounding does not explain it: two shifts do not add up",
    RELATIVE: "rounding does not explain it: the score depends on more than the lag",
}
NOTABLE_GROWTH = 10.0
"""Growth of |q||k| that is named as the cause of lost digits."""

Figures = dict[str, Any]
"""Every column of a row but its scope, its subject and its transform."""


def transform_figures(transform: PositionTransform, length: int, seed: int) -> list[Figures]:
    """Both laws over positions ``0 .. length - 1`` and the growth, in float32 and float64.

    Where an exponent is clamped within the window, the laws are measured a second time over the
    positions before it.
    """
    figures: list[Figures] = []
    for precision, dtype in PRECISIONS.items():
        last = length - 1
        grown = growth(transform, last, dtype, seed)
        window = _Window(transform, precision, length, grown[0] * grown[1])
        figures += window.laws(last, seed)
        if window.clamp is not None and window.clamp >= 1:
            figures += window.laws(math.floor(window.clamp), seed)
        figures += [
            window.growth(law, ratio)
            for law, ratio in zip((QUERY_GROWTH, KEY_GROWTH), grown, strict=True)
        ]
    return figures


def kernel_figures(kernel: PositionKernel, length: int) -> list[Figures]:
    """The relative-score law of a bias, in float32 and float64."""
    last = length - 1
    return [
        figures_of(RELATIVE, precision, length, lag_kernel(kernel, last, dtype), ONLY_THE_LAG)
        for precision, dtype in PRECISIONS.items()
    ]


def figures_of(
    law: str, precision: str, length: int, figure: Figure | None, reason: str
) -> Figures:
    """A figure over the positions ``0 .. length - 1``; None where there is nothing to judge."""
    finite = figure is not None and math.isfinite(figure.error)
    return {
        "law": law,
        "precision": precision,
        "eval_length": length,
        "last_position": length - 1,
        "error": figure.error if figure is not None and finite else None,
        "tolerance": None if figure is None else figure.tolerance,
        "growth": None,
        "clamp_start": None,
        "passed": None if figure is None else figure.passed,
        "reason": reason,
    }


@dataclass(frozen=True)
class _Window:
    """One transform over one window in one precision."""

    transform: PositionTransform
    precision: str
    length: int
    grown: float
    """|q||k| at the last position over that at the first."""

    @property
    def clamp(self) -> float | None:
        """Where an exponent is clamped, if that is within the window."""
        start = self.transform.clamp_start
        return start if start is not None and start < self.length - 1 else None

    def laws(self, last: int, seed: int) -> list[Figures]:
        """Both laws over the positions ``0 .. last``."""
        transform, dtype = self.transform, PRECISIONS[self.precision]
        found: list[tuple[str, Figure | None]] = [
            (GROUP, group_law(transform, last, dtype) if transform.linear else None),
            (RELATIVE, relative_score(transform, last, dtype, seed)),
        ]
        return [
            self._with_clamp(
                figures_of(law, self.precision, self.length, figure, self._why(law, figure, last))
                | {"last_position": last}
            )
            for law, figure in found
        ]

    def growth(self, law: str, ratio: float) -> Figures:
        """A growth of the norm; it can fail only by overflow."""
        finite = math.isfinite(ratio)
        row = figures_of(law, self.precision, self.length, None, "")
        if not finite:
            row |= {"passed": False, "reason": self._overflow}
        return self._with_clamp(row | {"growth": ratio if finite else None})

    def _with_clamp(self, row: Figures) -> Figures:
        return row | {"clamp_start": self.clamp}

    @property
    def _overflow(self) -> str:
        return f"overflows {self.precision}"

    def _why(self, law: str, figure: Figure | None, last: int) -> str:
        """Why a law fails, or what its figure leaves out; empty where it simply holds."""
        if figure is None:
            return NO_GROUP
        bound = self.transform.shear_bound
        if not figure.passed and bound is not None:
            return _bounded(bound, last)
        if self.clamp is not None and last > self.clamp:
            return (
                f"exponent clamped from position {self.clamp:,.0f} on: {MAX_EXPONENT:g} / damping"
            )
        if figure.passed:
            return BEFORE_CLAMP if last < self.length - 1 else ""
        if not math.isfinite(figure.error):
            return self._overflow
        return self._lost(last) if figure.lost else UNEXPLAINED[law]

    def _lost(self, last: int) -> str:
        cause = (
            f"|q||k| grows {_short(self.grown)}-fold"
            if self.grown > NOTABLE_GROWTH
            else f"phases reach {_short(self.transform.rate * last)} rad"
        )
        return f"lost in {self.precision} rounding: {cause}"


def _short(number: float) -> str:
    return f"{number:.2g}".replace("e+", "e")


def _bounded(bound: float, last: int) -> str:
    """How the shear of one token changes with the position, under a bounded shear time."""
    starts = sorted({0, min(int(bound), last), last})
    times = np.asarray(starts, dtype=np.float64)
    steps = shear_time(times + 1, bound=bound) - shear_time(times, bound=bound)
    told = ", ".join(f"{s:.3g} at {at:,}" for s, at in zip(steps.tolist(), starts, strict=True))
    return f"bounded shear time is not additive: one token shears by {told}"
