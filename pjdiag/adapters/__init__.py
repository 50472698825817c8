"""How an architecture's tensors become effective values, and who knows how."""

from pjdiag.adapters.protocol import (
    Adapter,
    AdditiveKernel,
    BadTensor,
    ChannelSpectrum,
    Layer,
    Loaded,
    Match,
    MultiplicativeSpectrum,
    Reading,
    SkippedLayer,
    Sourced,
)
from pjdiag.adapters.reading import at_length, read
from pjdiag.adapters.registry import Registration, detect, registrations

__all__ = [
    "Adapter",
    "AdditiveKernel",
    "BadTensor",
    "ChannelSpectrum",
    "Layer",
    "Loaded",
    "Match",
    "MultiplicativeSpectrum",
    "Reading",
    "Registration",
    "SkippedLayer",
    "Sourced",
    "at_length",
    "detect",
    "read",
    "registrations",
]
