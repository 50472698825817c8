"""What a long run says before it starts."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pjdiag.diagnostics.progress import Estimate

PATIENCE = 5.0
"""Seconds from which on a person is told beforehand."""


def announce(estimate: "Estimate", *, quiet: bool, hint: str = "") -> None:
    """Time and memory on stderr, where a person would wait; ``hint`` is how to shorten that."""
    seconds = estimate.seconds
    if quiet or seconds is None or seconds < PATIENCE:
        return
    memory = estimate.memory
    need = "" if memory is None else f" and up to {memory / 1e9:.1f} GB of memory"
    more = f" {hint}." if hint else ""
    print(  # noqa: T201
        f"This will take about {_duration(seconds)}{need}.{more}", file=sys.stderr, flush=True
    )


def _duration(seconds: float) -> str:
    """A rough time in words.

    >>> _duration(12.3), _duration(200), _duration(9000)
    ('12 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
