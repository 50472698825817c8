"""The one oscillation that fits kernels best: a grid by FFT, then a local search.

``y(d) = const + g(d) e^{-c d} Re a e^{i w p(d)}``, weighted least squares. Kernels of several
heads are fitted at once, each with its own a, w and c.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PHASE_STEPS = 8
"""A phase that is no whole number of tokens is put on a grid this fine, for the first look."""
OVERSAMPLING = 4
"""The grid of frequencies is this much finer than what the lags tell apart."""
DECAY_OCTAVES = 8
"""Decay lengths tried first: 4 N, 2 N .. and none."""
MOST_LAGS = 2**16
"""Lags of all heads that are looked at together; memory is some 2 kB for each."""
STEPS = 25
SETTLED = 1e-10
"""A step that gains less of the variance is the last."""
MOST_CAUTION = 1e3
"""Damping of the steps at which a head that finds no better point stays where it is."""
SMALL = 1e-12


@dataclass(frozen=True)
class Carrier:
    """What oscillates: ``g(d) e^{-c d}`` times a character of the phase ``p(d)``."""

    phase: Floats
    """p, ``[N]`` in tokens, rising from 0, at most one token per lag."""
    envelope: Floats
    """g, ``[N]``."""
    damped: bool = False
    """Whether c is fitted; else it is 0."""


@dataclass(frozen=True)
class CharacterFit:
    """One fit per head."""

    residual: Floats
    """``[H]``: weighted sum of squares that is left."""
    amplitude: Floats
    """``[H]``: |a|."""
    inv_freq: Floats
    """w, ``[H]`` in rad per token of phase."""
    damping: Floats
    """c, ``[H]`` per token."""


def fit_character(kernels: Floats, weights: Floats, carrier: Carrier) -> CharacterFit:
    """The best character for each of ``kernels [H, N]``; ``weights [N]`` sum to 1.

    Frequencies go from a quarter turn over the whole phase to pi per token. Damping goes from 0
    up, starting from decay lengths of 4 N, 2 N, N ..

    >>> lags = np.arange(300.0)
    >>> carrier = Carrier(lags, np.ones(300))
    >>> fit = fit_character(2 * np.cos(0.3 * lags + 1)[None], np.full(300, 1 / 300), carrier)
    >>> float(fit.inv_freq[0].round(9)), float(fit.amplitude[0].round(9))
    (0.3, 2.0)
    """
    centred = kernels - kernels @ weights[:, None]
    step = max(1, MOST_LAGS // kernels.shape[1])
    parts = [
        _fit_some(centred[first : first + step], weights, carrier)
        for first in range(0, len(centred), step)
    ]
    return CharacterFit(
        *(
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(CharacterFit)
        )
    )


def _fit_some(centred: Floats, weights: Floats, carrier: Carrier) -> CharacterFit:
    lowest = np.pi / 2 / carrier.phase[-1]
    frequency, damping = _first_look(centred, weights, carrier, lowest)
    return _Search(centred, weights, carrier, lowest).run(frequency, damping)


def _first_look(
    centred: Floats, weights: Floats, carrier: Carrier, lowest: float
) -> tuple[Floats, Floats]:
    """The best frequency and damping ``[H]`` of a grid."""
    size = centred.shape[1]
    lags = np.arange(size)
    whole = bool(np.all(carrier.phase == lags))
    steps = 1 if whole else PHASE_STEPS
    places = lags if whole else np.rint(carrier.phase * steps).astype(np.int64)
    length = 1 << int(np.ceil(np.log2(OVERSAMPLING * (places[-1] + 1))))
    turn = np.arange(length // (2 * steps) + 1)  # frequencies 0 .. pi per token of phase
    frequencies = 2 * np.pi * turn * steps / length
    allowed = frequencies >= lowest * (1 - 1e-9)
    dampings = [0.0]
    if carrier.damped:
        dampings += [2.0**n / (4 * size) for n in range(DECAY_OCTAVES)]

    def transform(values: Floats) -> NDArray[np.complex128]:
        """``sum_d values(d) e^{i w p(d)}`` at every multiple of the grid, up to twice pi."""
        line = np.zeros((*values.shape[:-1], length))
        for row, value in zip(line.reshape(-1, length), values.reshape(-1, size), strict=True):
            row[:] = np.bincount(places, value, minlength=length)
        half = np.conj(np.fft.rfft(line, axis=-1))
        return np.concatenate([half, np.conj(half[..., -2:0:-1])], axis=-1)

    best = np.full(len(centred), -1.0)
    found = np.zeros((2, len(centred)))
    for damping in dampings:
        shape = carrier.envelope * np.exp(-damping * lags)
        shape = shape / np.abs(shape).max()
        inner = transform(weights * shape * centred)[:, turn]
        mean = transform((weights * shape)[None])[0, turn]
        square = transform((weights * shape**2)[None])[0]
        doubled = square[(2 * turn) % length]
        gains = _gains(inner, mean, square[0].real, doubled)
        gains[:, ~allowed] = -1.0
        top = np.argmax(gains, axis=1)
        value = gains[np.arange(len(top)), top]
        better = value > best
        best = np.where(better, value, best)
        found = np.where(better, [frequencies[top], np.full(len(top), damping)], found)
    return found[0], found[1]


def _gains(
    inner: NDArray[np.complex128],
    mean: NDArray[np.complex128],
    square: float,
    doubled: NDArray[np.complex128],
) -> Floats:
    """Explained sums of squares ``[H, F]`` of cos and sin together, both centred."""
    cc = (square + doubled.real) / 2 - mean.real**2
    ss = (square - doubled.real) / 2 - mean.imag**2
    cs = doubled.imag / 2 - mean.real * mean.imag
    determinant = cc * ss - cs**2
    sound = determinant > SMALL * (cc + ss) ** 2
    both = (inner.real**2 * ss - 2 * inner.real * inner.imag * cs + inner.imag**2 * cc) / np.where(
        sound, determinant, np.inf
    )
    one = inner.real**2 / np.where(cc > SMALL * square, cc, np.inf)
    gains: Floats = np.where(sound, both, one)
    return gains


class _Search:
    """Damped Gauss-Newton steps in (w, c); a and the constant are solved for at each point."""

    def __init__(self, centred: Floats, weights: Floats, carrier: Carrier, lowest: float) -> None:
        self._root = np.sqrt(weights)
        self._target = centred * self._root
        self._whole = (self._target**2).sum(axis=1)
        self._carrier = carrier
        self._lowest = lowest
        self._lags = np.arange(centred.shape[1], dtype=np.float64)

    def run(self, frequency: Floats, damping: Floats) -> CharacterFit:
        """From the grid's best point of each head to a minimum."""
        point = np.stack([frequency, damping], axis=1)
        heads = np.arange(len(point))
        here = self._at(point, heads)
        found = [here.residual.copy(), _sizes(here), point.copy()]
        caution = np.full(len(point), 1e-3)
        for _ in range(STEPS):
            trial = self._inside(point + self._step(here, caution))
            there = self._at(trial, heads)
            better = there.residual < here.residual
            gain = np.where(better, here.residual - there.residual, 0.0)
            point = np.where(better[:, None], trial, point)
            here = here.where(better, there)
            caution = np.where(better, caution / 10, caution * 10)
            for values, new in zip(found, (here.residual, _sizes(here), point), strict=True):
                values[heads] = new
            settled = np.where(better, gain <= SETTLED * self._whole[heads], caution > MOST_CAUTION)
            if settled.all():
                break
            here, point = here.only(~settled), point[~settled]
            caution, heads = caution[~settled], heads[~settled]
        residual, amplitude, last = found
        return CharacterFit(residual, amplitude, last[:, 0], last[:, 1])

    def _inside(self, point: Floats) -> Floats:
        frequency = np.clip(point[:, 0], self._lowest, np.pi)
        return np.stack([frequency, np.maximum(point[:, 1], 0.0)], axis=1)

    def _at(self, point: Floats, heads: NDArray[np.intp]) -> _Point:
        target = self._target[heads]
        shape = self._carrier.envelope * np.exp(-point[:, 1:] * self._lags)
        size = np.abs(shape).max(axis=1, keepdims=True)
        shape = shape / size * self._root
        angles = point[:, :1] * self._carrier.phase
        cos, sin = shape * np.cos(angles), shape * np.sin(angles)
        columns = np.stack([np.broadcast_to(self._root, cos.shape), cos, sin], axis=1)
        solution = _solved(columns, target)
        left = target - (solution[:, None] @ columns)[:, 0]
        turned = solution[:, 2:] * cos - solution[:, 1:2] * sin
        slopes = [self._carrier.phase * turned]
        if self._carrier.damped:
            wave = solution[:, 1:2] * cos + solution[:, 2:] * sin
            slopes.append(-self._lags * wave)
        nonlinear = np.stack(slopes, axis=1)  # [H, 1 or 2, N]
        nonlinear = nonlinear - _solved(columns, nonlinear) @ columns
        return _Point((left**2).sum(axis=1), solution, size[:, 0], left, nonlinear)

    def _step(self, here: _Point, caution: Floats) -> Floats:
        square = here.slopes @ here.slopes.mT
        right = (here.slopes @ here.left[..., None])[..., 0]
        diagonal = np.diagonal(square, axis1=1, axis2=2)
        free = diagonal > 0
        scale = np.where(free, diagonal, 1.0) ** -0.5
        square = square * scale[:, :, None] * scale[:, None, :]
        count = square.shape[1]
        square = square + (caution[:, None] + ~free)[:, :, None] * np.eye(count)
        step = scale * np.linalg.solve(square, (right * scale)[..., None])[..., 0]
        return np.concatenate([step, np.zeros((len(step), 2 - count))], axis=1)


@dataclass(frozen=True)
class _Point:
    """Each head at its own (w, c)."""

    residual: Floats
    solution: Floats
    """``[H, 3]``: constant, cos, sin of the envelope scaled to 1."""
    size: Floats
    """``[H]``: largest value of the envelope."""
    left: Floats
    """``[H, N]``: what is not fitted, times the roots of the weights."""
    slopes: Floats
    """``[H, 1 or 2, N]``: how the fit moves with w and c, less what the linear part absorbs."""

    def where(self, chosen: NDArray[np.bool_], other: _Point) -> _Point:
        """The heads of ``other`` where ``chosen``."""

        def pick(ours: Floats, theirs: Floats) -> Floats:
            flags = chosen.reshape(-1, *[1] * (ours.ndim - 1))
            return np.where(flags, theirs, ours)

        return _Point(
            *(pick(ours, theirs) for ours, theirs in zip(*map(_parts, (self, other)), strict=True))
        )

    def only(self, heads: NDArray[np.bool_]) -> _Point:
        """The chosen heads alone."""
        return _Point(*(values[heads] for values in _parts(self)))


def _parts(point: _Point) -> list[Floats]:
    return [getattr(point, field.name) for field in fields(point)]


def _sizes(point: _Point) -> Floats:
    """|a| of each head."""
    sizes: Floats = np.hypot(point.solution[:, 1], point.solution[:, 2]) / point.size
    return sizes


def _solved(columns: Floats, targets: Floats) -> Floats:
    """Least squares of ``targets [H, N]`` or ``[H, M, N]`` on ``columns [H, K, N]``."""
    single = targets.ndim == 2
    right = targets[:, None] if single else targets
    size = np.sqrt((columns**2).sum(axis=-1))
    size = np.where(size > 0, size, 1.0)
    gram = columns @ columns.mT / size[:, :, None] / size[:, None, :]
    inner = columns @ right.mT / size[:, :, None]
    found = np.linalg.pinv(gram, rcond=SMALL, hermitian=True) @ inner / size[:, :, None]
    return found[..., 0] if single else found.mT
