"""Telling a caller what a long measurement will take, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""


@dataclass(frozen=True)
class Estimate:
    """What a run will take."""

    seconds: float | None
    """None for a run so short that it was not timed."""
    memory: int | None
    """Bytes beside what the process holds already; None where that was not estimated."""


Announce = Callable[[Estimate], None]
"""Called before a long measurement starts."""


def no_announcement(_: Estimate) -> None:
    """Tell nobody."""


def no_progress(_: float) -> None:
    """Tell nobody."""


class Steps:
    """Work of a known size, done in steps.

    >>> told = []
    >>> steps = Steps(told.append, 4)
    >>> steps.advance(1)
    >>> steps.advance(3)
    >>> told
    [0.25, 1.0]
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def advance(self, amount: int) -> None:
        """``amount`` more is done."""
        self._done += amount
        self._progress(min(self._done / self._total, 1.0))
