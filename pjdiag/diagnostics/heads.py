"""The heads that can be measured: those whose tensors are finite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import AdditiveKernel, BadTensor, ChannelSpectrum, Reading
from pjdiag.position.kernel import PositionKernel
from pjdiag.results import Skipped
from pjdiag.terms import Mechanism


@dataclass(frozen=True)
class LayerKernel:
    """The additive kernel of one layer, sound heads only."""

    layer: int
    mechanism: Mechanism
    heads: tuple[int, ...]
    """Index in the checkpoint of each head of ``kernel``."""
    kernel: PositionKernel
    """float64 NumPy arrays."""


@dataclass(frozen=True)
class LayerSpectrum:
    """The multiplicative spectrum of one layer, sound heads only."""

    layer: int
    mechanism: Mechanism
    heads: tuple[int, ...]
    spectrum: ChannelSpectrum


@dataclass(frozen=True)
class SoundHeads:
    """What a diagnostic can measure, and what it must leave out."""

    kernels: tuple[LayerKernel, ...]
    spectra: tuple[LayerSpectrum, ...]
    skipped: tuple[Skipped, ...]


def sound_heads(reading: Reading, *, spectra: bool = True) -> SoundHeads:
    """Every head with finite tensors, and an entry for every layer or head without.

    With ``spectra`` false the query and key weights of RoPE-like layers are not read.
    """
    kernels: list[LayerKernel] = []
    channels: list[LayerSpectrum] = []
    skipped = [Skipped(entry.index, entry.reason) for entry in reading.skipped]
    for layer in reading.layers:
        for part in layer.parts:
            if isinstance(part, AdditiveKernel):
                heads = sound(layer.num_heads.value, part.loaded.bad)
                skipped += excluded(layer.index, part.loaded.bad)
                if heads:
                    kernels.append(
                        LayerKernel(layer.index, part.mechanism, heads, _take(part.kernel, heads))
                    )
            elif spectra and (loaded := part.loaded) is not None:
                heads = sound(layer.num_heads.value, loaded.bad)
                skipped += excluded(layer.index, loaded.bad)
                if heads:
                    chosen = replace(loaded.value, amplitude=loaded.value.amplitude[list(heads)])
                    channels.append(LayerSpectrum(layer.index, part.mechanism, heads, chosen))
            elif spectra:
                skipped.append(Skipped(layer.index, part.unread_reason))
    return SoundHeads(tuple(kernels), tuple(channels), tuple(skipped))


unwarned_overflow = np.errstate(over="ignore", invalid="ignore", under="ignore")
"""For diagnostics that look for overflow in their figures and name the head."""


def overflow(layer: int, head: int, what: str) -> Skipped:
    """The entry for a head whose figures are not finite although its tensors are."""
    return Skipped(layer, f"{what} overflows", head=head, bad_values=True)


def sound(num_heads: int, bad: Iterable[BadTensor]) -> tuple[int, ...]:
    """The heads that no bad tensor spoils."""
    spoiled = {head for tensor in bad for head in tensor.heads}
    return tuple(head for head in range(num_heads) if head not in spoiled)


def excluded(layer: int, bad: Iterable[BadTensor]) -> list[Skipped]:
    """An entry for every head that is spoilt, with all its tensors."""
    reasons: dict[int, list[str]] = {}
    for tensor in bad:
        for head in tensor.heads:
            reasons.setdefault(head, []).append(
                f"{tensor.tensor} holds {tensor.count} values that are NaN or infinite"
            )
    return [
        Skipped(layer, "; ".join(found), head=head, bad_values=True)
        for head, found in sorted(reasons.items())
    ]


def _take(kernel: PositionKernel, heads: tuple[int, ...]) -> PositionKernel:
    index = list(heads)

    def choose(array: Any) -> Any:
        return np.asarray(array, dtype=np.float64)[index]

    return kernel.map(choose)
