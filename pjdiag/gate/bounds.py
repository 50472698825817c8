"""What a figure must be."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """What a figure must be: within two limits, or within a tolerance of a target."""

    minimum: float | None = None
    maximum: float | None = None
    open: bool = False
    """The limits themselves do not suffice."""
    target: float | None = None
    tolerance: float = 0.0
    text: str | None = None
    """The words that must stand there; the value is then 1 where they do, else 0."""

    def holds(self, value: float) -> bool:
        """Whether ``value`` is what it must be.

        >>> Bound(minimum=0.5).holds(0.5), Bound(minimum=0.5, open=True).holds(0.5)
        (True, False)
        >>> Bound(target=0.5, tolerance=0.05).holds(0.55)
        True
        """
        if self.text is not None:
            return value == 1
        if self.target is not None:
            away = abs(value - self.target)
            return away <= self.tolerance or math.isclose(away, self.tolerance, rel_tol=1e-9)
        return self.distance(value) == 0 and not (
            self.open and value in (self.minimum, self.maximum)
        )

    def distance(self, value: float) -> float:
        """How far ``value`` lies outside; 0 inside and on a limit."""
        if self.text is not None:
            return 1 - value
        if self.target is not None:
            return max(abs(value - self.target) - self.tolerance, 0.0)
        below = 0.0 if self.minimum is None else self.minimum - value
        above = 0.0 if self.maximum is None else value - self.maximum
        return max(below, above, 0.0)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The smallest and the largest value that holds; None where nothing limits."""
        if self.target is not None:
            return self.target - self.tolerance, self.target + self.tolerance
        return self.minimum, self.maximum

    @property
    def asks(self) -> bool:
        """Whether anything is asked at all."""
        return any(each is not None for each in (self.target, self.text, *self.limits))

    def __str__(self) -> str:
        if self.text is not None:
            return f"equal to {self.text!a}"
        if self.target is not None:
            if self.tolerance == 0:
                return f"exactly {_number(self.target)}"
            return f"within {_number(self.tolerance)} of {_number(self.target)}"
        low, high = ("above", "below") if self.open else ("at least", "at most")
        if self.minimum is not None and self.maximum is not None:
            return f"{_number(self.minimum)} to {_number(self.maximum)}"
        if self.minimum is None:
            return f"{high} {_number(self.maximum)}"
        return f"{low} {_number(self.minimum)}"


def _number(value: float | None) -> str:
    """As a person writes it: ``1e-6``, not ``1e-06``."""
    return re.sub(r"e([+-])0*", r"e\1", f"{value:.9g}").replace("e+", "e")
