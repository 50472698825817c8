"""The size of a rotary head's bilinear forms: the parameter side of a multiplicative mechanism.

A score is ``x' F(d) y`` for the inputs x, y of the query and key projections. Its size per channel
follows from the projections' rows alone; the forms ``E x E`` are never built. ``H`` query heads (a
key head is repeated for its group), ``C`` channels or ``B`` blocks, ``E`` input width.
"""

from __future__ import annotations

from pjdiag.position._array import Array, namespace


def pair_mass(q_pairs: Array, k_pairs: Array, scale: float) -> Array:
    """Mass of each rotary pair, ``[H, C]`` in logits per squared input norm.

    With rows q0, q1 and k0, k1 of a pair, ``q0 k0' + q1 k1'`` multiplies ``cos(w d)`` and
    ``q0 k1' - q1 k0'`` multiplies ``+-sin(w d)``; the root of the sum of their squared Frobenius
    norms is ``scale |[q0;q1]|_F |[k0;k1]|_F``, as the cross terms cancel.

    ``q_pairs``, ``k_pairs`` are ``[H, C, 2, E]``.

    >>> import numpy as np
    >>> pair_mass(np.ones((1, 1, 2, 8)), np.ones((1, 1, 2, 8)), 0.5).tolist()
    [[8.0]]
    """
    xp = namespace(q_pairs, k_pairs)
    q_square = xp.sum(q_pairs * q_pairs, axis=(-2, -1))
    k_square = xp.sum(k_pairs * k_pairs, axis=(-2, -1))
    return scale * xp.sqrt(q_square) * xp.sqrt(k_square)


def jet_forms(q_rows: Array, k_rows: Array) -> Array:
    """Frobenius norms ``|M_p|`` of the forms of every jet order, ``[H, B, m]``.

    With complex rows ``u_a = q_rows[a, 0] + i q_rows[a, 1]`` of the queries and ``v_a`` of the
    keys, the score of a Jordan block is
    ``Re q^H A(d) k = e^{-gamma d} sum_p (shear d)^p / p! x' Re(e^{i w d} M_p) y`` with
    ``M_p = sum_a conj(u_a) v_{a+p}'``, and
    ``|M_p|^2 = sum_ab conj<u_a,u_b> <v_{a+p},v_{b+p}>``, ``<x,y> = x^H y``: two m x m tables of
    inner products suffice. For m = 1 this is ``pair_mass`` at scale 1.

    ``q_rows``, ``k_rows`` are ``[H, B, m, 2, E]``.

    >>> import numpy as np
    >>> jet_forms(np.ones((1, 1, 2, 2, 8)), np.ones((1, 1, 2, 2, 8))).tolist()
    [[[32.0, 16.0]]]
    """
    xp = namespace(q_rows, k_rows)
    order = q_rows.shape[-3]
    q_re, q_im = _inner_products(q_rows)
    k_re, k_im = _inner_products(k_rows)
    norms = []
    for p in range(order):
        rest = order - p
        product = (
            q_re[..., :rest, :rest] * k_re[..., p:, p:]
            + q_im[..., :rest, :rest] * k_im[..., p:, p:]
        )
        square = xp.sum(product, axis=(-2, -1))
        # Rounding can leave a form of size zero just below it.
        norms.append(xp.sqrt(xp.clip(square, 0.0, None)))
    return xp.stack(norms, axis=-1)


def jet_mass(q_rows: Array, k_rows: Array, shear_per_length: Array, scale: float) -> Array:
    """Mass of each jet order of Jordan blocks, ``[H, B, m]``: ``m_p = scale |shear L|^p |M_p|``.

    It is the coefficient of ``(d/L)^p / p! (cos, sin)(w d)``, so like the amplitude of a
    Fourier-jet component it carries no ``1/p!``: ``(shear d)^p / p! = (shear L)^p (d/L)^p / p!``.
    The damping is an envelope and does not enter.

    ``q_rows``, ``k_rows`` are ``[H, B, m, 2, E]``; ``shear_per_length`` is shear per token, times
    the factor of the shear time, times L: ``[B]`` or ``[H, B]``. PJ-rotary couples its channels
    the other way round: pass its rows ``(z1, z0)`` and its shear as it stands, which is already
    per length.

    >>> import numpy as np
    >>> ones = np.ones((1, 1, 2, 2, 8))
    >>> jet_mass(ones, ones, np.full((1, 1), -0.5), 0.25).tolist()
    [[[8.0, 2.0]]]
    """
    xp = namespace(q_rows, k_rows, shear_per_length)
    size = xp.abs(shear_per_length)
    powers = xp.stack([size**p for p in range(q_rows.shape[-3])], axis=-1)
    return scale * powers * jet_forms(q_rows, k_rows)


def _inner_products(rows: Array) -> tuple[Array, Array]:
    """Real and imaginary part of ``<u_a, u_b>`` for all a, b: each ``[..., m, m]``."""
    xp = namespace(rows)
    re, im = rows[..., 0, :], rows[..., 1, :]
    re_t, im_t = xp.matrix_transpose(re), xp.matrix_transpose(im)
    return re @ re_t + im @ im_t, re @ im_t - im @ re_t
