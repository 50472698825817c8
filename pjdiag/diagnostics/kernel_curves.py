"""Additive kernels as curves over the lag, for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.heads import LayerKernel, LayerTable, sound_heads
from pjdiag.diagnostics.outcome import require_train_length
from pjdiag.position.kernel import gated_components
from pjdiag.position.relative_bias import bias_by_lag

DENSE_LAGS = 256
"""Lags up to here are all sampled; an oscillation is drawn as it is."""
FAR_LAGS = 96
"""Lags beyond, evenly spaced in the logarithm."""
MOST_HEADS = 32
"""Heads that a picture holds; of more, those with the largest bias."""


@dataclass(frozen=True)
class HeadCurve:
    """The kernel of one head."""

    layer: int
    head: int
    parts: dict[str, np.ndarray]
    """``fj``, ``affine``, ``lc`` where present, gated, summed over orders; and ``kernel``: [T]."""


@dataclass(frozen=True)
class KernelCurves:
    """Kernels of many heads over the same lags."""

    lags: np.ndarray
    """``[T]`` in tokens."""
    heads: tuple[HeadCurve, ...]
    total: int
    """Heads that have a bias; more than ``heads`` where there are very many."""

    @property
    def sampled(self) -> bool:
        """Whether lags are left out."""
        return bool(self.lags.shape[0] <= self.lags[-1])


def curve_lags(length: int) -> np.ndarray:
    """Lags from 0 to ``length - 1``: all of the near ones, some of the far ones.

    >>> curve_lags(128).shape, int(curve_lags(4096)[-1])
    ((128,), 4095)
    """
    if length <= DENSE_LAGS + FAR_LAGS:
        return np.arange(float(length))
    far = np.geomspace(DENSE_LAGS, length - 1, FAR_LAGS).round()
    return np.unique(np.concatenate([np.arange(float(DENSE_LAGS)), far]))


def kernel_curves(
    reading: Reading, length: int | None = None, *, limit: int = MOST_HEADS
) -> KernelCurves | None:
    """Gated components and their sum of each head with a bias; None where no layer has one.

    ``length`` in tokens, default the train length. Raises UsageError where that is unknown.

    >>> import pjdiag
    >>> curves = kernel_curves(pjdiag.read(pjdiag.sample()))
    >>> len(curves.heads), sorted(curves.heads[0].parts), curves.lags.shape
    (8, ['affine', 'fj', 'kernel', 'lc'], (128,))
    """
    sound = sound_heads(reading, spectra=False)
    if not sound.kernels and not sound.tables:
        return None
    lags = curve_lags(length or require_train_length(reading))
    found = [curve for layer in sound.kernels for curve in _of_kernel(layer, lags)]
    found += [curve for table in sound.tables for curve in _of_table(table, lags)]
    return KernelCurves(lags, tuple(_largest(found, limit)), len(found))


def _of_kernel(layer: LayerKernel, lags: np.ndarray) -> list[HeadCurve]:
    parts = {
        sector.value: np.asarray(gated_components(layer.kernel, sector, lags)).sum(axis=1)
        for sector in layer.kernel.sectors
    }
    whole = sum(parts.values(), np.zeros((len(layer.heads), lags.shape[0])))
    return [
        HeadCurve(
            layer.layer,
            head,
            {**{name: part[index] for name, part in parts.items()}, "kernel": whole[index]},
        )
        for index, head in enumerate(layer.heads)
    ]


def _of_table(layer: LayerTable, lags: np.ndarray) -> list[HeadCurve]:
    bias = np.asarray(bias_by_lag(layer.table, lags, not layer.causal, layer.max_distance))
    return [
        HeadCurve(layer.layer, head, {"kernel": bias[index]})
        for index, head in enumerate(layer.heads)
    ]


def _largest(found: Sequence[HeadCurve], limit: int) -> list[HeadCurve]:
    """The heads whose kernel varies most, in the order of the checkpoint."""
    if len(found) <= limit:
        return list(found)
    ranked = sorted(found, key=lambda curve: -float(np.std(curve.parts["kernel"])))[:limit]
    return sorted(ranked, key=lambda curve: (curve.layer, curve.head))
