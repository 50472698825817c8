"""Rotary position transforms: RoPE with its length rules, and the sheared PJ-rotary.

``D`` channels of a head, ``T`` positions. Phases are computed in the dtype of the positions
(float32 or float64); the result has the dtype of ``x``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from pjdiag.position._array import Array, as_like, namespace, phase_namespace, turn


class RopeRule(StrEnum):
    """What happens to the frequencies beyond the training length."""

    DEFAULT = "default"
    LINEAR = "linear"
    """Position interpolation: positions shrink into the training range."""
    NTK = "ntk"
    """The base grows, so that the slowest wave is stretched and the fastest is kept."""
    YARN = "yarn"
    """Slow waves are stretched, fast ones kept, and cos and sin are scaled."""


YARN_SLOW_ROTATIONS = 1.0
YARN_FAST_ROTATIONS = 32.0


@dataclass(frozen=True)
class RotaryFrequencies:
    """Frequencies and factors that hold at one evaluation length."""

    inv_freq: Array
    """``[D/2]`` in rad per token."""
    position_scale: float
    """Factor on the positions."""
    attention_factor: float
    """Factor on cos and sin, so the logits carry its square."""

    def angles(self, positions: Array) -> Array:
        """Rotation angles in rad, ``[T, D/2]``, for ``positions`` ``[T]``."""
        phase_namespace(positions)
        return (positions * self.position_scale)[:, None] * self.inv_freq[None, :]


def inverse_frequencies(head_dim: int, base: float, like: Array) -> Array:
    """``base^{-i / (D/2)}`` in rad per token, ``[D/2]``, of the dtype and device of ``like``.

    Raises ValueError for an odd ``head_dim``, TypeError unless ``like`` is float32 or float64.

    >>> import numpy as np
    >>> inverse_frequencies(4, 100.0, np.zeros(0)).tolist()
    [1.0, 0.1]
    """
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}; rotary pairs need a positive even number")
    half = head_dim // 2
    return as_like((base ** (-i / half) for i in range(half)), like)


def frequencies(
    head_dim: int,
    base: float,
    train_length: float,
    eval_length: float,
    rule: RopeRule,
    like: Array,
) -> RotaryFrequencies:
    """Frequencies at an evaluation length T. Within the train length L every rule is the default.

    Beyond it, with ``f = T / L``: ``linear`` multiplies positions by ``(L-1)/(T-1)``; ``ntk``
    raises the base to ``base f^{D/(D-2)}``; ``yarn`` blends ``w / f`` and ``w`` with a ramp over
    the rotations ``L w / 2 pi`` from 1 to 32, and has ``attention_factor = 1 + 0.1 ln f``.

    >>> import numpy as np
    >>> stretched = frequencies(8, 1e4, 512, 2048, RopeRule.YARN, np.zeros(0))
    >>> round(stretched.attention_factor, 6), stretched.inv_freq.round(6).tolist()
    (1.138629, [1.0, 0.042295, 0.0025, 0.00025])
    """
    default = inverse_frequencies(head_dim, base, like)
    if eval_length <= train_length:
        return RotaryFrequencies(default, 1.0, 1.0)
    factor = eval_length / train_length
    match RopeRule(rule):
        case RopeRule.DEFAULT:
            return RotaryFrequencies(default, 1.0, 1.0)
        case RopeRule.LINEAR:
            return RotaryFrequencies(default, (train_length - 1) / (eval_length - 1), 1.0)
        case RopeRule.NTK:
            # One pair alone has frequency 1 at any base.
            exponent = head_dim / (head_dim - 2) if head_dim > 2 else 0.0
            return RotaryFrequencies(
                inverse_frequencies(head_dim, base * factor**exponent, like), 1.0, 1.0
            )
        case RopeRule.YARN:
            half = head_dim // 2
            blended = (
                _yarn_frequency(base ** (-i / half), train_length, factor) for i in range(half)
            )
            return RotaryFrequencies(as_like(blended, like), 1.0, 1.0 + 0.1 * math.log(factor))


def _yarn_frequency(omega: float, train_length: float, factor: float) -> float:
    rotations = train_length * omega / (2 * math.pi)
    ramp = (rotations - YARN_SLOW_ROTATIONS) / (YARN_FAST_ROTATIONS - YARN_SLOW_ROTATIONS)
    kept = min(1.0, max(0.0, ramp))
    return kept * omega + (1 - kept) * omega / factor


def rotate_interleaved(x: Array, angles: Array, attention_factor: float = 1.0) -> Array:
    """Rotate the pairs ``(2i, 2i+1)`` of ``x`` ``[..., T, D]`` by ``angles`` ``[T, D/2]``.

    With fewer angles than pairs, only the leading channels turn; the others pass unchanged.
    ``attention_factor`` multiplies cos and sin. Raises ValueError for more angles than pairs.

    >>> import numpy as np
    >>> quarter = np.full((1, 1), np.pi / 2)
    >>> rotate_interleaved(np.asarray([[1.0, 0.0, 5.0, 6.0]]), quarter).round(6).tolist()
    [[0.0, 1.0, 5.0, 6.0]]
    """
    xp = namespace(x)
    rotated, rest = _split_rotated(x, angles)
    re, im = turn(rotated[..., 0::2], rotated[..., 1::2], angles)
    pairs = xp.stack([re, im], axis=-1) * attention_factor
    return _joined(xp.reshape(pairs, rotated.shape), rest, x)


def rotate_half(x: Array, angles: Array, attention_factor: float = 1.0) -> Array:
    """Rotate the pairs ``(i, i + D/2)`` of ``x`` ``[..., T, D]`` by ``angles`` ``[T, D/2]``.

    With fewer angles than pairs, the pairing is within the leading, rotated channels.
    Otherwise as ``rotate_interleaved``.

    >>> import numpy as np
    >>> quarter = np.full((1, 2), np.pi / 2)
    >>> rotate_half(np.asarray([[1.0, 2.0, 0.0, 0.0]]), quarter).round(6).tolist()
    [[0.0, 0.0, 1.0, 2.0]]
    """
    xp = namespace(x)
    rotated, rest = _split_rotated(x, angles)
    half = angles.shape[-1]
    re, im = turn(rotated[..., :half], rotated[..., half:], angles)
    return _joined(xp.concat([re, im], axis=-1) * attention_factor, rest, x)


def half_layout_rows(num_heads: int, head_dim: int, rotary_dim: int | None = None) -> list[int]:
    """Rows of an interleaved q or k projection in the order of the half layout.

    The same list reorders biases; for k, ``num_heads`` counts the key-value heads.

    >>> half_layout_rows(1, 8)
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    order = [*range(0, rotary_dim, 2), *range(1, rotary_dim, 2), *range(rotary_dim, head_dim)]
    return [head * head_dim + row for head in range(num_heads) for row in order]


def pj_rotary_frequencies(head_dim: int, base: float, like: Array) -> Array:
    """``base^{-block / num_blocks}`` in rad per token, ``[D/4]``: one per block of 4 channels.

    Raises ValueError unless ``head_dim`` is a multiple of 4.

    >>> import numpy as np
    >>> pj_rotary_frequencies(8, 100.0, np.zeros(0)).tolist()
    [1.0, 0.1]
    """
    if head_dim < 4 or head_dim % 4:
        raise ValueError(f"head_dim is {head_dim}; PJ-rotary blocks need a multiple of 4")
    return inverse_frequencies(head_dim // 2, base, like)


def pj_rotary_query(
    x: Array, positions: Array, inv_freq: Array, shear: float, train_length: float
) -> Array:
    """PJ-rotary queries ``[..., T, D]``; blocks of 4 channels hold z0, z1 as re, im, re, im.

    ``z0 <- e^{i t w} (z0 + (t/L) shear z1)``, ``z1 <- e^{i t w} z1`` at position t.
    ``positions`` is ``[T]``, ``inv_freq`` ``[D/4]``. The dot product of query i and key j
    depends on ``i - j`` only.

    >>> import numpy as np
    >>> x = np.asarray([[0.0, 0.0, 1.0, 0.0]])
    >>> pj_rotary_query(x, np.asarray([2.0]), np.asarray([0.0]), 1.0, 4.0).tolist()
    [[0.5, 0.0, 1.0, 0.0]]
    """
    re0, im0, re1, im1 = (x[..., part::4] for part in range(4))
    reach = _shear_reach(positions, shear, train_length)
    return _pj_blocks(x, positions, inv_freq, (re0 + reach * re1, im0 + reach * im1, re1, im1))


def pj_rotary_key(
    x: Array, positions: Array, inv_freq: Array, shear: float, train_length: float
) -> Array:
    """PJ-rotary keys ``[..., T, D]``, laid out like the queries.

    ``z0 <- e^{i t w} z0``, ``z1 <- e^{i t w} (z1 - (t/L) shear z0)`` at position t.

    >>> import numpy as np
    >>> x = np.asarray([[1.0, 0.0, 0.0, 0.0]])
    >>> pj_rotary_key(x, np.asarray([2.0]), np.asarray([0.0]), 1.0, 4.0).tolist()
    [[1.0, 0.0, -0.5, 0.0]]
    """
    re0, im0, re1, im1 = (x[..., part::4] for part in range(4))
    reach = _shear_reach(positions, shear, train_length)
    return _pj_blocks(x, positions, inv_freq, (re0, im0, re1 - reach * re0, im1 - reach * im0))


def _shear_reach(positions: Array, shear: float, train_length: float) -> Array:
    phase_namespace(positions)
    return (positions * (shear / train_length))[:, None]


def _pj_blocks(
    x: Array, positions: Array, inv_freq: Array, parts: tuple[Array, Array, Array, Array]
) -> Array:
    """Turn both channels of each block and pack the blocks again."""
    xp = namespace(x)
    angles = positions[:, None] * inv_freq[None, :]
    re0, im0, re1, im1 = parts
    turned = xp.stack([*turn(re0, im0, angles), *turn(re1, im1, angles)], axis=-1)
    return xp.astype(xp.reshape(turned, x.shape), x.dtype, copy=False)


def _split_rotated(x: Array, angles: Array) -> tuple[Array, Array]:
    phase_namespace(angles)
    rotary_dim = 2 * angles.shape[-1]
    if rotary_dim > x.shape[-1]:
        raise ValueError(f"{angles.shape[-1]} angles for {x.shape[-1]} channels; expected half")
    return x[..., :rotary_dim], x[..., rotary_dim:]


def _joined(rotated: Array, rest: Array, x: Array) -> Array:
    xp = namespace(x)
    rotated = xp.astype(rotated, x.dtype, copy=False)
    return rotated if rest.shape[-1] == 0 else xp.concat([rotated, rest], axis=-1)
