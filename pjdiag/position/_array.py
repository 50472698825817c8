"""The array namespace of NumPy and torch arrays, and the few functions it lacks."""

from __future__ import annotations

from typing import Any, TypeAlias

import array_api_compat

Array: TypeAlias = Any


def namespace(*arrays: Array) -> Any:
    """The array-API namespace that all ``arrays`` belong to; TypeError if they differ."""
    return array_api_compat.array_namespace(*arrays)


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
