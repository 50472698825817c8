"""Words and places that figures share."""

from __future__ import annotations

from pjdiag.render import numbers
from pjdiag.results import Row
from pjdiag.terms import SECTOR_TITLES, Sector

SECTORS = tuple(sector.value for sector in Sector)
TITLES = {sector.value: SECTOR_TITLES[sector] for sector in Sector}


def cells(rows: list[Row], name: str) -> dict[tuple[int, int], float | None]:
    """``(layer, head) -> value``."""
    return {(row["layer"], row["head"]): row[name] for row in rows}


def labels(places: list[object]) -> list[str]:
    """Windows or buckets as an axis names them."""
    return [numbers.count(p) if isinstance(p, int) else bucket(str(p)) for p in places]


def bucket(name: str) -> str:
    """A lag bucket in words.

    >>> bucket("x4_16"), bucket("train")
    ('4-16 L', 'below L')
    """
    if name == "train":
        return "below L"
    return name[1:].replace("_", "-") + " L" if name.startswith("x") else name


def place(row: Row) -> str:
    """The head of a row."""
    return f"layer {row['layer']} head {row['head']}"
