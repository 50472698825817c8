"""Kernels gathered while a model runs: one regression per layer, head and side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.kernel_terms import Side
from pjdiag.diagnostics.kernel_windows import valid_span
from pjdiag.errors import DataError, UsageError
from pjdiag.position.lag_regression import LagSums, lag_effect, lag_share, lag_sums, pair_counts
from pjdiag.position.sink_share import LogitRule, sink_share

if TYPE_CHECKING:
    from pjdiag.models.running import RunningAttention

Floats = NDArray[np.float64]
LEAST_TOKENS = 2
"""That a regression needs."""
Place = tuple[int, Side]
"""Layer and side."""


@dataclass(frozen=True)
class MeasuredKernel:
    """The kernels of one layer's heads to one side, over all windows."""

    layer: int
    side: Side
    kernel: Floats
    """``[H, N]``: ``K(d) - K(0)`` in logits."""
    standard_error: Floats
    """``[H, N]``: of ``K(d) - K(0)``, over windows; NaN where fewer than two reach the lag."""
    pairs: Floats
    """``[N]``: pairs of tokens at each lag."""
    lag_share: Floats
    """``[H]``: variance of K over the pairs, over that of the logits less row effects."""
    sink_share: Floats
    """``[H]``: attention on the first positions, the same for both sides."""
    residual: float
    """Of the equations, relative; the largest of the heads."""
    steps: int
    """Steps of the solver."""


@dataclass
class _Gathered:
    """Sums over windows, and what the spread between windows needs."""

    sums: LagSums
    count: Floats
    """``[N]``: windows that reach each lag."""
    mean: Floats
    """``[H, N]``."""
    spread: Floats
    """``[H, N]``: sum of squared deviations from the mean."""
    sinks: list[Floats] = field(default_factory=list)

    def add(self, sums: LagSums) -> None:
        """One more window."""
        kernel = lag_effect(sums).kernel
        size = kernel.shape[1]
        more = size - len(self.count)
        if more > 0:
            self.count = np.pad(self.count, (0, more))
            self.mean, self.spread = (
                np.pad(values, ((0, 0), (0, more))) for values in (self.mean, self.spread)
            )
        self.count[:size] += 1
        change = kernel - self.mean[:, :size]
        self.mean[:, :size] += change / self.count[:size]
        self.spread[:, :size] += change * (kernel - self.mean[:, :size])
        self.sums = self.sums + sums


class KernelSums:
    """Told of each layer's attention; keeps sums, never logits."""

    def __init__(self, skip_first: int, require_causal: Callable[[int], str]) -> None:
        """``skip_first`` positions are left out, as queries and as keys.

        ``require_causal`` says why a layer's attention must be causal, or nothing.
        """
        self._skip = skip_first
        self._require_causal = require_causal
        self._gathered: dict[Place, _Gathered] = {}
        self.softcapped: set[int] = set()
        """Layers with a soft cap on the logits."""
        self.windowed: dict[int, int] = {}
        """Sliding windows by layer."""

    def observe(self, layer: int, running: RunningAttention) -> None:
        """One layer's attention over ``[B, T]`` tokens. Raises UsageError, DataError."""
        if not running.causal and (reason := self._require_causal(layer)):
            raise UsageError(
                f"the attention of layer {layer} is not causal, and {reason}",
                "pass --no-causal to measure both sides",
            )
        if running.softcap is not None:
            self.softcapped.add(layer)
        if running.window is not None:
            self.windowed[layer] = running.window
        for number in range(running.queries.shape[0]):
            self._one(layer, running, number)

    def measured(self) -> list[MeasuredKernel]:
        """The kernels of all windows together, by layer, the past before the future."""
        return [
            _finished(layer, side, self._gathered[layer, side])
            for layer in sorted({layer for layer, _ in self._gathered})
            for side in Side
            if (layer, side) in self._gathered
        ]

    def _one(self, layer: int, running: RunningAttention, number: int) -> None:
        queries, keys = running.queries[number], running.keys[number]
        present = None if running.present is None else _numpy(running.present[number])
        span = valid_span(present, queries.shape[1], "a window")
        queries, keys = queries[:, span], keys[:, span]
        least = self._skip + LEAST_TOKENS
        if queries.shape[1] < least:
            raise DataError(
                f"the attention of layer {layer} reads {queries.shape[1]} tokens; expected at "
                f"least {least}",
                "pass longer sequences, or a smaller skip_first",
            )
        sinks = _sinks(queries, keys, running, self._skip)
        queries, keys = queries[:, self._skip :], keys[:, self._skip :]
        sides = [(Side.PAST, queries, keys, running.bias_by_lag)]
        if not running.causal:
            sides.append((Side.FUTURE, queries.flip(1), keys.flip(1), running.bias_ahead))
        for side, q, k, bias in sides:
            sums = lag_sums(q, k, running.scale, window=running.window, bias_by_lag=bias)
            gathered = self._at((layer, side), _as_numpy(sums))
            gathered.sinks.append(sinks)

    def _at(self, place: Place, sums: LagSums) -> _Gathered:
        if place not in self._gathered:
            heads = sums.excess.shape[0]
            empty = np.zeros((heads, 0))
            nothing = LagSums(empty, np.zeros(0), np.zeros(heads))
            self._gathered[place] = _Gathered(nothing, np.zeros(0), empty, empty)
        gathered = self._gathered[place]
        gathered.add(sums)
        return gathered


def _finished(layer: int, side: Side, gathered: _Gathered) -> MeasuredKernel:
    effect = lag_effect(gathered.sums)
    count = np.where(gathered.count > 1, gathered.count, np.nan)
    return MeasuredKernel(
        layer,
        side,
        effect.kernel,
        np.sqrt(gathered.spread / (count - 1) / count),
        pair_counts(gathered.sums.rows),
        lag_share(gathered.sums, effect.kernel),
        np.mean(gathered.sinks, axis=0),
        float(np.max(effect.residual)),
        effect.steps,
    )


def _sinks(queries: Any, keys: Any, running: RunningAttention, first: int) -> Floats:
    rule = LogitRule(
        running.scale,
        running.bias_by_lag,
        running.bias_ahead,
        running.causal,
        running.window,
        running.softcap,
    )
    shares: Floats = _numpy(sink_share(queries, keys, first, rule))
    return shares


def _as_numpy(sums: LagSums) -> LagSums:
    return LagSums(_numpy(sums.excess), _numpy(sums.rows), _numpy(sums.squares))


def _numpy(values: Any) -> Any:
    return np.asarray(values.detach().cpu())
