"""What adapters share whose positions are not RoPE alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pjdiag.adapters import (
    AbsolutePositions,
    AdditiveKernel,
    BadTensor,
    Layer,
    Loaded,
    MultiplicativeSpectrum,
    SkippedLayer,
    Sourced,
)
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.protocol import UNKNOWN
from pjdiag.checkpoint import Checkpoint
from pjdiag.position.alibi import alibi_kernel
from pjdiag.terms import Mechanism, Sector
from pjdiag_plugins.stored_slopes import SlopeStore

NO_TRAIN_LENGTH = "train length unknown, pass --train-length: the mass of ALiBi is m L"


@dataclass(frozen=True)
class Around:
    """What surrounds a layer: its checkpoint, configuration and training length."""

    checkpoint: Checkpoint
    fields: ConfigFields
    train_length: int | None
    """L in tokens."""
    prefix: str
    """What stands before the layers' names."""
    slopes: SlopeStore
    """ALiBi slopes that the checkpoint stores."""


class PlacedAdapter(DecoderAdapter, ABC):
    """A map's reading, to which a class adds the positions of every layer."""

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer in order, with its positions."""
        around = Around(
            checkpoint,
            self.fields(checkpoint),
            train_length,
            self.prefix(checkpoint),
            SlopeStore(checkpoint),
        )
        for found in super().layers(checkpoint, train_length, eval_length):
            yield found if isinstance(found, SkippedLayer) else self.placed(found, around)

    @abstractmethod
    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer with its positions, or why it cannot be read."""


def alibi_part(
    slopes: Sourced[tuple[float, ...]],
    train_length: int | None,
    bad: tuple[BadTensor, ...] = (),
) -> AdditiveKernel:
    """ALiBi of these slopes, in logits per token.

    Without a train length the kernel is stated per token (L = 1): as a function of the lag it is
    the same, but it has no mass.

    >>> part = alibi_part(Sourced((0.5, 0.25), "config"), 64)
    >>> part.kernel.slope.tolist()
    [32.0, 16.0]
    """
    return AdditiveKernel(
        mechanism=Mechanism.ALIBI,
        sectors=(Sector.AFFINE,),
        max_order=0,
        read=partial(_alibi, slopes.value, train_length or 1, bad),
        slopes=slopes,
        unread_reason="" if train_length is not None else NO_TRAIN_LENGTH,
    )


def _alibi(slopes: tuple[float, ...], train_length: int, bad: tuple[BadTensor, ...]) -> Loaded:
    return Loaded(alibi_kernel(np.asarray(slopes, dtype=np.float64), train_length), bad)


def absolute_part(
    checkpoint: Checkpoint, names: tuple[str, ...], stated: Sourced[int | None], reserved: int = 0
) -> AbsolutePositions:
    """Learned absolute positions: as many as the table has rows, else as the config states.

    ``names`` are ends of the table's name. ``reserved`` rows belong to no position.
    """
    for name, header in checkpoint.headers.items():
        if name.endswith(names) and len(header.shape) == 2:
            rows = header.shape[0] - reserved
            note = f"tensor {name}" + (f", {reserved} rows reserved" if reserved else "")
            return AbsolutePositions(Mechanism.LEARNED_ABSOLUTE, Sourced(rows, note))
    return AbsolutePositions(Mechanism.LEARNED_ABSOLUTE, stated)


def bidirectional(layer: Layer, why: str = "architecture: encoder") -> Layer:
    """The layer as one whose queries see all keys."""
    return replace(layer, causal=Sourced(False, why))


def unknown_part(reason: str) -> MultiplicativeSpectrum:
    """A mechanism that nothing tells; every figure is unknown.

    >>> unknown_part("no config").mechanism.value
    'unknown'
    """
    nothing: Any = UNKNOWN
    return MultiplicativeSpectrum(
        mechanism=Mechanism.UNKNOWN,
        inv_freq=nothing,
        rotary_dim=nothing,
        rope_layout=nothing,
        rope_theta=nothing,
        rope_type=nothing,
        attention_factor=nothing,
        unread_reason=reason,
    )
