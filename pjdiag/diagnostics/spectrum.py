"""Which wavelengths the rotary channels use: by their query-key forms, and on data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pjdiag.adapters.protocol import (
    AdditiveKernel,
    ChannelSpectrum,
    Layer,
    MultiplicativeSpectrum,
    Reading,
    TabulatedKernel,
)
from pjdiag.adapters.reading import at_length
from pjdiag.diagnostics.heads import (
    LayerSpectrum,
    SoundHeads,
    layers_in_words,
    overflow,
    sound_spectra,
    unwarned_overflow,
)
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.pair_figures import PairFigures
from pjdiag.diagnostics.progress import Progress, no_progress
from pjdiag.diagnostics.scopes import HeadItem, groups
from pjdiag.diagnostics.spectrum_rows import HeadSpectrum, spectrum_rows
from pjdiag.diagnostics.token_data import Data
from pjdiag.diagnostics.windowed_bands import windowed_bands
from pjdiag.results import Result, Skipped
from pjdiag.terms import Mechanism

if TYPE_CHECKING:
    from pjdiag.diagnostics.channel_norms import ChannelNorms, DataNorms

BIAS_ONLY = (
    "its positions enter through a bias, which has no frequencies; `pjdiag energy` measures it"
)
ABSOLUTE = (
    "its positions are added to the residual stream, which has no frequencies; what the heads do "
    "with the lag: `pjdiag kernel --data`"
)
NO_ROTATION = "it does not rotate queries and keys"
NO_TRAIN_LENGTH = (
    "the training length is unknown, so no wavelength is beyond it; pass --train-length"
)
FROM_DATA = "PoPE has no bilinear form: its mass is that on the data"


@unwarned_overflow
def spectrum(
    reading: Reading,
    data: Data | None = None,
    length: int | None = None,
    *,
    windows: int = 2,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
) -> Result:
    """Mass of the rotary channels by frequency, per model, layer and head.

    Of channel c at jet order p (0 for RoPE) the size ``m`` of its bilinear form of queries and
    keys, from the weights, in logits; its wavelength is ``2 pi / |w_c|`` tokens. Bands: ``local``
    below 16 tokens, ``beyond`` above the train length, ``mid`` between. Masses are summed over
    heads and layers and then divided.

    Rows: a band (``channel`` and ``jet_order`` null; by order as well where there are jets), and
    a channel at an order. Where the heads of a scope have different frequencies its rows are by
    equal ``inv_freq``, ``channel`` null. A channel that does not turn is ``beyond``, its
    wavelength null. Where frequencies are unknown, band and wavelength are null. Layers with a
    window below L are counted against L too; the provenance has ``windowed``: what share of their
    mass does not turn within their window.

    With ``data`` (a text, or a ``.npy`` file of token ids ``[N]`` or ``[N, T]``, -1 for padding)
    the model runs over at most ``windows`` windows of ``length`` tokens (default: L, at most
    2,048): ``query_norm`` and ``key_norm`` are the root mean squares of ``|q_c|`` and ``|k_c|``
    over the tokens, over heads in aggregates, and ``data_mass = scale query_norm key_norm`` of
    each head, summed. On white inputs that is the mass of the weights. PoPE, which has no
    bilinear form, then has this as its mass. For RoPE, ``r_c(d)`` is the mean over i of
    ``q_{i+d,c} conj(k_{i,c})`` before the rotation, the first 4 positions left out, in two bins of
    lags an octave, weighted by pairs: ``character = scale |mean r_c|``, summed; ``flatness``, the
    part of the mean of ``|r_c|^2`` that is the mean's square (1: a pure Fourier character), and
    ``line_share``, what a straight line in d adds, as a first jet does. Raises DataError,
    UsageError and AdapterError as ``measured_kernel.kernel`` does.
    """
    norms = None
    if data is not None:
        from pjdiag.diagnostics.channel_norms import channel_norms  # needed with data only

        norms = channel_norms(reading, data, length, windows, allow_pickle, progress)
        reading = at_length(reading, norms.length)
    sound = sound_spectra(reading)
    measured = [*sound.spectra, *_polar(reading, norms)]
    items, problems = _items(measured, norms)
    train_length = reading.train_length.value
    rows = [row for group in groups(items) for row in spectrum_rows(group, train_length)]
    return outcome(
        reading,
        "spectrum",
        rows,
        (*_left_out(sound, measured), *_without_rotation(reading), *problems),
        (*sound.warnings, *_warnings(reading, measured), *(norms.warnings if norms else ())),
        eval_length=reading.eval_length,
        windowed=windowed_bands(reading, items),
        **(norms.provenance if norms else {}),
    )


@dataclass(frozen=True)
class _Polar(LayerSpectrum):
    """A PoPE layer, whose masses are those on data."""


def _polar(reading: Reading, norms: DataNorms | None) -> list[LayerSpectrum]:
    """Layers without a form of their own, in the masses that the data give them."""
    found: list[LayerSpectrum] = []
    for layer in reading.layers:
        for part in layer.parts:
            here = norms.of(layer.index) if norms is not None else None
            if isinstance(part, MultiplicativeSpectrum) and part.read is None and here is not None:
                made = ChannelSpectrum(part.inv_freq.value, here.mass[..., None])
                heads = tuple(range(here.mass.shape[0]))
                found.append(_Polar(layer.index, part.mechanism, heads, made))
    return found


def _items(
    layers: Sequence[LayerSpectrum], norms: DataNorms | None
) -> tuple[list[HeadItem[HeadSpectrum]], list[Skipped]]:
    items: list[HeadItem[HeadSpectrum]] = []
    problems: list[Skipped] = []
    for layer in sorted(layers, key=lambda each: each.layer):
        amplitude = layer.spectrum.amplitude
        if not amplitude.shape[1]:
            problems.append(Skipped(layer.layer, NO_ROTATION))
            continue
        known = layer.spectrum.inv_freq
        frequencies = (None,) * amplitude.shape[1] if known is None else tuple(map(float, known))
        on_data = norms.by_layer.get(layer.layer) if norms is not None else None
        if isinstance(on_data, str):
            problems.append(Skipped(layer.layer, on_data))
        for position, head in enumerate(layer.heads):
            own = None if on_data is None or isinstance(on_data, str) else _of_head(on_data, head)
            if not np.isfinite(amplitude[position].sum()):
                problems.append(overflow(layer.layer, head, "the mass of a channel"))
            elif own is not None and not np.isfinite(own.mass).all():
                problems.append(overflow(layer.layer, head, "the size of queries or keys on data"))
            else:
                made = HeadSpectrum(frequencies, amplitude[position], own)
                items.append(HeadItem(layer.layer, head, layer.mechanism, made))
    return items, problems


def _of_head(norms: ChannelNorms, head: int) -> ChannelNorms:
    only = slice(head, head + 1)
    pairs = norms.pairs
    if pairs is not None:
        pairs = PairFigures(pairs.character[only], pairs.power[only], pairs.line[only])
    return replace(norms, query=norms.query[only], key=norms.key[only], pairs=pairs)


def _left_out(sound: SoundHeads, measured: Sequence[LayerSpectrum]) -> list[Skipped]:
    """What the weights leave out, without what the data made up for."""
    made_up = {layer.layer for layer in measured if isinstance(layer, _Polar)}
    return [
        entry for entry in sound.skipped if entry.head is not None or entry.layer not in made_up
    ]


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
    if any(layer.mechanism == Mechanism.POPE for layer in layers):
        yield FROM_DATA
    if len(layers) > len(measured) and reading.train_length.value is None:
        yield NO_TRAIN_LENGTH
