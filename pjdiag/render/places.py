"""Rows gathered by what they speak of: the model, a layer, a head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pjdiag.render.tables import SCREEN_LINES
from pjdiag.results import Row
from pjdiag.terms import Mechanism, Scope

MECHANISM_TITLES = {
    Mechanism.PJ_BIAS: "PJ-bias",
    Mechanism.ROPE: "RoPE",
    Mechanism.PJ_ROTARY: "PJ-rotary",
    Mechanism.JORDAN: "Jordan-RoPE",
    Mechanism.POPE: "PoPE",
    Mechanism.ALIBI: "ALiBi",
    Mechanism.T5_BIAS: "T5 bias",
    Mechanism.LEARNED_ABSOLUTE: "learned absolute positions",
    Mechanism.NONE: "no position mechanism",
    Mechanism.UNKNOWN: "an unknown mechanism",
}

_RANK = {scope.value: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True)
class Place:
    """The rows of one scope: the model, one layer, or one head."""

    label: str
    scope: Scope
    rows: tuple[Row, ...]


def places(rows: Iterable[Row], by: Scope) -> list[Place]:
    """Rows grouped by scope down to ``by``: the model, then all layers, then all heads.

    >>> rows = [{"scope": "layer", "layer": 1, "head": None}, {"scope": "model"}]
    >>> [place.label for place in places(rows, Scope.HEAD)]
    ['model', 'layer 1']
    """
    found: dict[tuple[int, int, int], list[Row]] = {}
    for row in rows:
        rank = _RANK[row["scope"]]
        if rank <= _RANK[by.value]:
            key = (rank, _number(row.get("layer")), _number(row.get("head")))
            found.setdefault(key, []).append(row)
    return [
        Place(_label(layer, head), tuple(Scope)[rank], tuple(found[rank, layer, head]))
        for rank, layer, head in sorted(found)
    ]


def coarsest(rows: Sequence[Row]) -> list[Place]:
    """The places of the coarsest scope that has rows: the model, unless it was left out."""
    ranks = [_RANK[row["scope"]] for row in rows]
    return places(rows, tuple(Scope)[min(ranks)]) if ranks else []


def split_to_fit(
    found: Sequence[Place], line_count: Callable[[Place], int], limit: int = SCREEN_LINES
) -> tuple[list[Place], list[Place]]:
    """Places to show in full, and places to show on one line each so that a screen holds them.

    All in full where their lines fit; otherwise the coarsest scope in full and finer ones on one
    line each; and all on one line each where there is only one scope.
    """
    if sum(map(line_count, found)) <= limit:
        return list(found), []
    full = [place for place in found if place.scope == found[0].scope]
    if len(full) == len(found) and len(found) > 1:
        return [], full
    return full, [place for place in found if place.scope != found[0].scope]


def mechanism_title(name: str | None) -> str:
    """A mechanism in words; a name that is not known stays as it is."""
    if name is None:
        return "several"
    known = {mechanism.value: title for mechanism, title in MECHANISM_TITLES.items()}
    return known.get(name, name)


def bucket_title(name: str) -> str:
    """A lag bucket in words.

    >>> bucket_title("x16_32"), bucket_title("train"), bucket_title("all")
    ('16-32 L', 'train', 'all')
    """
    low, mark, high = name[1:].partition("_")
    return f"{low}-{high} L" if name.startswith("x") and mark else name


def _number(value: int | None) -> int:
    return -1 if value is None else int(value)


def _label(layer: int, head: int) -> str:
    if layer < 0:
        return "model" if head < 0 else f"head {head}"
    return f"layer {layer}" if head < 0 else f"layer {layer} head {head}"
