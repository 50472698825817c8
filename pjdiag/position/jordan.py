"""Jordan-RoPE: rotary blocks of any order, whose scores carry jets ``d^p z^d`` of the lag.

A block of order m acts on m complex channels by ``A(d) = exp(d ((-gamma + i w) I + shear N))``
with the upper shift ``(N z)_a = z_{a+1}``, so entry ``(a, a+p)`` of ``A(d)`` is
``e^{(-gamma + i w) d} (shear d)^p / p!``. Keys are ``A(-j) k``; queries are the inverse conjugate
transpose of ``A(-i)``, that is ``A(i)^H q``. The score is ``Re q^H A(i-j) k``.

``B`` blocks, ``m`` the order (jet orders 0..m-1), ``D = 2 B m`` channels of a head laid out
``[B, m, 2]``. ``omega`` is ``[B]`` in rad per token. ``damping`` (gamma) and ``shear`` are per
token, ``[B]``, or ``[H, B]`` for ``x`` of shape ``[..., H, T, D]``.
"""

from __future__ import annotations

import math

from pjdiag.position._array import Array, namespace, phase_namespace, turn

MAX_EXPONENT = 30.0
"""Where ``gamma t`` is clamped. A damped block stops being relative at t = 30 / gamma."""


def shear_time(positions: Array, scale: float = 1.0, bound: float | None = None) -> Array:
    """The time that multiplies the shear: ``scale t``, or ``scale t / (1 + |t|/bound)``.

    A bounded time is not additive, so a score then depends on the positions and not only on
    their lag.

    >>> import numpy as np
    >>> shear_time(np.asarray([0.0, 1024.0]), bound=1024).tolist()
    [0.0, 512.0]
    """
    xp = phase_namespace(positions)
    scaled = positions * scale
    return scaled if bound is None else scaled / (1.0 + xp.abs(positions) / bound)


def jordan_key(
    x: Array,
    positions: Array,
    omega: Array,
    damping: Array,
    shear: Array,
    order: int,
    *,
    shear_scale: float = 1.0,
    shear_bound: float | None = None,
    jet_coefficients: Array | None = None,
    max_exponent: float = MAX_EXPONENT,
) -> Array:
    """Keys ``A(-j) k``, ``[..., T, D]``:
    ``k'_a = e^{(gamma - i w) t} sum_p (-shear t)^p / p! k_{a+p}``.

    ``shear_scale`` and ``shear_bound`` set the shear time. ``jet_coefficients``
    (``[m, B]`` or ``[m, H, B]``) replaces ``shear^p`` by a free coefficient of ``time^p / p!``.
    Raises ValueError where ``D`` is not ``2 B m``.

    >>> import numpy as np
    >>> x = np.asarray([[0.0, 0.0, 1.0, 0.0]])
    >>> jordan_key(x, np.asarray([2.0]), np.zeros(1), np.zeros(1), np.full(1, 0.5), 2).tolist()
    [[-1.0, 0.0, 1.0, 0.0]]
    """
    time = shear_time(positions, shear_scale, shear_bound)
    rows = _jets(-time, shear, order, jet_coefficients)
    size = _size(positions, -damping, max_exponent)
    channels = [_channel(x, index, omega, order) for index in range(order)]
    sheared = [
        _combined([(rows[p], channels[a + p]) for p in range(order - a)]) for a in range(order)
    ]
    return _turned(x, sheared, positions, omega, size)


def jordan_query(
    x: Array,
    positions: Array,
    omega: Array,
    damping: Array,
    shear: Array,
    order: int,
    *,
    shear_scale: float = 1.0,
    shear_bound: float | None = None,
    jet_coefficients: Array | None = None,
    max_exponent: float = MAX_EXPONENT,
) -> Array:
    """Queries ``A(i)^H q``, ``[..., T, D]``:
    ``q'_a = e^{(-gamma - i w) t} sum_p (shear t)^p / p! q_{a-p}``.

    Arguments as for ``jordan_key``; with ``jet_coefficients`` the jets are those of the inverse
    of the keys' matrix.

    >>> import numpy as np
    >>> x = np.asarray([[1.0, 0.0, 0.0, 0.0]])
    >>> jordan_query(x, np.asarray([2.0]), np.zeros(1), np.zeros(1), np.full(1, 0.5), 2).tolist()
    [[1.0, 0.0, 1.0, 0.0]]
    """
    time = shear_time(positions, shear_scale, shear_bound)
    if jet_coefficients is None:
        rows = _jets(time, shear, order, None)
    else:
        rows = _reciprocal(_jets(-time, shear, order, jet_coefficients))
    size = _size(positions, damping, max_exponent)
    channels = [_channel(x, index, omega, order) for index in range(order)]
    sheared = [_combined([(rows[p], channels[a - p]) for p in range(a + 1)]) for a in range(order)]
    return _turned(x, sheared, positions, omega, size)


def jordan_matrix(
    lags: Array, omega: Array, damping: Array, shear: Array, order: int, shear_scale: float = 1.0
) -> Array:
    """``A(d)`` on the real channels ``[m, 2]`` of each block, ``[..., T, B, 2m, 2m]``.

    Exponents are not clamped here: ``A(a) A(b) = A(a + b)``.

    >>> import numpy as np
    >>> jordan_matrix(np.ones(1), np.zeros(1), np.zeros(1), np.full(1, 3.0), 2)[0, 0].tolist()
    [[1.0, 0.0, 3.0, 0.0], [0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    xp = phase_namespace(lags)
    angles = lags[:, None] * omega[None, :]
    size = xp.exp(-lags[:, None] * damping[..., None, :])
    cos, sin = size * xp.cos(angles), size * xp.sin(angles)
    rows = _jets(shear_time(lags, shear_scale), shear, order, None)
    zero = xp.zeros_like(cos * rows[-1])

    def entry(a: int, column: int, wave: Array) -> Array:
        return rows[column - a] * wave + zero if column >= a else zero

    lines = []
    for a in range(order):
        lines.append([entry(a, c, wave) for c in range(order) for wave in (cos, -sin)])
        lines.append([entry(a, c, wave) for c in range(order) for wave in (sin, cos)])
    return xp.stack([xp.stack(line, axis=-1) for line in lines], axis=-2)


def _jets(time: Array, shear: Array, order: int, coefficients: Array | None) -> list[Array]:
    """Jet p of the shear at each time, ``[..., T, B]`` for p = 0..m-1."""
    column = time[:, None]
    if coefficients is None:
        reach = shear[..., None, :] * column
        return [reach**p / math.factorial(p) for p in range(order)]
    return [coefficients[p, ..., None, :] * (column**p / math.factorial(p)) for p in range(order)]


def _reciprocal(series: list[Array]) -> list[Array]:
    """Coefficients of ``1 / sum_p series_p N^p``, as far as the series goes."""
    inverse = [1.0 / series[0]]
    for p in range(1, len(series)):
        carried = _combined_scalars([(series[n], inverse[p - n]) for n in range(1, p + 1)])
        inverse.append(-carried * inverse[0])
    return inverse


def _combined_scalars(terms: list[tuple[Array, Array]]) -> Array:
    total = terms[0][0] * terms[0][1]
    for left, right in terms[1:]:
        total = total + left * right
    return total


def _size(positions: Array, damping: Array, max_exponent: float) -> Array:
    """``e^{-gamma t}`` with the exponent clamped to ``+-max_exponent``, ``[..., T, B]``."""
    xp = phase_namespace(positions)
    exponent = xp.clip(-positions[:, None] * damping[..., None, :], -max_exponent, max_exponent)
    return xp.exp(exponent)


def _channel(x: Array, index: int, omega: Array, order: int) -> tuple[Array, Array]:
    """Real and imaginary part of channel ``index`` of every block, each ``[..., T, B]``."""
    blocks = omega.shape[-1]
    if x.shape[-1] != 2 * order * blocks:
        raise ValueError(
            f"{x.shape[-1]} channels for {blocks} blocks of order {order}; "
            f"expected {2 * order * blocks}"
        )
    return x[..., 2 * index :: 2 * order], x[..., 2 * index + 1 :: 2 * order]


def _combined(terms: list[tuple[Array, tuple[Array, Array]]]) -> tuple[Array, Array]:
    """Sum of real factors times complex channels."""
    return (
        _combined_scalars([(factor, re) for factor, (re, _) in terms]),
        _combined_scalars([(factor, im) for factor, (_, im) in terms]),
    )


def _turned(
    x: Array,
    channels: list[tuple[Array, Array]],
    positions: Array,
    omega: Array,
    size: Array,
) -> Array:
    """Multiply the channels by ``size e^{-i w t}`` and lay them out ``[B, m, 2]`` again."""
    xp = namespace(x)
    angles = -positions[:, None] * omega[None, :]
    parts = [size * part for re, im in channels for part in turn(re, im, angles)]
    return xp.astype(xp.reshape(xp.stack(parts, axis=-1), x.shape), x.dtype, copy=False)
