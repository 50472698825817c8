"""What a kernel does with position, in shapes of one to four parameters, whatever makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.character_search import Carrier, fit_character
from pjdiag.diagnostics.kernel_terms import Shape
from pjdiag.position.coordinates import phase, rapidity

Floats = NDArray[np.float64]

RAPIDITY_SCALES = tuple(2.0**n for n in range(-1, 11))
"""l in tokens tried first; the best is refined between its neighbours, and never leaves them."""
LONGEST_DECAY = 4
"""Decay lengths go up to so many windows; beyond that a decay is a straight line."""
SHORTEST_DECAY = 0.5
GOLDEN_STEPS = 28
SMALLEST = 1e-300
EXACT = 1e-12
"""Part of the variance below which a fit counts as exact: BIC must not rank rounding."""
FLAT = 1e-9
"""A kernel that varies by less of its size does not vary."""
LEAST_LAGS = 16
"""Lags that a kernel must have for its shapes to be told apart."""

PARAMETERS = {
    Shape.NONE: 0,
    Shape.LINEAR: 1,
    Shape.RAPIDITY: 2,
    Shape.DAMPED: 2,
    Shape.STEP: 2,
    Shape.CHARACTER: 3,
    Shape.LIGHT_CONE: 3,
    Shape.JET_1: 4,
    Shape.JET_2: 4,
}
"""Fitted parameters beside the constant that every shape has."""


@dataclass(frozen=True)
class ShapeFit:
    """One shape fitted to the kernels of H heads. NaN where a shape has no such parameter."""

    shape: Shape
    r2: Floats
    """``[H]``: part of the weighted variance that the shape explains."""
    bic: Floats
    """``[H]``: n ln(residual variance / variance) + (parameters + 1) ln n, n lags."""
    slope: Floats
    """``[H]``: fall in logits per token (linear), or per unit of ``asinh(d/l)`` (rapidity)."""
    amplitude: Floats
    """``[H]`` in logits: a of a decay, |a| of an oscillation, height of a step."""
    fitted_scale: Floats
    """``[H]`` in tokens: l, decay length 1/c, wavelength (characters), or where the step is. NaN
    where a jet decays over more than four windows."""
    inv_freq: Floats
    """``[H]`` in rad per token of phase."""


def compact_shapes(kernels: Floats, weights: Floats, train_length: float | None) -> list[ShapeFit]:
    """Every shape fitted to ``kernels [H, N]`` by least squares with ``weights [N]``.

    Each has a free constant: nothing; ``-s d``; ``-s asinh(d/l)``; ``a e^{-c d}``; a step;
    ``Re a e^{i w d}``; ``(d/L)^r e^{-c d/L} Re a e^{i w d}``, r = 1, 2; ``Re a e^{i w phi_L(d)}``.
    Wavelengths are at most four windows. A kernel that does not vary has NaN. Where L is not
    known there is no light-cone character, and a jet's L is N.

    Raises ValueError below 16 lags.

    >>> lags = np.arange(1024.0)
    >>> fits = compact_shapes(-2 * np.arcsinh(lags / 11)[None], 1024 - lags, 1024)
    >>> best = min(fits, key=lambda fit: fit.bic[0])
    >>> best.shape.value, float(best.fitted_scale[0].round(4)), float(best.slope[0].round(6))
    ('rapidity_recency', 11.0, 2.0)
    """
    size = kernels.shape[1]
    if size < LEAST_LAGS:
        raise ValueError(f"the kernels have {size} lags; expected at least {LEAST_LAGS}")
    share = weights / weights.sum()
    centred = kernels - kernels @ share[:, None]
    rounding = FLAT * np.abs(kernels).max(axis=1, keepdims=True)
    centred = np.where(np.abs(centred).max(axis=1, keepdims=True) > rounding, centred, 0.0)
    fitting = _Fitting(centred, share, np.arange(size, dtype=np.float64), train_length or size)
    characters = [Shape.CHARACTER, Shape.LIGHT_CONE, Shape.JET_1, Shape.JET_2]
    if train_length is None:
        characters.remove(Shape.LIGHT_CONE)
    return [
        fitting.nothing(),
        fitting.linear(),
        fitting.rapidity(),
        fitting.damped(),
        fitting.step(),
        *(fitting.character(shape) for shape in characters),
    ]


class _Fitting:
    """The shapes of one set of kernels, centred."""

    def __init__(self, centred: Floats, share: Floats, lags: Floats, train_length: float) -> None:
        self._centred, self._share, self._lags = centred, share, lags
        self._train_length = train_length
        self._variance: Floats = (centred**2) @ share

    def nothing(self) -> ShapeFit:
        return self._made(Shape.NONE, self._variance)

    def linear(self) -> ShapeFit:
        gain, factor = self._column(self._lags[None])
        return self._made(Shape.LINEAR, self._variance - gain, slope=-factor)

    def rapidity(self) -> ShapeFit:
        def column(scale: Floats) -> Floats:
            values: Floats = rapidity(self._lags / scale[:, None], 1.0)
            return values

        scale, gain, factor = self._scaled(column, np.asarray(RAPIDITY_SCALES))
        left = self._variance - gain
        return self._made(Shape.RAPIDITY, left, slope=-factor, fitted_scale=scale)

    def damped(self) -> ShapeFit:
        scale, gain, factor = self._scaled(
            lambda scale: np.exp(-self._lags / scale[:, None]), self._decays()
        )
        left = self._variance - gain
        return self._made(Shape.DAMPED, left, amplitude=factor, fitted_scale=scale)

    def step(self) -> ShapeFit:
        """The first lag after the step is the scale: so many tokens lie before it."""
        before = np.cumsum(self._share)[:-1]
        sums = np.cumsum(self._centred * self._share, axis=1)[:, :-1]
        gains = sums**2 / (before * (1 - before))
        edge = np.argmax(gains, axis=1)
        each = np.arange(len(edge))
        height = -sums[each, edge] / (before * (1 - before))[edge]
        left = self._variance - gains[each, edge]
        return self._made(Shape.STEP, left, amplitude=height, fitted_scale=edge + 1.0)

    def character(self, shape: Shape) -> ShapeFit:
        order = {Shape.JET_1: 1, Shape.JET_2: 2}.get(shape, 0)
        turning = self._lags
        if shape == Shape.LIGHT_CONE:
            turning = phase(self._lags, self._train_length)
        envelope = (self._lags / self._train_length) ** order
        fit = fit_character(self._centred, self._share, Carrier(turning, envelope, order > 0))
        left, amplitude, inv_freq = fit.residual, fit.amplitude, fit.inv_freq
        rate = fit.damping if order else inv_freq / (2 * np.pi)
        longest = LONGEST_DECAY * len(self._lags)
        scale = np.where(rate * longest >= 1 - 1e-9, 1 / np.maximum(rate, SMALLEST), np.nan)
        if order:  # an oscillation without turns is a decay with one column
            lone_scale, gain, factor = self._scaled(
                lambda scale: envelope * np.exp(-self._lags / scale[:, None]), self._decays()
            )
            still = self._variance - gain <= left
            left = np.where(still, self._variance - gain, left)
            amplitude = np.where(still, np.abs(factor), amplitude)
            scale, inv_freq = np.where(still, lone_scale, scale), np.where(still, 0.0, inv_freq)
        return self._made(shape, left, amplitude=amplitude, fitted_scale=scale, inv_freq=inv_freq)

    def _decays(self) -> Floats:
        """Decay lengths from half a token to four windows, in octaves."""
        longest = LONGEST_DECAY * len(self._lags)
        octaves = np.arange(int(np.ceil(np.log2(longest / SHORTEST_DECAY))), -1, -1)
        lengths: Floats = longest / 2.0**octaves
        return lengths

    def _scaled(
        self, column: Callable[[Floats], Floats], grid: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """The best scale of each head, what it explains and its factor.

        ``column`` makes ``[H or G, N]`` from scales; the best of ``grid`` is refined by golden
        sections between its neighbours.
        """
        gains = np.stack([self._column(column(np.asarray([scale])))[0] for scale in grid])
        best = np.argmax(gains, axis=0)
        logs = np.log(grid)
        low, high = logs[np.maximum(best - 1, 0)], logs[np.minimum(best + 1, len(grid) - 1)]
        golden = (np.sqrt(5) - 1) / 2
        for _ in range(GOLDEN_STEPS):
            left, right = high - golden * (high - low), low + golden * (high - low)
            rising = self._column(column(np.exp(right)))[0] > self._column(column(np.exp(left)))[0]
            low, high = np.where(rising, left, low), np.where(rising, high, right)
        refined = np.exp((low + high) / 2)
        gain, factor = self._column(column(refined))
        coarse, coarse_factor = self._column(column(grid[best]))
        better = gain >= coarse
        return (
            np.where(better, refined, grid[best]),
            np.where(better, gain, coarse),
            np.where(better, factor, coarse_factor),
        )

    def _column(self, column: Floats) -> tuple[Floats, Floats]:
        """What one column ``[H or 1, N]`` explains of each head, and its factor."""
        column = column - column @ self._share[:, None]
        norm = column**2 @ self._share
        inner = (self._centred * column) @ self._share
        factor = inner / np.where(norm > 0, norm, np.inf)
        return factor * inner, factor

    def _made(
        self,
        shape: Shape,
        left: Floats,
        slope: Floats | None = None,
        amplitude: Floats | None = None,
        fitted_scale: Floats | None = None,
        inv_freq: Floats | None = None,
    ) -> ShapeFit:
        unknown = np.full(len(left), np.nan)
        varies = self._variance > 0
        part = np.maximum(left, 0) / np.where(varies, self._variance, np.nan)
        count = len(self._lags)
        bic = count * np.log(np.maximum(part, EXACT)) + (PARAMETERS[shape] + 1) * np.log(count)
        return ShapeFit(
            shape,
            1 - part,
            bic,
            *(
                unknown if values is None else np.where(varies, values, np.nan)
                for values in (slope, amplitude, fitted_scale, inv_freq)
            ),
        )
