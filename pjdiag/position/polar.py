"""Polar position encoding (PoPE): content sets the magnitudes, position only the angles.

``D`` channels of a head, each with its own frequency; ``T`` positions or lags.
"""

from __future__ import annotations

import math

from pjdiag.position._array import Array, as_like, namespace, phase_namespace, softplus


def polar_frequencies(head_dim: int, base: float, like: Array) -> Array:
    """``base^{-i/D}`` in rad per token, ``[D]``, of the dtype and device of ``like``.

    >>> import numpy as np
    >>> polar_frequencies(4, 1e4, np.zeros(0)).round(6).tolist()
    [1.0, 0.1, 0.01, 0.001]
    """
    return as_like((base ** (-i / head_dim) for i in range(head_dim)), like)


def clamp_offset(delta: Array) -> Array:
    """The learned phase offset as it is used: clamped to ``[-2 pi, 0]`` rad, any shape.

    >>> import numpy as np
    >>> clamp_offset(np.asarray([-7.0, -1.0, 0.5])).round(4).tolist()
    [-6.2832, -1.0, 0.0]
    """
    return namespace(delta).clip(delta, -2 * math.pi, 0.0)


def polar_query(q: Array, positions: Array, inv_freq: Array) -> Array:
    """Query features ``[..., T, 2D]``: ``softplus(q) cos(i w)``, then ``softplus(q) sin(i w)``.

    ``q`` is ``[..., T, D]``, ``positions`` ``[T]``, ``inv_freq`` ``[D]``.

    >>> import numpy as np
    >>> polar_query(np.zeros((3, 4)), np.arange(3.0), np.ones(4)).shape
    (3, 8)
    """
    phase_namespace(positions)
    return _features(q, positions[:, None] * inv_freq[None, :])


def polar_key(k: Array, positions: Array, inv_freq: Array, delta: Array) -> Array:
    """Key features ``[..., T, 2D]``, at the angles ``j w + delta``.

    ``delta`` is ``[D]``, or ``[H, D]`` for ``k`` of shape ``[..., H, T, D]``; it is clamped to
    ``[-2 pi, 0]``. The dot product with query i is
    ``sum_c softplus(q_c) softplus(k_c) cos((j - i) w_c + delta_c)``.

    >>> import numpy as np
    >>> at = np.arange(2.0), np.asarray([0.5])
    >>> q, k = polar_query(np.zeros((2, 1)), *at), polar_key(np.zeros((2, 1)), *at, np.zeros(1))
    >>> (q @ k.T).round(4).tolist()
    [[0.4805, 0.4216], [0.4216, 0.4805]]
    """
    phase_namespace(positions)
    return _features(k, positions[:, None] * inv_freq[None, :] + clamp_offset(delta)[..., None, :])


def polar_score(q: Array, k: Array, lags: Array, inv_freq: Array, delta: Array) -> Array:
    """Score of one query and one key content at each lag ``i - j``, ``[..., T]``.

    ``q``, ``k`` are ``[..., D]``, ``lags`` ``[T]``, ``delta`` ``[D]`` or ``[H, D]``. No softmax
    scale is applied.

    >>> import numpy as np
    >>> zero = np.zeros(4)
    >>> inv_freq = polar_frequencies(4, 1e4, zero)
    >>> polar_score(zero, zero, np.zeros(1), inv_freq, zero).round(5).tolist()
    [1.92181]
    """
    xp = phase_namespace(lags)
    angles = clamp_offset(delta)[..., None, :] - lags[:, None] * inv_freq[None, :]
    magnitude = (softplus(q) * softplus(k))[..., None, :]
    return xp.sum(magnitude * xp.cos(angles), axis=-1)


def _features(content: Array, angles: Array) -> Array:
    xp = namespace(content)
    magnitude = softplus(content)
    features = xp.concat([magnitude * xp.cos(angles), magnitude * xp.sin(angles)], axis=-1)
    return xp.astype(features, content.dtype, copy=False)
