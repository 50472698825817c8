"""Aggregation over heads and layers, in one place: sums first, divisions afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pjdiag.results import Row
from pjdiag.terms import Mechanism, Scope

T = TypeVar("T")


@dataclass(frozen=True)
class HeadItem(Generic[T]):
    """What was measured for one head."""

    layer: int
    head: int
    mechanism: Mechanism | None
    value: T


@dataclass(frozen=True)
class Group(Generic[T]):
    """The heads that one row speaks of."""

    scope: Scope
    layer: int | None
    head: int | None
    mechanism: Mechanism | None
    values: tuple[T, ...]

    def row(self, **figures: Any) -> Row:
        """A row with this group's scope columns and ``figures``."""
        return {
            "layer": self.layer,
            "head": self.head,
            "scope": self.scope.value,
            "mechanism": None if self.mechanism is None else self.mechanism.value,
            **figures,
        }


def model_row(**figures: Any) -> Row:
    """A row of the model scope where no head was aggregated.

    >>> model_row(top1=1.0)["scope"]
    'model'
    """
    whole: Group[None] = Group(Scope.MODEL, None, None, None, ())
    return whole.row(**figures)


def groups(items: Sequence[HeadItem[T]]) -> Iterator[Group[T]]:
    """The model, then each layer, then each head.

    >>> items = [HeadItem(0, head, Mechanism.ALIBI, 1.0) for head in range(2)]
    >>> [(group.scope.value, len(group.values)) for group in groups(items)]
    [('model', 2), ('layer', 2), ('head', 1), ('head', 1)]
    """
    if not items:
        return
    yield _group(Scope.MODEL, items, None, None)
    layers = sorted({item.layer for item in items})
    for layer in layers:
        yield _group(Scope.LAYER, [item for item in items if item.layer == layer], layer, None)
    for item in items:
        yield _group(Scope.HEAD, [item], item.layer, item.head)


def _group(
    scope: Scope, items: Sequence[HeadItem[T]], layer: int | None, head: int | None
) -> Group[T]:
    mechanisms = {item.mechanism for item in items}
    return Group(
        scope,
        layer,
        head,
        mechanisms.pop() if len(mechanisms) == 1 else None,
        tuple(item.value for item in items),
    )
