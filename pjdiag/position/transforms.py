"""Position transforms in effective values: what happens to a layer's queries and keys.

``H`` heads, ``T`` positions, ``D`` channels: queries and keys are ``[..., H, T, D]``, positions
``[T]``. Parameters are cast to the dtype of the positions, and everything is computed in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pjdiag.position._array import Array, phase_namespace
from pjdiag.position.jordan import MAX_EXPONENT, jordan_key, jordan_query
from pjdiag.position.polar import polar_key, polar_query
from pjdiag.position.rotary import (
    pj_rotary_key,
    pj_rotary_query,
    rotate_half,
    rotate_interleaved,
)

ROTATIONS = {"interleaved": rotate_interleaved, "half": rotate_half}
"""How the layouts pair their channels."""


@dataclass(frozen=True)
class PositionTransform:
    """A transform of queries and keys by their positions; this one is the identity."""

    head_dim: int
    """D, channels of a head before the transform."""

    @property
    def rate(self) -> float:
        """Fastest phase and damping together, in rad and nepers per token: rounding grows by it."""
        return 0.0

    @property
    def factor(self) -> float:
        """A constant that multiplies queries and keys at every position."""
        return 1.0

    @property
    def linear(self) -> bool:
        """Whether it acts on the content as a matrix; only then can it be a group action."""
        return True

    @property
    def order(self) -> int:
        """Channels that are coupled in a block: the highest jet order + 1."""
        return 1

    @property
    def num_heads(self) -> int:
        """Heads with parameters of their own; 1 where all are alike."""
        return 1

    @property
    def clamp_start(self) -> float | None:
        """Position in tokens beyond which an exponent is clamped; None where none is."""
        return None

    @property
    def shear_bound(self) -> float | None:
        """Bound on the shear time in tokens; None where the time is not bounded."""
        return None

    def query(self, x: Array, positions: Array) -> Array:
        """Queries ``x`` at ``positions``."""
        del positions
        return x

    def key(self, x: Array, positions: Array) -> Array:
        """Keys ``x`` at ``positions``."""
        del positions
        return x

    def take(self, heads: Sequence[int]) -> PositionTransform:
        """The transform of these heads alone."""
        del heads
        return self


@dataclass(frozen=True)
class RotaryTransform(PositionTransform):
    """RoPE on the leading ``2 C`` channels, under any rule for long sequences.

    >>> turn = RotaryTransform(4, np.asarray([np.pi / 2, 0.0]), "half")
    >>> turn.key(np.asarray([[1.0, 2.0, 0.0, 0.0]]), np.asarray([1.0])).round(6).tolist()
    [[0.0, 2.0, 1.0, 0.0]]
    """

    inv_freq: Array
    """``[C]`` in rad per token; a factor on the positions is part of it."""
    layout: str
    """``interleaved`` or ``half``."""
    attention_factor: float = 1.0
    """Factor on cos and sin (YaRN)."""

    @property
    def rate(self) -> float:
        """The highest frequency."""
        return _largest(self.inv_freq)

    @property
    def factor(self) -> float:
        """The factor on cos and sin."""
        return self.attention_factor

    def query(self, x: Array, positions: Array) -> Array:
        """Rotated queries."""
        angles = positions[:, None] * _like(self.inv_freq, positions)[None, :]
        return ROTATIONS[self.layout](x, angles, self.attention_factor)

    def key(self, x: Array, positions: Array) -> Array:
        """Rotated keys: the same rotation."""
        return self.query(x, positions)


@dataclass(frozen=True)
class PJRotaryTransform(PositionTransform):
    """PJ-rotary of order 1, ``pj_rotary_query`` and ``pj_rotary_key``."""

    inv_freq: Array
    """``[D/4]`` in rad per token."""
    shear: float
    """Per train length."""
    train_length: float
    """L in tokens."""

    @property
    def rate(self) -> float:
        """The highest frequency."""
        return _largest(self.inv_freq)

    @property
    def order(self) -> int:
        """Two channels a block."""
        return 2

    def query(self, x: Array, positions: Array) -> Array:
        """Sheared and rotated queries."""
        inv_freq = _like(self.inv_freq, positions)
        return pj_rotary_query(x, positions, inv_freq, self.shear, self.train_length)

    def key(self, x: Array, positions: Array) -> Array:
        """Sheared and rotated keys."""
        inv_freq = _like(self.inv_freq, positions)
        return pj_rotary_key(x, positions, inv_freq, self.shear, self.train_length)


@dataclass(frozen=True)
class JordanTransform(PositionTransform):
    """Jordan blocks, ``jordan_query`` and ``jordan_key``.

    >>> zero = np.zeros(1)
    >>> block = JordanTransform(4, zero, zero, np.full(1, 0.5), 2)
    >>> block.key(np.asarray([[0.0, 0.0, 1.0, 0.0]]), np.asarray([2.0])).tolist()
    [[-1.0, 0.0, 1.0, 0.0]]
    >>> JordanTransform(4, zero, np.full(1, 1e-3), zero, 2).clamp_start
    30000.0
    """

    omega: Array
    """``[B]`` in rad per token."""
    damping: Array
    """``[B]`` or ``[H, B]`` per token."""
    shear: Array
    """``[B]`` or ``[H, B]`` per token of shear time."""
    block_order: int
    """m."""
    shear_scale: float = 1.0
    """Factor on the positions in the shear time."""
    bound: float | None = None
    """Bound on the shear time, in tokens."""
    jet_coefficients: Array | None = None
    """``[m, B]`` or ``[m, H, B]``: coefficients of ``time^p / p!`` in place of ``shear^p``."""
    max_exponent: float = MAX_EXPONENT
    """Where ``damping t`` is clamped."""

    @property
    def rate(self) -> float:
        """The highest frequency plus the highest damping."""
        return _largest(self.omega) + _largest(self.damping)

    @property
    def order(self) -> int:
        """m."""
        return self.block_order

    @property
    def num_heads(self) -> int:
        """H where damping or shear has a head axis."""
        return max(_heads(self.damping), _heads(self.shear))

    @property
    def clamp_start(self) -> float | None:
        """``max_exponent / gamma`` of the strongest damping."""
        strongest = _largest(self.damping)
        return self.max_exponent / strongest if strongest > 0 else None

    @property
    def shear_bound(self) -> float | None:
        """The bound on the shear time."""
        return self.bound

    def query(self, x: Array, positions: Array) -> Array:
        """Queries of the blocks."""
        return jordan_query(x, positions, *self._block(positions), **self._options(positions))

    def key(self, x: Array, positions: Array) -> Array:
        """Keys of the blocks."""
        return jordan_key(x, positions, *self._block(positions), **self._options(positions))

    def take(self, heads: Sequence[int]) -> JordanTransform:
        """Parameters without a head axis are every head's."""
        jets = self.jet_coefficients
        if jets is not None and jets.ndim == 3:
            jets = jets[:, list(heads)]
        damping, shear = _rows(self.damping, heads), _rows(self.shear, heads)
        return replace(self, damping=damping, shear=shear, jet_coefficients=jets)

    def _block(self, positions: Array) -> tuple[Array, Array, Array, int]:
        omega, damping, shear = (
            _like(values, positions) for values in (self.omega, self.damping, self.shear)
        )
        return omega, damping, shear, self.block_order

    def _options(self, positions: Array) -> dict[str, Any]:
        jets = self.jet_coefficients
        return {
            "shear_scale": self.shear_scale,
            "shear_bound": self.bound,
            "jet_coefficients": None if jets is None else _like(jets, positions),
            "max_exponent": self.max_exponent,
        }


@dataclass(frozen=True)
class PolarTransform(PositionTransform):
    """PoPE: features of width ``2 D``; the softplus of the content makes it no matrix."""

    inv_freq: Array
    """``[D]`` in rad per token."""
    delta: Array
    """Phase offset in rad, ``[D]`` or ``[H, D]``, before it is clamped to ``[-2 pi, 0]``."""

    @property
    def rate(self) -> float:
        """The highest frequency."""
        return _largest(self.inv_freq)

    @property
    def num_heads(self) -> int:
        """H where the offset has a head axis."""
        return _heads(self.delta)

    @property
    def linear(self) -> bool:
        """False."""
        return False

    def query(self, x: Array, positions: Array) -> Array:
        """Polar features of the queries."""
        return polar_query(x, positions, _like(self.inv_freq, positions))

    def key(self, x: Array, positions: Array) -> Array:
        """Polar features of the keys."""
        inv_freq, delta = _like(self.inv_freq, positions), _like(self.delta, positions)
        return polar_key(x, positions, inv_freq, delta)

    def take(self, heads: Sequence[int]) -> PolarTransform:
        """An offset without a head axis is every head's."""
        return replace(self, delta=_rows(self.delta, heads))


def _like(values: Array, positions: Array) -> Array:
    xp = phase_namespace(positions)
    return xp.asarray(values, dtype=positions.dtype, device=positions.device)


def _largest(values: Array) -> float:
    return float(np.max(np.abs(np.asarray(values)))) if math.prod(values.shape) else 0.0


def _heads(values: Array) -> int:
    return int(values.shape[0]) if values.ndim == 2 else 1


def _rows(values: Array, heads: Sequence[int]) -> Array:
    return values[list(heads)] if values.ndim == 2 else values
