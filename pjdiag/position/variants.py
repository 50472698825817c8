"""Eight ways to measure a lag, from raw to compactified, for the scale-resolution trade-off.

A variant has a phase coordinate (what the carrier turns with), an amplitude coordinate (what
the jet orders are powers of), a factorial or not, and a damping envelope or not.
``[T]`` lags in tokens, train length L, jet orders r = 0..R.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pjdiag.position import coordinates
from pjdiag.position._array import Array, phase_namespace

TRAIN_LENGTH = 1024
MAX_ORDER = 3
DAMPING = 0.1
"""The parameters at which the variants are compared; L in tokens, damping per L."""

Coordinate = Callable[[Array, float], Array]


@dataclass(frozen=True)
class Variant:
    """One coordinate system."""

    name: str
    phase: Coordinate
    """Phase coordinate in tokens, of lags and L."""
    amplitude: Coordinate
    """Amplitude coordinate, of lags and L."""
    factorial: bool
    """Whether order r is divided by r!."""
    damped: bool = False
    """Whether the envelope ``e^{-c d/L}`` applies."""


def _lag(lags: Array, train_length: float) -> Array:
    del train_length
    return lags * 1.0


def _scaled(lags: Array, train_length: float) -> Array:
    return lags / train_length


def _clipped(lags: Array, train_length: float) -> Array:
    return phase_namespace(lags).clip(lags / train_length, None, 1.0)


def _logarithm(lags: Array, train_length: float) -> Array:
    return phase_namespace(lags).log1p(lags / train_length)


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("raw", _lag, _lag, factorial=True),
        Variant("scaled", _lag, _scaled, factorial=True, damped=True),
        Variant("clipped", _lag, _clipped, factorial=True),
        Variant("log", _lag, _logarithm, factorial=True),
        Variant("lc_amp_only", _lag, coordinates.velocity, factorial=False),
        Variant("lc_phase_only", coordinates.phase, _scaled, factorial=True),
        Variant("lc", coordinates.phase, coordinates.velocity, factorial=False),
        Variant("lc_wrong_scale", coordinates.rapidity, coordinates.velocity, factorial=False),
    )
}


def order_amplitudes(
    variant: Variant, lags: Array, train_length: float, max_order: int, damping: float
) -> Array:
    """``A[d, r] = amp(d)^r (/ r!) env(d)``, ``[T, R+1]``.

    >>> import numpy as np
    >>> order_amplitudes(VARIANTS["log"], np.arange(5.0), 1024, 3, 0.1).shape
    (5, 4)
    """
    xp = phase_namespace(lags)
    coordinate = variant.amplitude(lags, train_length)
    size = xp.exp(-damping * lags / train_length) if variant.damped else coordinate * 0 + 1
    columns = []
    for order in range(max_order + 1):
        columns.append(size / math.factorial(order) if variant.factorial else size)
        size = size * coordinate
    return xp.stack(columns, axis=1)


def variant_codes(
    variant: Variant,
    lags: Array,
    train_length: float,
    max_order: int,
    omegas: Sequence[float],
    damping: float,
) -> Array:
    """Position code of each lag: ``A[d, r] (cos, sin)(w phase(d))``, ``[T, 2 (R+1) W]``.

    W frequencies ``omegas`` in rad per token.

    >>> import numpy as np
    >>> variant_codes(VARIANTS["lc"], np.arange(5.0), 1024, 3, [0.1, 0.2, 0.3], 0.1).shape
    (5, 24)
    """
    xp = phase_namespace(lags)
    amplitudes = order_amplitudes(variant, lags, train_length, max_order, damping)
    turn = variant.phase(lags, train_length)
    columns = []
    for omega in omegas:
        angle = (omega * turn)[:, None]
        columns += [amplitudes * xp.cos(angle), amplitudes * xp.sin(angle)]
    return xp.concat(columns, axis=1)
