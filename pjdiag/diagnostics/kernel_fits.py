"""Shapes and sectors of measured kernels, head by head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.adapters.protocol import AdditiveKernel, Layer, MultiplicativeSpectrum
from pjdiag.diagnostics.compact_shapes import ShapeFit, compact_shapes
from pjdiag.diagnostics.kernel_sums import MeasuredKernel
from pjdiag.diagnostics.kernel_terms import Shape
from pjdiag.diagnostics.sector_fit import (
    CHOSEN,
    SectorDictionary,
    chosen_frequencies,
    frequency_grid,
    most_frequencies,
)
from pjdiag.terms import Rho, Sector

Floats = NDArray[np.float64]
Key = tuple[str | None, str | None, int | None]
"""Shape, sector-fit group, lag: at most one of them. All None: the kernel as a whole."""
Figures = dict[str, float | None]

WHOLE: Key = (None, None, None)
TOTAL, RESIDUAL = "total", "residual"
USUAL_ORDER = 3
"""Highest jet order of the sector fit where the checkpoint has no higher one."""
ENOUGH_PAIRS = 0.1
"""The range is taken over lags with at least so many of the pairs of lag 0."""


@dataclass(frozen=True)
class Candidates:
    """What the sector fit of a layer's heads may be made of."""

    by_head: tuple[tuple[float, ...], ...] | None
    """Frequencies of each head in rad per token; None: they are chosen from a grid."""
    rho: Rho
    max_order: int


def candidates(layer: Layer | None, heads: int) -> Candidates:
    """Frequencies and recency coordinate that a layer states.

    A head's frequencies are those of its rotary channels and its own omega where the bias has
    jets. A layer without any, or with unknown ones, has them chosen from a grid.
    """
    shared: set[float] = set()
    own: list[set[float]] = [set() for _ in range(heads)]
    rho, max_order = Rho.LINEAR, USUAL_ORDER
    for part in layer.parts if layer is not None else ():
        if isinstance(part, MultiplicativeSpectrum):
            shared |= {abs(w) for w in part.inv_freq.value or ()}
            max_order = max(max_order, part.max_order)
        elif isinstance(part, AdditiveKernel) and not part.unread_reason:
            rho, max_order = part.kernel.rho, max(max_order, part.max_order)
            if set(part.sectors) & {Sector.FJ, Sector.LC}:
                for head, omega in enumerate(np.abs(np.asarray(part.kernel.omega)).tolist()):
                    own[head].add(float(omega))
    found = tuple(
        tuple(sorted(w for w in shared | extra if np.isfinite(w) and w > 0)) for extra in own
    )
    return Candidates(found if all(found) else None, rho, max_order)


@dataclass
class Fitter:
    """Fits kernels; dictionaries are made once for all heads that share theirs."""

    train_length: int | None
    """L in tokens; None: there is no sector fit."""
    layers: dict[int, Candidates]
    chosen: set[int] = field(default_factory=set)
    """Layers whose frequencies were chosen from a grid."""
    reduced: set[int] = field(default_factory=set)
    """Layers with more frequencies than a dictionary over so few lags may have."""
    _dictionaries: dict[Any, SectorDictionary] = field(default_factory=dict)

    def figures(
        self, measured: MeasuredKernel, curve: bool
    ) -> Iterator[tuple[int, dict[Key, Figures]]]:
        """Each head whose kernel is finite, with all its figures; ``curve``: points of K too."""
        heads = np.flatnonzero(np.isfinite(measured.kernel).all(axis=1))
        kernels = measured.kernel[heads]
        if not len(heads):
            return
        shapes = compact_shapes(kernels, measured.pairs, self.train_length)
        groups = self._groups(measured, heads)
        best = np.argmin([fit.bic for fit in shapes], axis=0)
        for n, head in enumerate(heads):
            found = {WHOLE: _whole(measured, int(head), shapes, n)}
            for rank, fit in enumerate(shapes):
                found[fit.shape.value, None, None] = _shape(fit, n, bool(best[n] == rank))
            for name, figures in groups[n].items():
                found[None, name, None] = figures
            for lag in curve_lags(len(measured.pairs)) if curve else ():
                found[None, None, lag] = {
                    "kernel": float(measured.kernel[head, lag]),
                    "standard_error": _figure(measured.standard_error[head, lag]),
                }
            yield int(head), found

    def _groups(self, measured: MeasuredKernel, heads: Any) -> list[dict[str, Figures]]:
        """The sector fit of each of ``heads``."""
        if self.train_length is None:
            return [{} for _ in heads]
        stated = self.layers[measured.layer]
        by_frequencies: dict[tuple[float, ...] | None, list[int]] = {}
        for n, head in enumerate(heads):
            key = None if stated.by_head is None else stated.by_head[head]
            by_frequencies.setdefault(key, []).append(n)
        found: list[dict[str, Figures]] = [{} for _ in heads]
        for frequencies, members in by_frequencies.items():
            kernels = measured.kernel[heads[members]]
            dictionary = self._dictionary(measured, stated, kernels, frequencies, self.train_length)
            fit = dictionary.fit(kernels)
            for column, n in enumerate(members):
                total = _figure(fit.r2[column])
                found[n] = {
                    name: {
                        "unique_r2": _figure(fit.unique_r2[row, column]),
                        "incremental_r2": _figure(fit.incremental_r2[row, column]),
                    }
                    for row, name in enumerate(fit.groups)
                }
                found[n][TOTAL] = {"r2": total}
                found[n][RESIDUAL] = {"r2": None if total is None else 1 - total}
        return found

    def _dictionary(
        self,
        measured: MeasuredKernel,
        stated: Candidates,
        kernels: Floats,
        frequencies: tuple[float, ...] | None,
        train_length: int,
    ) -> SectorDictionary:
        pairs, size = measured.pairs, len(measured.pairs)
        most = most_frequencies(size, stated.max_order)
        if frequencies is None:
            self.chosen.add(measured.layer)
            count = min(CHOSEN, most)
            frequencies = chosen_frequencies(kernels, pairs, frequency_grid(size), count)
        elif len(frequencies) > most:
            self.reduced.add(measured.layer)
            frequencies = chosen_frequencies(kernels, pairs, frequencies, most)
        key = (pairs.tobytes(), frequencies, stated.rho, stated.max_order)
        if key not in self._dictionaries:
            if len(self._dictionaries) > MOST_DICTIONARIES:
                self._dictionaries.clear()
            self._dictionaries[key] = SectorDictionary(
                pairs, frequencies, train_length, stated.rho, stated.max_order
            )
        return self._dictionaries[key]


MOST_DICTIONARIES = 8
"""Kept at a time; layers with the same frequencies share one."""


def curve_lags(size: int) -> list[int]:
    """Lags of the curve: 0 to 4, then two in every doubling.

    >>> curve_lags(20)
    [0, 1, 2, 3, 4, 6, 8, 12, 16]
    """
    lags = {0, 1, 2, 3}
    step = 4
    while step < size:
        lags |= {step, step * 3 // 2}
        step *= 2
    return sorted(lag for lag in lags if lag < size)


def shape_order(name: str) -> int:
    """Place of a shape in tables and files."""
    return list(Shape).index(Shape(name))


def _whole(measured: MeasuredKernel, head: int, shapes: Sequence[ShapeFit], n: int) -> Figures:
    well_known = measured.kernel[head][measured.pairs >= ENOUGH_PAIRS * measured.pairs[0]]
    (slope,) = [fit.slope[n] for fit in shapes if fit.shape == Shape.RAPIDITY]
    return {
        "range": float(np.ptp(well_known)),
        "decaying": None if np.isnan(slope) else float(slope > 0),
        "lag_share": _figure(measured.lag_share[head]),
        "sink_share": _figure(measured.sink_share[head]),
    }


def _shape(fit: ShapeFit, n: int, preferred: bool) -> Figures:
    known = not np.isnan(fit.r2[n])
    return {
        "r2": _figure(fit.r2[n]),
        "bic": _figure(fit.bic[n]),
        "preferred": float(preferred) if known else None,
        "fitted_scale": _figure(fit.fitted_scale[n]),
        "slope": _figure(fit.slope[n]),
        "amplitude": _figure(fit.amplitude[n]),
        "inv_freq": _figure(fit.inv_freq[n]),
    }


def _figure(value: Any) -> float | None:
    """None where there is no such figure."""
    return None if np.isnan(value) else float(value)
