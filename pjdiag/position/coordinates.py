"""Coordinates of a lag ``d`` at train length ``L``: rapidity, phase, velocity, recency.

Lags are non-negative, in tokens, float32 or float64 (TypeError otherwise), of any shape.
"""

from __future__ import annotations

from pjdiag.position._array import Array, phase_namespace
from pjdiag.terms import Rho


def rapidity(lags: Array, train_length: float) -> Array:
    """``asinh(d / L)``, dimensionless, same shape as ``lags``.

    >>> import numpy as np
    >>> rapidity(np.asarray([0.0, 64.0]), 64).round(6).tolist()
    [0.0, 0.881374]
    """
    return phase_namespace(lags).asinh(lags / train_length)


def phase(lags: Array, train_length: float) -> Array:
    """Light-cone phase ``phi_L(d) = L asinh(d / L)`` in tokens, same shape as ``lags``.

    It follows ``d`` inside the training length and grows like ``log d`` beyond it.

    >>> import numpy as np
    >>> phase(np.asarray([1.0, 64.0]), 64).round(4).tolist()
    [1.0, 56.4079]
    """
    return train_length * rapidity(lags, train_length)


def velocity(lags: Array, train_length: float) -> Array:
    """``beta_L(d) = d / sqrt(d^2 + L^2)`` in [0, 1), same shape as ``lags``.

    >>> import numpy as np
    >>> velocity(np.asarray([0.0, 64.0]), 64).round(6).tolist()
    [0.0, 0.707107]
    """
    return lags / phase_namespace(lags).hypot(lags, lags * 0 + train_length)


def recency(lags: Array, train_length: float, rho: Rho) -> Array:
    """``rho(d)``: ``d / L`` (linear) or ``asinh(d / L)`` (lightcone), same shape as ``lags``.

    >>> import numpy as np
    >>> recency(np.asarray([128.0]), 64, Rho.LINEAR).tolist()
    [2.0]
    """
    phase_namespace(lags)
    return lags / train_length if rho == Rho.LINEAR else rapidity(lags, train_length)
