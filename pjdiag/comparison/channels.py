"""Rotary channels of two spectra: whether they are the same ones, and where their mass is from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pjdiag.results import Result, Row
from pjdiag.terms import Mechanism, Scope

NAME = "spectrum"
TURNS = ("inv_freq", "wavelength")
"""Figures that say which channel it is, not what the model does with it."""
ONE_SIDED = ("mass", "share")
"""Figures from the weights, which PoPE has on the data only."""
OF_DATA = "data_mass"
SAME = 1e-6
"""Relative difference of frequencies that are stored in single precision."""

Place = tuple[Any, ...]


def comparable(a: Result, b: Result, scope: Scope) -> tuple[Result, Result, list[str]]:
    """Both without the rows of channels that have no counterpart, and what a reader should know.

    Down to ``scope``: where the two have not as many channels, or several layers of different
    frequencies, a channel's number says nothing, and bands are compared alone.
    """
    first, second = _by_place(a, scope), _by_place(b, scope)
    apart = {
        place: (first[place], second[place])
        for place in first
        if place in second and not _numbered_alike(first[place], second[place])
    }
    notes = []
    if apart:
        mine, other = next(iter(apart.values()))
        notes.append(
            f"its channels are not the same ones ({_told(mine)} in the first, {_told(other)} in "
            "the second): bands are compared, channels are not"
        )
    notes += _turning(first, second, apart)
    notes += _origins(a, b, scope)
    return _without(a, apart), _without(b, apart), notes


def unlike(a: Result, b: Result) -> Callable[[Row, Row], bool]:
    """Tells of a row of ``a`` and one of ``b`` whether their ``ONE_SIDED`` are of two kinds."""
    mixed = _has_pope(a), _has_pope(b)
    return lambda first, second: _origin(first, mixed[0]) != _origin(second, mixed[1])


def _by_place(result: Result, scope: Scope) -> dict[Place, list[Row]]:
    """A row of each channel, by where it is."""
    found: dict[Place, list[Row]] = {}
    for row in result.rows:
        if _is_channel(row) and _down_to(scope, row):
            found.setdefault(_place(row), []).append(row)
    return {place: _once(rows) for place, rows in found.items()}


def _down_to(scope: Scope, row: Row) -> bool:
    ranks = tuple(Scope)
    return ranks.index(row["scope"]) <= ranks.index(scope)


def _place(row: Row) -> Place:
    return row["scope"], row.get("layer"), row.get("head")


def _once(rows: list[Row]) -> list[Row]:
    """Of each channel the row of its lowest order."""
    lowest: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        lowest.setdefault((row.get("channel"), row.get("inv_freq")), row)
    return list(lowest.values())


def _is_channel(row: Row) -> bool:
    return row.get("channel") is not None or row.get("inv_freq") is not None


def _numbered_alike(first: list[Row], second: list[Row]) -> bool:
    """Whether a channel's number, or its place among frequencies, means the same in both."""
    if [row.get("channel") for row in first] != [row.get("channel") for row in second]:
        return False
    numbered = all(row.get("channel") is not None for row in first)
    return numbered or all(map(_as_fast, first, second))


def _as_fast(first: Row, second: Row) -> bool:
    one, other = first.get("inv_freq"), second.get("inv_freq")
    if one is None or other is None:
        return True  # nothing is known that differs
    return math.isclose(one, other, rel_tol=SAME)


def _told(rows: list[Row]) -> str:
    what = "channels" if all(row.get("channel") is not None for row in rows) else "frequencies"
    return f"{len(rows)} {what}"


def _turning(
    first: dict[Place, list[Row]], second: dict[Place, list[Row]], apart: dict[Place, Any]
) -> Iterator[str]:
    """Channels of the same number at other frequencies."""
    for place, rows in first.items():
        if place in apart or place not in second:
            continue
        moved = [each for each in zip(rows, second[place], strict=True) if not _as_fast(*each)]
        if moved:
            yield (
                f"its channels turn at other frequencies: {len(moved)} of {len(rows)}, matched by "
                "number; their frequencies and wavelengths are told last"
            )
            return


def _origins(a: Result, b: Result, scope: Scope) -> Iterator[str]:
    """Mass from the weights against mass on the data, and what is compared instead."""
    found = [
        {_origin(row, mixed) for row in each.rows if _down_to(scope, row)}
        for each, mixed in ((a, _has_pope(a)), (b, _has_pope(b)))
    ]
    if found[0] == found[1] or not all(found):
        return
    said = [" and ".join(sorted(each)) for each in found]
    text = f"the mass of the first is {said[0]}, that of the second {said[1]}: not compared"
    if all(_on_data(each) for each in (a, b)):
        yield f"{text}; the mass on the data is"
    else:
        yield f"{text}; save both with `pjdiag spectrum --data FILE -o json:PATH`"


def _origin(row: Row, mixed: bool) -> str:
    """Where the mass of a row is from; ``mixed``: its result has PoPE."""
    if row.get("mechanism") == Mechanism.POPE.value:
        return "on the data"
    if row.get("mechanism") is None and mixed:
        return "of both kinds"
    return "from the weights"


def _has_pope(result: Result) -> bool:
    return any(row.get("mechanism") == Mechanism.POPE.value for row in result.rows)


def _on_data(result: Result) -> bool:
    return any(row.get(OF_DATA) is not None for row in result.rows)


def _without(result: Result, places: dict[Place, Any]) -> Result:
    rows = [row for row in result.rows if not (_is_channel(row) and _place(row) in places)]
    return replace(result, rows=tuple(rows))
