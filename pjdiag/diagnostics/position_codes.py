"""The position codes that a reading's heads give to lags."""

from __future__ import annotations

from collections.abc import Sequence
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
    for layer in sound.kernels:
        codes, left_out = _kernel_layer(layer, window, with_affine)
        skipped += left_out
        if codes is not None:
            found[Family.ADDITIVE].append(codes)
    for spectrum in sound.spectra:
        if spectrum.spectrum.amplitude.shape[2] > 1:
            reason = "jet orders of a rotary mechanism have no position code from weights alone"
            skipped.append(Skipped(spectrum.layer, reason))
            continue
        found[Family.MULTIPLICATIVE].append(
            LayerCodes(
                spectrum.layer,
                spectrum.mechanism,
                spectrum.heads,
                partial(_spectrum_layer, spectrum),
            )
        )
    return {family: layers for family, layers in found.items() if layers}, skipped


def _kernel_layer(
    layer: LayerKernel, window: int, with_affine: bool
) -> tuple[LayerCodes | None, list[Skipped]]:
    if not jet_sectors(layer.kernel):
        reason = "a bias of the affine sector alone has no position code; it only orders lags"
        return None, [Skipped(layer.layer, reason)]
    sizes = _largest_codes(layer.kernel, window)
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
    kernel = layer.kernel.map(lambda array: array[usable])

    def codes(lags: np.ndarray) -> np.ndarray:
        cast = kernel.map(lambda array: array.astype(lags.dtype))
        made: np.ndarray = kernel_codes(cast, lags, with_affine=with_affine)
        return made

    heads = tuple(layer.heads[position] for position in usable)
    return LayerCodes(layer.layer, layer.mechanism, heads, codes), skipped


def _largest_codes(kernel: PositionKernel, window: int) -> np.ndarray:
    """A bound on each head's code over the lags below ``window``, ``[H]``."""
    reach = max(window / kernel.train_length, 1.0)
    total = np.zeros(kernel.num_heads)
    for sector in jet_sectors(kernel):
        masses = mass(kernel, sector)
        growth = reach if sector == Sector.FJ else 1.0
        total += masses @ growth ** np.arange(masses.shape[1])
    return total


def _spectrum_layer(layer: LayerSpectrum, lags: np.ndarray) -> np.ndarray:
    codes: np.ndarray = spectrum_codes(
        np.asarray(layer.spectrum.inv_freq).astype(lags.dtype),
        layer.spectrum.amplitude[:, :, 0].astype(lags.dtype),
        lags,
    )
    return codes


def model_codes(layers: Sequence[LayerCodes], lags: np.ndarray) -> np.ndarray:
    """The concatenated code of all heads, ``[T, F]``."""
    return np.concatenate([head for layer in layers for head in layer.codes(lags)], axis=1)
