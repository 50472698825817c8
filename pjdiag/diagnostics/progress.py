"""Telling a caller how far a long measurement is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""


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
