"""The heads that can be measured: those whose tensors are finite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import (
    AbsolutePositions,
    AdditiveKernel,
    BadTensor,
    ChannelSpectrum,
    Layer,
    MultiplicativeSpectrum,
    Reading,
    TabulatedKernel,
)
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
class LayerTable:
    """The tabulated bias of one layer, sound heads only."""

    layer: int
    mechanism: Mechanism
    heads: tuple[int, ...]
    table: np.ndarray
    """``[num_buckets, heads]`` in logits, float64."""
    max_distance: int
    causal: bool
    """Otherwise half the buckets are for the keys after the query."""


@dataclass(frozen=True)
class SoundHeads:
    """What a diagnostic can measure, and what it must leave out."""

    kernels: tuple[LayerKernel, ...]
    spectra: tuple[LayerSpectrum, ...]
    tables: tuple[LayerTable, ...]
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...] = ()


ABSOLUTE = (
    "learned absolute positions are no function of the lag; what the heads do with the lag: "
    "`pjdiag kernel --data`"
)


def sound_heads(reading: Reading, *, spectra: bool = True) -> SoundHeads:
    """Every head with finite tensors, and an entry for every layer or head without.

    With ``spectra`` false the query and key weights of RoPE-like layers are not read.
    """
    found = _Gathered(skipped=[Skipped(entry.index, entry.reason) for entry in reading.skipped])
    for layer in reading.layers:
        for part in layer.parts:
            if isinstance(part, AdditiveKernel) and part.unread_reason:
                found.skipped.append(Skipped(layer.index, part.unread_reason))
            elif isinstance(part, AdditiveKernel):
                if heads := found.sound(layer, part.loaded.bad):
                    kernel = _take(part.kernel, heads)
                    found.kernels.append(LayerKernel(layer.index, part.mechanism, heads, kernel))
            elif isinstance(part, TabulatedKernel):
                if heads := found.sound(layer, part.loaded.bad):
                    table = np.asarray(part.loaded.value, dtype=np.float64)[:, list(heads)]
                    found.tables.append(
                        LayerTable(
                            layer.index,
                            part.mechanism,
                            heads,
                            table,
                            part.max_distance.value,
                            layer.causal.value,
                        )
                    )
            elif isinstance(part, AbsolutePositions):
                found.skipped.append(Skipped(layer.index, ABSOLUTE))
            elif spectra:
                _gather_spectrum(found, layer, part)
    return found.finished()


def sound_spectra(reading: Reading) -> SoundHeads:
    """As ``sound_heads``, of the rotary parts alone: no bias is read."""
    found = _Gathered(skipped=[Skipped(entry.index, entry.reason) for entry in reading.skipped])
    for layer in reading.layers:
        for part in layer.parts:
            if isinstance(part, MultiplicativeSpectrum):
                _gather_spectrum(found, layer, part)
    return found.finished()


def without_tables(sound: SoundHeads, why: str) -> list[Skipped]:
    """An entry for every layer with a tabulated bias, of which a diagnostic has nothing to say."""
    reason = f"a tabulated bias {why}; `pjdiag energy` fits it"
    return [Skipped(layer.layer, reason) for layer in sound.tables]


@dataclass
class _Gathered:
    skipped: list[Skipped]
    kernels: list[LayerKernel] = field(default_factory=list)
    spectra: list[LayerSpectrum] = field(default_factory=list)
    tables: list[LayerTable] = field(default_factory=list)
    approximate: dict[str, list[int]] = field(default_factory=dict)

    def sound(self, layer: Layer, bad: tuple[BadTensor, ...]) -> tuple[int, ...]:
        """The heads that ``bad`` spares; the others are noted."""
        self.skipped += excluded(layer.index, bad)
        return sound(layer.num_heads.value, bad)

    def finished(self) -> SoundHeads:
        return SoundHeads(
            tuple(self.kernels),
            tuple(self.spectra),
            tuple(self.tables),
            tuple(self.skipped),
            tuple(
                f"approximate in {layers_in_words(layers)}: {reason}"
                for reason, layers in self.approximate.items()
            ),
        )


def _gather_spectrum(found: _Gathered, layer: Layer, part: MultiplicativeSpectrum) -> None:
    loaded = part.loaded
    if loaded is None:
        found.skipped.append(Skipped(layer.index, part.unread_reason))
    elif heads := found.sound(layer, loaded.bad):
        chosen = replace(loaded.value, amplitude=loaded.value.amplitude[list(heads)])
        found.spectra.append(LayerSpectrum(layer.index, part.mechanism, heads, chosen))
        if part.approximate:
            found.approximate.setdefault(part.approximate, []).append(layer.index)


def layers_in_words(indices: list[int]) -> str:
    """Layers in words.

    >>> layers_in_words([3]), layers_in_words([0, 1, 2]), layers_in_words([0, 2])
    ('layer 3', 'layers 0-2', 'layers 0, 2')
    """
    if len(indices) == 1:
        return f"layer {indices[0]}"
    if indices == list(range(indices[0], indices[-1] + 1)):
        return f"layers {indices[0]}-{indices[-1]}"
    return f"layers {', '.join(map(str, indices))}"


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
