"""Where each removal is tried: in the whole model, in one layer, in one head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from pjdiag.diagnostics.ablation_parts import LayerParts, ModelRemoval
from pjdiag.diagnostics.scopes import Group
from pjdiag.errors import UsageError
from pjdiag.terms import Mechanism, Scope

if TYPE_CHECKING:
    from pjdiag.models.ablation import LayerChange


@dataclass(frozen=True)
class Target:
    """One removal in one place."""

    removal: ModelRemoval
    group: Group[None]
    layers: tuple[int, ...]
    """The layers that lose it."""

    @property
    def first(self) -> int:
        """The first layer that loses it."""
        return min(self.layers)

    @property
    def name(self) -> str:
        """The same in every run."""
        where = [str(part) for part in (self.group.layer, self.group.head) if part is not None]
        return f"{self.removal.name}/{'.'.join(where) or 'model'}"

    def changes(
        self,
        length: int,
        of_layer: Callable[[ModelRemoval, int], LayerChange],
        control_seed: int | None = None,
    ) -> dict[int, LayerChange]:
        """What each layer loses; with a seed the control, the same in every place.

        ``of_layer`` gives what all heads of a layer lose.
        """
        made = {}
        for index in self.layers:
            change = of_layer(self.removal, index)
            if control_seed is not None:
                change = _control(change, [control_seed, length, index], self.removal.name)
            made[index] = change if self.group.head is None else change.restricted(self.group.head)
        return made


def _control(change: LayerChange, seed: Sequence[int], name: str) -> LayerChange:
    import torch

    generator = torch.Generator()
    drawn = np.random.SeedSequence([*seed, crc32(name.encode())]).generate_state(1, np.uint64)
    generator.manual_seed(int(drawn[0] >> np.uint64(1)))
    return change.control(seed[1], generator)


def targets(
    parts: Sequence[LayerParts],
    chosen: Sequence[ModelRemoval],
    scope: Scope,
    layer: int | None,
    head: int | None,
) -> list[Target]:
    """Every removal in the model, and down to ``scope`` in each layer and head that has it.

    With ``layer`` or ``head`` only there. Raises UsageError where there is no such place.
    """
    _require(layer, [each.layer.index for each in parts], "layer")
    _require(head, range(max((each.layer.num_heads.value for each in parts), default=0)), "head")
    finest = Scope.HEAD if head is not None else scope
    if layer is not None and finest == Scope.MODEL:
        finest = Scope.LAYER
    found = []
    for removal in chosen:
        there = [each for each in parts if removal.touches(each)]
        if there and layer is None and head is None:
            mechanisms = {removal.mechanism(each) for each in there}
            found.append(_target(removal, there, mechanisms))
        for each in there if finest != Scope.MODEL else []:
            if layer not in (None, each.layer.index):
                continue
            mechanism = {removal.mechanism(each)}
            if head is None:
                found.append(_target(removal, [each], mechanism, each.layer.index))
            heads = range(each.layer.num_heads.value) if finest == Scope.HEAD else []
            found += [
                _target(removal, [each], mechanism, each.layer.index, number)
                for number in heads
                if head in (None, number)
            ]
    return found


def _target(
    removal: ModelRemoval,
    there: Sequence[LayerParts],
    mechanisms: set[Mechanism | None],
    layer: int | None = None,
    head: int | None = None,
) -> Target:
    scope = Scope.MODEL if layer is None else Scope.LAYER if head is None else Scope.HEAD
    mechanism = next(iter(mechanisms)) if len(mechanisms) == 1 else None
    group: Group[None] = Group(scope, layer, head, mechanism, ())
    return Target(removal, group, tuple(each.layer.index for each in there))


def _require(number: int | None, known: Sequence[int], what: str) -> None:
    if number is not None and number not in known:
        have = f"{what}s are {min(known)} to {max(known)}" if known else f"there is no {what}"
        raise UsageError(f"no {what} {number}", have)
