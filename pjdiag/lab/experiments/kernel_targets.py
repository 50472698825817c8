"""The eight kernels that the recovery experiments look for, and what each is made of.

Lags ``[T]`` in tokens (float64), training length L = 1,024, one frequency w = 2 pi 17 / L.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pjdiag.position.coordinates import phase, rapidity, velocity
from pjdiag.terms import Sector

TRAIN_LENGTH = 1024
OMEGA = 2 * math.pi * 17 / TRAIN_LENGTH
MAX_ORDER = 3
DAMPING = 0.1
"""Per training length; that of the second and the third jet, and of the fixed FJ basis."""

Kernel = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Target:
    """A teacher kernel."""

    name: str
    kernel: Kernel
    basis: str
    """The smallest of the fixed bases that holds it."""
    sector: Sector
    """The sector that carries it."""
    order: int | None
    """Its top jet order; None where only the sector is asked about."""


def _turning(lags: np.ndarray, order: int, damping: float = 0.0) -> np.ndarray:
    x = lags / TRAIN_LENGTH
    carried: np.ndarray = x**order * np.exp(-damping * x) * np.cos(OMEGA * lags)
    return carried


def _linear(lags: np.ndarray) -> np.ndarray:
    return lags / TRAIN_LENGTH


def _recency_weak_jet(lags: np.ndarray) -> np.ndarray:
    return -0.4 * _linear(lags) + 0.15 * _turning(lags, 2)


def _lc_core(lags: np.ndarray) -> np.ndarray:
    beta = velocity(lags, TRAIN_LENGTH)
    core: np.ndarray = np.cos(OMEGA * phase(lags, TRAIN_LENGTH)) * (1 + 0.4 * beta + 0.2 * beta**2)
    return core


def _lc_affine(lags: np.ndarray) -> np.ndarray:
    recency: np.ndarray = rapidity(lags, TRAIN_LENGTH)
    return _lc_core(lags) - 0.25 * recency


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("phase", lambda d: _turning(d, 0), "phase", Sector.FJ, 0),
        Target("linear", _linear, "affine", Sector.AFFINE, None),
        Target("first_jet", lambda d: _turning(d, 1), "fj", Sector.FJ, 1),
        Target("second_jet", lambda d: _turning(d, 2, DAMPING), "fj", Sector.FJ, 2),
        Target("third_jet", lambda d: _turning(d, 3, DAMPING), "fj", Sector.FJ, 3),
        Target("recency_weak_jet", _recency_weak_jet, "fj_affine", Sector.AFFINE, None),
        Target("lc_core", _lc_core, "lc", Sector.LC, None),
        Target("lc_affine", _lc_affine, "lc_affine", Sector.LC, None),
    )
}
