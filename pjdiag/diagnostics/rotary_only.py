"""What diagnostics that have nothing to say of rotary layers say instead: where to look."""

from __future__ import annotations

from pjdiag.adapters.protocol import Layer, MultiplicativeSpectrum, Reading
from pjdiag.checkpoint.native import is_native, is_research
from pjdiag.results import Skipped
from pjdiag.terms import Mechanism

NO_BIAS = "no bias is added to its logits"
USE = "; what its rotary channels use: `pjdiag spectrum`"
USE_ON_DATA = "; what its rotary channels use: `pjdiag spectrum --data`"
"""Of PoPE, whose weights alone have no spectrum."""
NO_CODE = "PoPE's softplus leaves no bilinear form: its weights alone give no position code"
ASKED = "; the running model can be asked: `pjdiag probe --in-model`"


def rotary_only(reading: Reading, more: str = "") -> list[Skipped]:
    """An entry for each layer without a bias, with where to look instead and then ``more``."""
    return [
        Skipped(layer.index, _without_bias(layer, _runs(reading), more))
        for layer in reading.layers
        if layer.parts and len(_rotary(layer)) == len(layer.parts)
    ]


def massless(reading: Reading) -> bool:
    """Whether a layer has its mass on data only, and the model can be run for it."""
    parts = [part for layer in reading.layers for part in _rotary(layer)]
    unread = any(part.mechanism == Mechanism.POPE and part.read is None for part in parts)
    return unread and _runs(reading)


def without_code(reading: Reading, skipped: Skipped) -> Skipped:
    """What was said of a PoPE layer's mass, said of its position code; others as they are."""
    reasons = {
        layer.index: part.unread_reason
        for layer in reading.layers
        for part in _rotary(layer)
        if part.mechanism == Mechanism.POPE and part.read is None
    }
    if reasons.get(skipped.layer) != skipped.reason:
        return skipped
    return Skipped(skipped.layer, NO_CODE + (ASKED if _runs(reading) else ""))


def _rotary(layer: Layer) -> list[MultiplicativeSpectrum]:
    return [part for part in layer.parts if isinstance(part, MultiplicativeSpectrum)]


def _runs(reading: Reading) -> bool:
    """Whether a PoPE model can be run from its files."""
    return is_native(reading.checkpoint) or is_research(reading.checkpoint)


def _without_bias(layer: Layer, runs: bool, more: str) -> str:
    rotary = _rotary(layer)
    unknown = [part.unread_reason for part in rotary if part.mechanism == Mechanism.UNKNOWN]
    if unknown:
        return unknown[0]
    if all(part.mechanism != Mechanism.POPE for part in rotary):
        return NO_BIAS + USE + more
    return NO_BIAS + USE_ON_DATA + more if runs else NO_BIAS
