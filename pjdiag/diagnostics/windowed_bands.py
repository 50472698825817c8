"""Rotary channels of layers that see fewer tokens than the model was trained at."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.scopes import HeadItem
from pjdiag.diagnostics.spectrum_rows import HeadSpectrum, wavelength


def windowed_bands(
    reading: Reading, items: Iterable[HeadItem[HeadSpectrum]]
) -> list[dict[str, Any]]:
    """For each window below the train length: its layers, and how much does not turn within it.

    ``window`` in tokens, ``layers``, and ``not_within``: the share of the mass of these layers in
    channels with a wavelength above the window. Where L is unknown every window counts. Layers of
    unknown frequencies are left out.
    """
    train_length = reading.train_length.value or math.inf
    windows = {
        layer.index: size
        for layer in reading.layers
        if (size := layer.window.value) is not None and size < train_length
    }
    sums: dict[int, tuple[set[int], list[float]]] = {}
    for item in items:
        size = windows.get(item.layer)
        if size is None or None in item.value.inv_freq:
            continue
        layers, mass = sums.setdefault(size, (set(), [0.0, 0.0]))
        layers.add(item.layer)
        for inv_freq, of_channel in zip(item.value.inv_freq, item.value.mass, strict=True):
            turn = wavelength(inv_freq) or math.inf
            mass[0] += float(of_channel.sum())
            mass[1] += float(of_channel.sum()) if turn > size else 0.0
    return [
        {"window": size, "layers": sorted(layers), "not_within": still / whole if whole else None}
        for size, (layers, (whole, still)) in sorted(sums.items())
    ]
