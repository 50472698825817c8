"""Which rows of two results speak of the same thing, and down to which scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pjdiag.results import Result, Row
from pjdiag.terms import KEYS, Scope

SUMS = {"mass": ("effective_mass",), "spectrum": ("mass", "data_mass")}
"""Figures that are added up over heads; comparable where as many heads were added."""

CAUSES = ("family", "sector", "jet_order", "window", "eval_length", "bucket", "channel")
"""Keys that explain best why rows have no counterpart, tried in turn."""
_NAMED = 4

Key = tuple[object, ...]


@dataclass(frozen=True)
class Level:
    """The finest scope that results share, and why it is not a finer one."""

    scope: Scope
    reason: str = ""


def shared_level(results: Sequence[Result], names: Sequence[str]) -> Level:
    """Layers where all have as many; heads where all layers have as many.

    >>> two, four = (Result("mass", {}, {"layers": n}, ()) for n in (2, 4))
    >>> shared_level([two, four], ["a", "b"]).reason
    'layers and heads are not compared: a has 2 layers, b 4'
    """
    layers = [_layers(result) for result in results]
    if len(set(layers)) > 1:
        first, *others = _each(names, layers)
        stated = ", ".join([f"{first} layers", *(each.replace(" has ", " ") for each in others)])
        return Level(Scope.MODEL, f"layers and heads are not compared: {stated}")
    heads = [_heads(result) for result in results]
    for layer in sorted(set.intersection(*(set(each) for each in heads))):
        counts = [each[layer] for each in heads]
        if len(set(counts)) > 1:
            first, *others = _each(names, counts)
            rest = (each.replace(" has ", " ") for each in others)
            stated = ", ".join([f"{first} heads", *rest])
            return Level(Scope.LAYER, f"heads are not compared: in layer {layer} {stated}")
    return Level(Scope.HEAD)


def pairs(a: Result, b: Result, level: Level) -> tuple[list[tuple[Row, Row]], list[str]]:
    """Rows with the same keys, in the order of ``a``; and what has no counterpart, in words."""
    first, second = _by_key(a, level), _by_key(b, level)
    joined = [(first[key], second[key]) for key in first if key in second]
    if not joined:
        return [], [_apart(a, first, second)] if first and second else []
    notes = []
    for side, mine, other in (("first", first, second), ("second", second, first)):
        alone = [mine[key] for key in mine if key not in other]
        if alone:
            notes.append(f"{len(alone)} rows only the {side} has are left out{_why(alone, other)}")
    return joined, notes


def summed_heads(result: Result) -> dict[int | None, int]:
    """How many heads are added up in each layer's row, and under None in the model's.

    Empty where the result tells of no head.
    """
    heads = {(row["layer"], row["head"]) for row in result.rows if row.get("head") is not None}
    found: dict[int | None, int] = {}
    for layer, _ in heads:
        found[layer] = found.get(layer, 0) + 1
    if heads:
        found[None] = len(heads)
    elif isinstance(result.provenance.get("heads"), int):
        excluded = result.provenance.get("heads_excluded")
        found[None] = result.provenance["heads"] - (excluded if isinstance(excluded, int) else 0)
    return found


def _each(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    return [f"{name} has {count}" for name, count in zip(names, counts, strict=True)]


def _layers(result: Result) -> int:
    """Layers of the model, those that were skipped included."""
    stated = [result.provenance.get(name, 0) for name in ("layers", "layers_skipped")]
    counts: list[int] = [count for count in stated if isinstance(count, int)]
    numbers: list[int] = [row["layer"] for row in result.rows if row.get("layer") is not None]
    numbers += [entry.layer for entry in result.skipped]
    return max([sum(counts), *(number + 1 for number in numbers)])


def _heads(result: Result) -> dict[int, int]:
    """Heads of each layer that has rows for heads; one that was left out counts."""
    found: dict[int, int] = {}
    places = [(row.get("layer"), row.get("head")) for row in result.rows]
    places += [(entry.layer, entry.head) for entry in result.skipped]
    for layer, head in places:
        if layer is not None and head is not None:
            found[layer] = max(found.get(layer, 0), head + 1)
    return found


def _by_key(result: Result, level: Level) -> dict[Key, Row]:
    """Rows by scope and keys; where two share these, the mechanism tells them apart."""
    ranks = tuple(Scope)
    keys = ("scope", "layer", "head", *KEYS[result.diagnostic])
    rows = [row for row in result.rows if ranks.index(row["scope"]) <= ranks.index(level.scope)]
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in keys), []).append(row)
    return dict(_told_apart(found))


def _told_apart(found: dict[Key, list[Row]]) -> Iterator[tuple[Key, Row]]:
    for key, rows in found.items():
        if len(rows) == 1:
            yield key, rows[0]
            continue
        for number, row in enumerate(rows):
            same = sum(other.get("mechanism") == row.get("mechanism") for other in rows[:number])
            yield (*key, row.get("mechanism"), same), row


def _why(alone: Sequence[Row], other: dict[Key, Row]) -> str:
    """The key whose values only one side has."""
    for name in CAUSES:
        values = {row.get(name) for row in alone}
        if None not in values and not values & {row.get(name) for row in other.values()}:
            return f" ({name} {_some(values)})"
    return ""


def _apart(result: Result, first: dict[Key, Row], second: dict[Key, Row]) -> str:
    """The key that no row of the two shares."""
    for name in CAUSES:
        if name in KEYS[result.diagnostic]:
            here, there = ({row.get(name) for row in each.values()} for each in (first, second))
            if not here & there:
                return f"{name} is {_some(here)} in the first and {_some(there)} in the second"
    return "no row has the same keys"


def _some(values: Iterable[object]) -> str:
    shown = sorted({str(value) for value in values})
    return ", ".join(shown[:_NAMED]) + (", ..." if len(shown) > _NAMED else "")
