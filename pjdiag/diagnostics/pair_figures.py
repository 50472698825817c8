"""Which rotary channels are pure Fourier characters on data: r_c(d) by bins of lags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.kernel_fits import curve_lags
from pjdiag.diagnostics.kernel_windows import valid_span
from pjdiag.position.pair_correlation import flatness, pair_sums

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

Floats = NDArray[np.float64]
SKIP_FIRST = 4
"""Positions at the beginning that are left out, as attention sinks."""
LEAST_LAGS = 2


@dataclass(frozen=True)
class PairFigures:
    """What r_c does with the lag in each channel of a head, ``[H, C]``."""

    character: Floats
    """``scale |mean r_c|`` in logits: amplitude of the Fourier character."""
    power: Floats
    """``scale^2`` times the mean of ``|r_c|^2``."""
    line: Floats
    """Part of ``power`` that a straight line in the lag adds."""


class PairBins:
    """Sums of r_c over the pairs of every bin of lags, window after window."""

    def __init__(self) -> None:
        self._sums = np.zeros((1, 1, 0), dtype=np.complex128)
        self._pairs = np.zeros(0)
        self._lags = np.zeros(0)
        self._scale = 1.0

    def add(self, running: RunningAttention, pairs: NDArray[np.int64], inv_freq: Floats) -> None:
        """One run: ``pairs`` ``[C, 2]`` of its channels turn by ``inv_freq`` ``[C]``."""
        import torch

        self._scale = running.scale
        chosen = torch.from_numpy(pairs).to(running.queries.device)
        turned = torch.from_numpy(inv_freq).to(running.queries.device)
        for number in range(running.queries.shape[0]):
            mask = None if running.present is None else running.present[number].cpu().numpy()
            span = valid_span(mask, running.queries.shape[2], "a window")
            tokens = slice(span.start + SKIP_FIRST, span.stop)
            if tokens.stop - tokens.start < LEAST_LAGS:
                continue
            q, k = (x[number, :, tokens][..., chosen] for x in (running.queries, running.keys))
            sums = pair_sums(q, k, turned).cpu().numpy()
            counts = np.arange(sums.shape[-1], 0.0, -1.0)
            self._take(sums[..., : running.window], counts[: running.window])

    def _take(self, sums: NDArray[np.complex128], counts: Floats) -> None:
        edges = curve_lags(len(counts))
        more = max(0, len(edges) - len(self._pairs))
        self._pairs, self._lags = (np.pad(x, (0, more)) for x in (self._pairs, self._lags))
        before = np.broadcast_to(self._sums, (*sums.shape[:2], self._sums.shape[-1]))
        self._sums = np.pad(before, ((0, 0), (0, 0), (0, more)))
        here = slice(len(edges))
        self._sums[..., here] += np.add.reduceat(sums, edges, axis=-1)
        self._pairs[here] += np.add.reduceat(counts, edges)
        self._lags[here] += np.add.reduceat(counts * np.arange(len(counts)), edges)

    def figures(self) -> PairFigures | None:
        """The figures of all runs; None where no window is long enough."""
        if not len(self._pairs):
            return None
        found = flatness(self._sums / self._pairs, self._pairs, self._lags / self._pairs)
        square = self._scale**2
        return PairFigures(
            self._scale * np.abs(found.mean), square * found.power, square * found.line
        )
