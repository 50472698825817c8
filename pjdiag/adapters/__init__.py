"""How an architecture's tensors become effective values, and who knows how."""

from pjdiag.adapters.protocol import (
    AbsolutePositions,
    Adapter,
    AdditiveKernel,
    BadTensor,
    ChannelSpectrum,
    Layer,
    Loaded,
    Match,
    MultiplicativeSpectrum,
    Part,
    Projections,
    Reading,
    SkippedLayer,
    Sourced,
    TabulatedKernel,
)
from pjdiag.adapters.reading import at_length, read
from pjdiag.adapters.registry import Registration, detect, registrations, verified

__all__ = [
    "AbsolutePositions",
    "Adapter",
    "AdditiveKernel",
    "BadTensor",
    "ChannelSpectrum",
    "Layer",
    "Loaded",
    "Match",
    "MultiplicativeSpectrum",
    "Part",
    "Projections",
    "Reading",
    "Registration",
    "SkippedLayer",
    "Sourced",
    "TabulatedKernel",
    "at_length",
    "detect",
    "read",
    "registrations",
    "verified",
]
