"""Which wavelengths the rotary channels use, by the size of their query-key forms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import (
    AdditiveKernel,
    Layer,
    MultiplicativeSpectrum,
    Reading,
    TabulatedKernel,
)
from pjdiag.diagnostics.heads import (
    LayerSpectrum,
    layers_in_words,
    overflow,
    sound_spectra,
    unwarned_overflow,
)
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.scopes import Group, HeadItem, groups
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import LOCAL_WAVELENGTH, Band

Frequencies = tuple[float | None, ...]
Key = tuple[int | None, float | None]
"""Channel and frequency; the channel is None where layers have different frequencies."""

BIAS_ONLY = "its positions enter through a bias, which has no frequencies"
ABSOLUTE = "its positions are added to the residual stream, which has no frequencies"
NO_ROTATION = "it does not rotate queries and keys"
NO_TRAIN_LENGTH = (
    "the training length is unknown, so no wavelength is beyond it; pass --train-length"
)


@dataclass(frozen=True)
class HeadSpectrum:
    """Masses of one head's rotary channels."""

    inv_freq: Frequencies
    """``[C]`` in rad per token; None where it is unknown."""
    mass: np.ndarray
    """``[C, R+1]`` in logits."""


@unwarned_overflow
def spectrum(reading: Reading) -> Result:
    """Mass of the rotary channels by frequency, per model, layer and head, from the weights.

    Of channel c at jet order p (0 for RoPE) the size ``m`` of its bilinear form of queries and
    keys, in logits; its wavelength is ``2 pi / |w_c|`` tokens. Bands: ``local`` below 16 tokens,
    ``beyond`` above the train length, ``mid`` between. Masses are summed over heads and layers
    and then divided.

    Rows: a band (``channel`` and ``jet_order`` null; by order as well where there are jets), and
    a channel at an order. Where the heads of a scope have different frequencies its rows are by
    equal ``inv_freq``, ``channel`` null. A channel that does not turn is ``beyond``, its
    wavelength null. Where frequencies are unknown, band and wavelength are null.
    """
    sound = sound_spectra(reading)
    items, problems = _items(sound.spectra)
    length = reading.train_length.value
    rows = [row for group in groups(items) for row in _rows(group, length)]
    return outcome(
        reading,
        "spectrum",
        rows,
        (*sound.skipped, *_without_rotation(reading), *problems),
        (*sound.warnings, *_warnings(reading, sound.spectra)),
        eval_length=reading.eval_length,
    )


def wavelength(inv_freq: float | None) -> float | None:
    """Tokens of a full turn; None where the frequency is unknown, infinity where it is 0.

    >>> wavelength(math.pi), wavelength(0.0), wavelength(None)
    (2.0, inf, None)
    """
    if inv_freq is None:
        return None
    return 2 * math.pi / abs(inv_freq) if inv_freq else math.inf


def band_of(inv_freq: float | None, train_length: int | None) -> Band | None:
    """The band of a channel; None where its frequency is unknown.

    >>> [band_of(w, 2048) for w in (1.0, 0.1, 0.001, 0.0)]
    [<Band.LOCAL: 'local'>, <Band.MID: 'mid'>, <Band.BEYOND: 'beyond'>, <Band.BEYOND: 'beyond'>]
    """
    turn = wavelength(inv_freq)
    if turn is None:
        return None
    if turn < LOCAL_WAVELENGTH:
        return Band.LOCAL
    # A channel that does not turn is beyond any length, known or not.
    longest = math.inf if train_length is None else train_length
    return Band.BEYOND if turn > longest or math.isinf(turn) else Band.MID


def _items(
    layers: Sequence[LayerSpectrum],
) -> tuple[list[HeadItem[HeadSpectrum]], list[Skipped]]:
    items: list[HeadItem[HeadSpectrum]] = []
    problems: list[Skipped] = []
    for layer in layers:
        amplitude = layer.spectrum.amplitude
        if not amplitude.shape[1]:
            problems.append(Skipped(layer.layer, NO_ROTATION))
            continue
        known = layer.spectrum.inv_freq
        frequencies = (None,) * amplitude.shape[1] if known is None else tuple(map(float, known))
        for position, head in enumerate(layer.heads):
            if np.isfinite(amplitude[position].sum()):
                made = HeadSpectrum(frequencies, amplitude[position])
                items.append(HeadItem(layer.layer, head, layer.mechanism, made))
            else:
                problems.append(overflow(layer.layer, head, "the mass of a channel"))
    return items, problems


def _rows(group: Group[HeadSpectrum], train_length: int | None) -> Iterator[Row]:
    by_key = _summed(group.values)
    total = sum(float(masses.sum()) for masses in by_key.values())
    orders = range(next(iter(by_key.values())).shape[0])
    bands = {key: band_of(key[1], train_length) for key in by_key}
    for name in _possible_bands(bands.values(), train_length):
        inside = np.sum([by_key[key] for key in by_key if bands[key] == name], axis=0)
        by_order = np.zeros(len(orders)) + inside  # an empty sum is the number 0
        yield _row(group, total, float(by_order.sum()), name)
        for order in orders if len(orders) > 1 else ():
            yield _row(group, total, float(by_order[order]), name, jet_order=order)
    for key, masses in by_key.items():
        channel, inv_freq = key
        if channel is None and inv_freq is None:
            continue  # what layers of unknown frequencies have in common is the band's row
        for order in orders:
            yield _row(
                group,
                total,
                float(masses[order]),
                bands[key],
                channel=channel,
                inv_freq=inv_freq,
                wavelength=_finite(wavelength(inv_freq)),
                jet_order=order,
            )


def _possible_bands(found: Any, train_length: int | None) -> list[Band | None]:
    """Bands that have a row, be it with no mass: those of known frequencies, then the unknown."""
    present = set(found)
    known = present - {None}
    possible: list[Band | None] = [Band.LOCAL, Band.MID] if known else []
    if known and (train_length is not None or Band.BEYOND in known):
        possible.append(Band.BEYOND)
    return [*possible, *([None] if None in present else [])]


def _summed(heads: Sequence[HeadSpectrum]) -> dict[Key, np.ndarray]:
    """Masses ``[R+1]`` by channel where all heads have the same frequencies, else by frequency."""
    orders = max(head.mass.shape[1] for head in heads)
    by_frequencies: dict[Frequencies, np.ndarray] = {}
    for head in heads:
        total = by_frequencies.setdefault(
            head.inv_freq, np.zeros((head.mass.shape[0], orders), dtype=np.float64)
        )
        total[:, : head.mass.shape[1]] += head.mass
    if len(by_frequencies) == 1:
        ((frequencies, total),) = by_frequencies.items()
        return {(channel, w): total[channel] for channel, w in enumerate(frequencies)}
    merged: dict[Key, np.ndarray] = {}
    for frequencies, total in by_frequencies.items():
        for w, masses in zip(frequencies, total, strict=True):
            merged[None, w] = merged.get((None, w), 0) + masses
    return dict(sorted(merged.items(), key=lambda entry: -abs(entry[0][1] or 0)))


def _row(
    group: Group[HeadSpectrum], total: float, mass: float, band: Band | None, **figures: Any
) -> Row:
    blank = dict.fromkeys(("channel", "inv_freq", "wavelength", "band", "jet_order"))
    named = {"band": None if band is None else band.value}
    shared = {"mass": mass, "share": mass / total if total > 0 else None}
    return group.row(**{**blank, **figures, **named, **shared})


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _without_rotation(reading: Reading) -> list[Skipped]:
    """Layers that have nothing to show here, and why."""
    return [
        Skipped(layer.index, _reason(layer))
        for layer in reading.layers
        if not any(isinstance(part, MultiplicativeSpectrum) for part in layer.parts)
    ]


def _reason(layer: Layer) -> str:
    if any(isinstance(part, AdditiveKernel | TabulatedKernel) for part in layer.parts):
        return BIAS_ONLY
    return ABSOLUTE if layer.parts else NO_ROTATION


def _warnings(reading: Reading, layers: Sequence[LayerSpectrum]) -> Iterator[str]:
    measured = {layer.layer for layer in layers if layer.spectrum.inv_freq is None}
    unknown: dict[str, list[int]] = {}
    for layer in reading.layers:
        for part in layer.parts:
            if isinstance(part, MultiplicativeSpectrum) and layer.index in measured:
                unknown.setdefault(part.inv_freq.source, []).append(layer.index)
    for source, indices in unknown.items():
        why = source.partition("unknown: ")[2]
        yield (
            f"frequencies of {layers_in_words(indices)} are unknown{why and f' ({why})'}, so their "
            "channels have no wavelength; state rope_theta in config.json"
        )
    if len(layers) > len(measured) and reading.train_length.value is None:
        yield NO_TRAIN_LENGTH
