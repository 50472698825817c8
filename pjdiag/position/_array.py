"""The array namespace of NumPy and torch arrays, and the few functions it lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

Array: TypeAlias = Any


def namespace(*arrays: Array) -> Any:
    """The array-API namespace that all ``arrays`` belong to; TypeError if they differ."""
    if arrays and all(type(array).__module__ == "numpy" for array in arrays):
        import numpy as np  # its own namespace; the wrapper's import would cost as much as NumPy's

        return np
    import array_api_compat

    return array_api_compat.array_namespace(*arrays)


def phase_namespace(positions: Array) -> Any:
    """The namespace of lags or positions; TypeError unless they are float32 or float64.

    bfloat16 tells only 1,153 of the positions 0..32767 apart, so a low-precision lag is refused
    and not rounded further. Integers are refused too: the caller chooses the precision.

    >>> import numpy as np
    >>> phase_namespace(np.arange(3)).__name__
    Traceback (most recent call last):
    TypeError: positions and lags have dtype int64; expected float32 or float64
    """
    xp = namespace(positions)
    if positions.dtype not in (xp.float32, xp.float64):
        raise TypeError(
            f"positions and lags have dtype {positions.dtype}; expected float32 or float64"
        )
    return xp


def as_like(values: Iterable[float], like: Array) -> Array:
    """Floats as an array of the dtype and on the device of ``like``."""
    xp = phase_namespace(like)
    return xp.asarray(list(values), dtype=like.dtype, device=like.device)


def turn(re: Array, im: Array, angles: Array) -> tuple[Array, Array]:
    """Real and imaginary part of ``e^{i angle} (re + i im)``."""
    xp = namespace(angles)
    cos, sin = xp.cos(angles), xp.sin(angles)
    return re * cos - im * sin, re * sin + im * cos


def softmax(x: Array) -> Array:
    """Softmax over the last axis.

    >>> import numpy as np
    >>> softmax(np.zeros((2, 4))).tolist()[0]
    [0.25, 0.25, 0.25, 0.25]
    """
    xp = namespace(x)
    weights = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def softplus(x: Array) -> Array:
    """``log(1 + e^x)`` without overflow.

    >>> import numpy as np
    >>> float(softplus(np.asarray(0.0)).round(6)), float(softplus(np.asarray(800.0)))
    (0.693147, 800.0)
    """
    xp = namespace(x)
    return xp.where(x > 0, x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))
