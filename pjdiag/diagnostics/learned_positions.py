"""How far a learned table of positions reaches."""

from __future__ import annotations

from pjdiag.adapters.protocol import AbsolutePositions, Reading
from pjdiag.errors import UsageError


def learned_positions(reading: Reading) -> int | None:
    """The longest window in tokens that learned positions allow; None: any.

    >>> import pjdiag
    >>> learned_positions(pjdiag.read(pjdiag.sample())) or 0
    0
    """
    tables = [
        part.max_positions.value
        for layer in reading.layers
        for part in layer.parts
        if isinstance(part, AbsolutePositions) and part.max_positions.value is not None
    ]
    return min(tables, default=None)


def require_positions(length: int, positions: int | None) -> None:
    """Raises UsageError where a window of ``length`` tokens is longer than ``positions``."""
    if positions is not None and length > positions:
        raise UsageError(
            f"length is {length}; the model has {positions} learned positions, so expected at "
            f"most {positions}",
            f"pass --length {positions} or shorter",
        )
