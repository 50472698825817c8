"""Times as a card says them."""

from __future__ import annotations


def duration(minutes: float) -> str:
    """A time in the unit that has something to say.

    >>> duration(0.004), duration(0.7), duration(9.04), duration(180.2)
    ('0.2 seconds', '42 seconds', '9.0 minutes', '3.0 hours')
    """
    seconds = 60 * minutes
    if seconds < 10:
        return "less than 0.1 seconds" if seconds < 0.05 else f"{seconds:.1f} seconds"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{minutes:.1f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
