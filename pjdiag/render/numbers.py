"""Numbers with the digits they deserve. Zero is zero; a figure that is missing is unknown."""

from __future__ import annotations

import math
from typing import Any

UNKNOWN = "unknown"
ABSENT = "absent"
UNDEFINED = "undefined"
"""A ratio of which the denominator is zero."""


def percent(share: Any) -> str:
    """A share (0 to 1) in prose: whole percents, one decimal near the ends.

    >>> [percent(x) for x in (0.812, 0.0234, 4e-5, 0, 0.9996, 1, None)]
    ['81%', '2.3%', '<0.1%', '0%', '>99.9%', '100%', 'unknown']
    """
    value = _finite(share)
    if value is None:
        return UNKNOWN
    edge = _edge(value)
    if edge:
        return edge
    return f"{value:.0%}" if 0.0995 <= value < 0.99 else f"{value:.1%}"


def share_cell(share: Any) -> str:
    """A share in a column: always one decimal, so that the points line up.

    >>> [share_cell(x) for x in (0.812, 0.0234, 4e-5, 0, 0.9996, 1, None)]
    ['81.2%', '2.3%', '<0.1%', '0%', '>99.9%', '100%', 'unknown']
    """
    value = _finite(share)
    return UNKNOWN if value is None else _edge(value) or f"{value:.1%}"


def figure(number: Any, digits: int = 3) -> str:
    """``digits`` significant digits; scientific below 0.001, thousands separated.

    >>> [figure(x) for x in (0, 0.21249, -4.2, 12345.6, 3.14e-4, 2.5e9, float("nan"))]
    ['0', '0.212', '-4.20', '12,346', '3.14e-4', '2.50e9', 'unknown']
    """
    value = _finite(number)
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    if not 1e-3 <= rounded < 1e7:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(rounded)))
    return f"{value:,.{decimals}f}"


def count(number: Any) -> str:
    """A whole number with thousands separated.

    >>> count(32768), count(None)
    ('32,768', 'unknown')
    """
    value = _finite(number)
    return UNKNOWN if value is None else f"{value:,.0f}"


def setting(number: Any) -> str:
    """A setting as it was set: up to six digits, no padding.

    >>> [setting(x) for x in (500000.0, 0.125, 10000, None)]
    ['500,000', '0.125', '10,000', 'unknown']
    """
    value = _finite(number)
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:,.6g}"


def tokens(number: Any) -> str:
    """A wavelength in tokens, short enough for a range of them.

    >>> [tokens(x) for x in (6.2832, 8378.8, 438459.9, None)]
    ['6.28', '8,379', '4.4e5', 'unknown']
    """
    value = _finite(number)
    if value is None or value < 1e5:
        return figure(value)
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _edge(share: float) -> str:
    """Wording where rounding would turn a little into nothing, or almost all into all."""
    if share in (0, 1):
        return f"{share:.0%}"
    if 0 < share < 0.001:
        return "<0.1%"
    return ">99.9%" if 0.999 < share < 1 else ""


def _finite(number: Any) -> float | None:
    if number is None:
        return None
    value = float(number)
    return value if math.isfinite(value) else None
