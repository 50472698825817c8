"""Reading claims off the rows of trained runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pjdiag.results import Row

Models = dict[tuple[str, int], dict[str, Row]]
"""(subject, seed) -> part -> row."""


def by_model(rows: Sequence[Row]) -> Models:
    """The rows of single seeds by model and part."""
    found: Models = {}
    for each in rows:
        if each["seed"] is not None:
            found.setdefault((each["subject"], each["seed"]), {})[each["part"]] = each
    return found


def leading(models: Models, part: str) -> int:
    """In how many models ``part`` has the largest value.

    >>> rows = {"a": {"value": 2.0}, "b": {"value": 1.0}}
    >>> leading({("x", 0): rows}, "a"), leading({("x", 0): rows}, "b")
    (1, 0)
    """
    return sum(
        all(rows[part]["value"] > rows[name]["value"] for name in rows if name != part)
        for rows in models.values()
    )


def spread(values: Iterable[float]) -> str:
    """The smallest and the largest in words.

    >>> spread([0.5, 0.25]), spread([0.5])
    ('0.25 to 0.5', '0.5')
    """
    low, high = min(values := list(values)), max(values)
    first, last = f"{low:.3g}", f"{high:.3g}"
    return first if first == last else f"{first} to {last}"
