"""ALiBi: a bias ``-m (i - j)`` with a fixed slope m per head.

Slopes are in logits per token. ``+m j`` and ``-m (i - j)`` differ by a constant in each row, which
a causal softmax ignores, so a bias is always read after centring its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pjdiag.position._array import Array, namespace, phase_namespace
from pjdiag.position.kernel import PositionKernel
from pjdiag.terms import Rho


class SlopeFamily(StrEnum):
    """How a list of slopes was made."""

    STANDARD = "standard"
    """The original rule, with its interleaving where the head count is no power of two."""
    NAIVE = "naive"
    """``2^{-8(i+1)/n}`` at any head count."""
    REVERSED = "reversed"
    """Standard or naive with the wrong sign: far keys are favoured."""
    UNKNOWN = "unknown"


def slopes(num_heads: int, bias_max: float = 8.0) -> tuple[float, ...]:
    """The standard slopes of ``num_heads`` heads; ``bias_max`` is 8 but in MPT's configs.

    For a power of two ``2^{-bias_max (i+1) / n}``. Otherwise those of the next lower power of two,
    then every second one of the next higher. Raises ValueError for less than one head.

    >>> slopes(6)
    (0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125)
    """
    if num_heads < 1:
        raise ValueError(f"num_heads is {num_heads}; expected at least 1")
    lower = 1 << (num_heads.bit_length() - 1)
    between = naive_slopes(2 * lower, bias_max)[::2]
    return naive_slopes(lower, bias_max) + between[: num_heads - lower]


def naive_slopes(num_heads: int, bias_max: float = 8.0) -> tuple[float, ...]:
    """``2^{-bias_max (i+1) / n}`` for every head: right for a power of two only.

    >>> round(naive_slopes(12)[0], 5)
    0.62996
    """
    return tuple(2.0 ** (-bias_max * (i + 1) / num_heads) for i in range(num_heads))


def classify_slopes(
    values: Sequence[float], bias_max: float = 8.0, tolerance: float = 2.0**-7
) -> SlopeFamily:
    """The family that ``values`` belong to, head by head within a relative ``tolerance``.

    The default admits slopes that were rounded to bfloat16. Where both families agree the answer
    is ``standard``.

    >>> classify_slopes(slopes(12)).value, classify_slopes(naive_slopes(12)).value
    ('standard', 'naive')
    """
    if not values:
        return SlopeFamily.UNKNOWN
    families = {
        SlopeFamily.STANDARD: slopes(len(values), bias_max),
        SlopeFamily.NAIVE: naive_slopes(len(values), bias_max),
    }
    for family, expected in families.items():
        if _agree(values, expected, tolerance):
            return family
    reversed_values = [-value for value in values]
    if any(_agree(reversed_values, expected, tolerance) for expected in families.values()):
        return SlopeFamily.REVERSED
    return SlopeFamily.UNKNOWN


def slope_of_bias(bias: Array) -> Array:
    """The slope m of a causal bias table ``[..., T, T]``, by least squares: ``[...]``.

    Fits ``-m (i - j)`` plus a free constant in each row, over the keys j <= i; entries above the
    diagonal are not read. Positive where near keys are favoured, whichever way it was written.
    Raises ValueError for fewer than two positions.

    >>> import numpy as np
    >>> j = np.arange(5.0)
    >>> float(slope_of_bias(0.25 * j[None, :] + 0 * j[:, None]).round(6))
    0.25
    """
    xp = phase_namespace(bias)
    length = bias.shape[-1]
    if length < 2:
        raise ValueError(f"bias covers {length} position; expected at least 2")
    # Row i has the keys 0..i, with mean i/2; centring the keys removes the row's constant.
    keys = xp.cumulative_sum(xp.ones_like(bias[..., :1, :]), axis=-1) - 1
    rows = xp.matrix_transpose(keys)
    centred = xp.where(keys <= rows, keys - rows / 2, xp.zeros_like(keys - rows))
    kept = xp.where(keys <= rows, bias, xp.zeros_like(bias))
    return xp.sum(kept * centred, axis=(-2, -1)) / xp.sum(centred * centred, axis=(-2, -1))


def padded_bias(slope: Array, mask: Array) -> Array:
    """ALiBi written as ``+m p`` of the key's position p under padding, ``[H, T]``.

    ``p = (cumsum(mask) - 1) mask``: padding neither counts nor is biased. ``slope`` is ``[H]``,
    ``mask`` ``[T]`` holds 1 for a token and 0 for padding.

    >>> import numpy as np
    >>> padded_bias(np.asarray([0.25]), np.asarray([0, 0, 1, 1, 1])).tolist()
    [[0.0, 0.0, 0.0, 0.25, 0.5]]
    """
    xp = namespace(slope, mask)
    present = xp.astype(mask, slope.dtype)
    position = xp.clip(xp.cumulative_sum(present, axis=-1) - 1, 0, None) * present
    return slope[:, None] * position[None, :]


def alibi_kernel(slope: Array, train_length: float) -> PositionKernel:
    """ALiBi as a kernel: affine sector alone, gate 1, slope ``m L`` per train length.

    ``slope`` is m ``[H]`` in logits per token.

    >>> import numpy as np
    >>> alibi_kernel(np.asarray([0.25]), 64).slope.tolist()
    [16.0]
    """
    xp = phase_namespace(slope)
    zero = xp.zeros_like(slope)
    return PositionKernel(
        train_length=train_length,
        rho=Rho.LINEAR,
        gates=xp.stack([zero, zero + 1, zero], axis=-1),
        omega=zero,
        fj=None,
        lc=None,
        damping=None,
        slope=slope * train_length,
    )


def _agree(values: Sequence[float], expected: Sequence[float], tolerance: float) -> bool:
    pairs = zip(values, expected, strict=True)
    return all(abs(value - wanted) <= tolerance * wanted for value, wanted in pairs)
