"""Position codes: the vector that a kernel gives to a lag."""

from __future__ import annotations

from pjdiag.position._array import Array, namespace
from pjdiag.position.kernel import (
    PositionKernel,
    affine,
    carrier_phase,
    envelope,
    jet_sectors,
    mass,
)
from pjdiag.terms import Sector


def kernel_codes(kernel: PositionKernel, lags: Array, *, with_affine: bool = False) -> Array:
    """Code of each lag under each head, ``[H, T, F]``.

    For each enabled jet sector and order the pair
    ``g alpha_r |zeta_r| env_r(d) (cos, sin)(w phase(d) + arg zeta_r)``, so that the cosines
    add up to the kernel; ``with_affine`` appends ``-g s rho(d)``. F = 2 (R+1) per jet sector.
    ``lags`` is ``[T]``; its dtype is the precision of the codes.
    Raises ValueError where the kernel has no component to make a code of.

    >>> import numpy as np
    >>> from pjdiag.position.parameters import effective_kernel, parameter_shapes
    >>> shapes = parameter_shapes({Sector.FJ, Sector.LC}, num_heads=4, max_order=3)
    >>> raw = {name: np.ones(shape) for name, shape in shapes.items()}
    >>> kernel_codes(effective_kernel(raw, {Sector.FJ, Sector.LC}, 128), np.arange(6.0)).shape
    (4, 6, 16)
    """
    xp = namespace(lags)
    columns = []
    for sector in jet_sectors(kernel):
        jet = kernel.jet(sector)
        if jet is None:
            continue
        masses = mass(kernel, sector)[:, :, None]
        argument = xp.atan2(jet.amplitude_im, jet.amplitude_re)[:, :, None]
        angle = carrier_phase(kernel, sector, lags)[:, None, :] + argument
        size = masses * envelope(kernel, sector, lags)
        columns += [size * xp.cos(angle), size * xp.sin(angle)]
    if with_affine and kernel.slope is not None:
        columns.append((kernel.gate(Sector.AFFINE)[:, None] * affine(kernel, lags))[:, None, :])
    if not columns:
        raise ValueError("the kernel has no jet sector to make a position code of")
    return xp.permute_dims(xp.concat(columns, axis=1), (0, 2, 1))


def spectrum_codes(inv_freq: Array, amplitude: Array, lags: Array) -> Array:
    """Mean-field code of RoPE-like heads, ``[H, T, 2 C]``: ``sqrt(m_c) (cos, sin)(w_c d)``.

    ``inv_freq`` is ``[C]`` in rad per token, ``amplitude`` m ``[H, C]`` in logits. The dot
    product of two codes is the mean-field kernel ``sum_c m_c cos(w_c (d - d'))``.

    >>> import numpy as np
    >>> spectrum_codes(np.ones(3), np.ones((2, 3)), np.arange(5.0)).shape
    (2, 5, 6)
    """
    xp = namespace(lags)
    angle = inv_freq[:, None] * lags[None, :]
    waves = xp.concat([xp.cos(angle), xp.sin(angle)], axis=0)
    size = xp.sqrt(xp.concat([amplitude, amplitude], axis=1))
    return xp.permute_dims(size[:, :, None] * waves[None, :, :], (0, 2, 1))
