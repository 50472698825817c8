"""What a checkpoint's layers do to queries and keys, as its adapter reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pjdiag.adapters.protocol import Layer, Loaded, MultiplicativeSpectrum, Reading
from pjdiag.diagnostics.heads import excluded, sound, sound_heads
from pjdiag.position.kernel import PositionKernel
from pjdiag.position.transforms import ROTATIONS, PositionTransform, RotaryTransform
from pjdiag.results import Skipped
from pjdiag.terms import Mechanism


@dataclass(frozen=True)
class OwnPart:
    """A transform or a bias of one layer, sound heads only."""

    layer: int
    mechanism: Mechanism
    part: PositionTransform | PositionKernel


def own_parts(reading: Reading) -> tuple[list[OwnPart], list[Skipped]]:
    """Every layer's transform and bias, and what cannot be measured.

    A layer that leaves queries and keys alone and has no bias is the identity.
    """
    found = sound_heads(reading, spectra=False)
    skipped = list(found.skipped)
    parts = [OwnPart(entry.layer, entry.mechanism, entry.kernel) for entry in found.kernels]
    for layer in reading.layers:
        for part in layer.parts:
            if isinstance(part, MultiplicativeSpectrum):
                transform, problems = _sound_transform(layer, part)
                skipped += problems
                if transform is not None:
                    parts.append(OwnPart(layer.index, part.mechanism, transform))
        if not layer.parts:
            identity = PositionTransform(layer.head_dim.value)
            parts.append(OwnPart(layer.index, Mechanism.NONE, identity))
    return sorted(parts, key=lambda part: part.layer), skipped


def layer_transform(layer: Layer) -> PositionTransform | None:
    """The transform of all heads of a layer; None where its adapter does not state one."""
    for part in layer.parts:
        if isinstance(part, MultiplicativeSpectrum):
            loaded = _stated(layer, part)
            return None if loaded is None else loaded.value
    return PositionTransform(layer.head_dim.value)


def _sound_transform(
    layer: Layer, part: MultiplicativeSpectrum
) -> tuple[PositionTransform | None, list[Skipped]]:
    loaded = _stated(layer, part)
    if loaded is None:
        reason = f"the adapter does not state what {part.mechanism.value} does to q and k"
        return None, [Skipped(layer.index, reason)]
    heads = sound(layer.num_heads.value, loaded.bad)
    transform: PositionTransform = loaded.value
    return (transform.take(heads) if heads else None), excluded(layer.index, loaded.bad)


def _stated(layer: Layer, part: MultiplicativeSpectrum) -> Loaded | None:
    if part.transform is not None:
        return part.transform()
    layout = part.rope_layout.value
    if part.mechanism != Mechanism.ROPE or layout not in ROTATIONS or part.inv_freq.value is None:
        return None
    inv_freq = np.asarray(part.inv_freq.value, dtype=np.float64)
    factor = part.attention_factor.value
    return Loaded(RotaryTransform(layer.head_dim.value, inv_freq, layout, factor))
