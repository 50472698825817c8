"""The position codes that a reading's heads give to lags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from pjdiag.diagnostics.code_search import LayerCodes
from pjdiag.diagnostics.heads import LayerKernel, LayerSpectrum, SoundHeads, overflow
from pjdiag.position.codes import kernel_codes, spectrum_codes
from pjdiag.position.kernel import PositionKernel, jet_sectors, mass
from pjdiag.results import Skipped
from pjdiag.terms import Family, Sector

LARGEST_CODE = 1e18
"""Squares of codes must stay within float32."""


def families(
    sound: SoundHeads, window: int, with_affine: bool
) -> tuple[dict[Family, list[LayerCodes]], list[Skipped]]:
    """The codes of every sound head by family, and the heads and layers that have none.

    ``window`` is the longest length, in tokens, at which the codes are asked for.
    """
    found: dict[Family, list[LayerCodes]] = {Family.ADDITIVE: [], Family.MULTIPLICATIVE: []}
    skipped: list[Skipped] = []
    largest = _largest_mass(sound.kernels)
    for layer in sound.kernels:
        codes, left_out = _kernel_layer(layer, window, largest, with_affine)
        skipped += left_out
        if codes is not None:
            found[Family.ADDITIVE].append(codes)
    widest = _largest_finite([entry.spectrum.amplitude for entry in sound.spectra])
    for spectrum in sound.spectra:
        if spectrum.spectrum.amplitude.shape[2] > 1:
            reason = "jet orders of a rotary mechanism have no position code from weights alone"
            skipped.append(Skipped(spectrum.layer, reason))
            continue
        codes, left_out = _spectrum_layer(spectrum, widest)
        skipped += left_out
        if codes is not None:
            found[Family.MULTIPLICATIVE].append(codes)
    return {family: layers for family, layers in found.items() if layers}, skipped


def _kernel_layer(
    layer: LayerKernel, window: int, largest: float, with_affine: bool
) -> tuple[LayerCodes | None, list[Skipped]]:
    if not jet_sectors(layer.kernel):
        reason = "a bias of the affine sector alone has no position code; it only orders lags"
        return None, [Skipped(layer.layer, reason)]
    sizes = _largest_codes(layer.kernel, window) / largest
    usable = np.flatnonzero((sizes > 0) & (sizes < LARGEST_CODE))
    skipped = [
        Skipped(layer.layer, "every jet amplitude is zero: no position code", head=head)
        if size == 0
        else overflow(layer.layer, head, f"the position code at {window} tokens")
        for head, size in zip(layer.heads, sizes, strict=True)
        if not 0 < size < LARGEST_CODE
    ]
    if not usable.size:
        return None, skipped
    # A cosine does not see a common factor; float32 does: codes near its edges are scaled.
    kernel = layer.kernel.map(lambda array: array[usable])
    kernel = replace(kernel, gates=kernel.gates / largest)

    def codes(lags: np.ndarray) -> np.ndarray:
        cast = kernel.map(lambda array: array.astype(lags.dtype))
        made: np.ndarray = kernel_codes(cast, lags, with_affine=with_affine)
        return made

    heads = tuple(layer.heads[position] for position in usable)
    return LayerCodes(layer.layer, layer.mechanism, heads, codes), skipped


def _largest_mass(layers: Sequence[LayerKernel]) -> float:
    """The largest mass of any order and head, 1 where there is none."""
    return _largest_finite(
        [mass(layer.kernel, sector) for layer in layers for sector in jet_sectors(layer.kernel)]
    )


def _largest_finite(arrays: Sequence[np.ndarray]) -> float:
    largest = max((float(a[np.isfinite(a)].max(initial=0.0)) for a in arrays), default=0.0)
    return largest if largest > 0 else 1.0


def _largest_codes(kernel: PositionKernel, window: int) -> np.ndarray:
    """A bound on each head's code over the lags below ``window``, ``[H]``."""
    reach = window / kernel.train_length
    total = np.zeros(kernel.num_heads)
    for sector in jet_sectors(kernel):
        for order, masses in enumerate(mass(kernel, sector).T):
            total += masses * (
                _largest_envelope(kernel, order, reach) if sector == Sector.FJ else 1.0
            )
    return total


def _largest_envelope(kernel: PositionKernel, order: int, reach: float) -> np.ndarray:
    """Largest ``x^r / r! e^{-c x}`` for 0 <= x <= reach, ``[H]``: at x = r / c, or at the end."""
    damping = np.zeros(kernel.num_heads) if kernel.damping is None else kernel.damping
    peak = np.where(damping * reach > order, order / np.where(damping > 0, damping, 1.0), reach)
    largest: np.ndarray = peak**order / math.factorial(order) * np.exp(-damping * peak)
    return largest


def _spectrum_layer(layer: LayerSpectrum, widest: float) -> tuple[LayerCodes | None, list[Skipped]]:
    if layer.spectrum.inv_freq is None:
        return None, [Skipped(layer.layer, "its frequencies are unknown: no position code")]
    sizes = layer.spectrum.amplitude.sum(axis=(1, 2))
    usable = np.flatnonzero(np.isfinite(sizes) & (sizes > 0))
    skipped = [
        Skipped(layer.layer, "every channel has mass zero: no position code", head=head)
        if size == 0
        else overflow(layer.layer, head, "the mass of the channels")
        for head, size in zip(layer.heads, sizes, strict=True)
        if not (np.isfinite(size) and size > 0)
    ]
    if not usable.size:
        return None, skipped
    heads = tuple(layer.heads[position] for position in usable)
    amplitude = layer.spectrum.amplitude[usable, :, 0] / widest
    codes = partial(_spectrum_codes, np.asarray(layer.spectrum.inv_freq), amplitude)
    return LayerCodes(layer.layer, layer.mechanism, heads, codes), skipped


def _spectrum_codes(inv_freq: np.ndarray, amplitude: np.ndarray, lags: np.ndarray) -> np.ndarray:
    codes: np.ndarray = spectrum_codes(
        inv_freq.astype(lags.dtype), amplitude.astype(lags.dtype), lags
    )
    return codes


def model_codes(layers: Sequence[LayerCodes], lags: np.ndarray) -> np.ndarray:
    """The concatenated code of all heads, ``[T, F]``."""
    return np.concatenate([head for layer in layers for head in layer.codes(lags)], axis=1)
