"""The PJ-bias kernel: a sum of Fourier-jet, affine and light-cone components over the lag.

``H`` heads, ``R`` the highest jet order, ``T`` lags. Lags form a one-dimensional grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pjdiag.position._array import Array, namespace, phase_namespace
from pjdiag.position.coordinates import phase, recency, velocity
from pjdiag.terms import JET_SECTORS, Rho, Sector

GATE_INDEX = {Sector.FJ: 0, Sector.AFFINE: 1, Sector.LC: 2}


@dataclass(frozen=True)
class JetParameters:
    """Order spectrum and amplitude of one jet sector."""

    order_spectrum: Array
    """alpha, ``[H, R+1]``, sums to 1 over the orders."""
    amplitude_re: Array
    """Real part of zeta, ``[H, R+1]``, in logits."""
    amplitude_im: Array
    """Imaginary part of zeta, ``[H, R+1]``, in logits."""


@dataclass(frozen=True)
class PositionKernel:
    """A PJ-bias kernel in effective values. A sector that is ``None`` is absent.

    ``b(d) = g_FJ sum_r C^FJ_r(d) + g_aff A(d) + g_LC sum_r C^LC_r(d)``
    """

    train_length: float
    """L in tokens."""
    rho: Rho
    """Coordinate of the affine sector."""
    gates: Array
    """``[H, 3]`` in the order FJ, affine, LC; exactly 0 where a sector is absent."""
    omega: Array
    """``[H]``, rad per token."""
    fj: JetParameters | None
    lc: JetParameters | None
    damping: Array | None
    """c, ``[H]``, per train length; belongs to the Fourier-jet sector."""
    slope: Array | None
    """s, ``[H]``, logits per train length when rho is linear; belongs to the affine sector."""

    @property
    def sectors(self) -> tuple[Sector, ...]:
        """The sectors that are present, in the order FJ, affine, LC."""
        present = {Sector.FJ: self.fj, Sector.AFFINE: self.slope, Sector.LC: self.lc}
        return tuple(sector for sector, part in present.items() if part is not None)

    @property
    def num_heads(self) -> int:
        """H."""
        return int(self.gates.shape[0])

    @property
    def max_order(self) -> int:
        """R, the highest jet order; 0 where no jet sector is present."""
        jet = self.fj or self.lc
        return int(jet.order_spectrum.shape[1]) - 1 if jet is not None else 0

    def jet(self, sector: Sector) -> JetParameters | None:
        """The parameters of a jet sector, or None where it is absent."""
        return {Sector.FJ: self.fj, Sector.LC: self.lc}.get(sector)

    def gate(self, sector: Sector) -> Array:
        """Gate of ``sector`` for each head, ``[H]``."""
        return self.gates[:, GATE_INDEX[sector]]

    def head(self, index: int) -> PositionKernel:
        """The kernel of one head, H = 1."""
        return self.map(lambda array: array[index : index + 1])

    def map(self, change: Callable[[Array], Array]) -> PositionKernel:
        """The kernel with ``change`` applied to each array: a cast, or a choice of heads."""

        def jet(parameters: JetParameters | None) -> JetParameters | None:
            if parameters is None:
                return None
            return JetParameters(
                change(parameters.order_spectrum),
                change(parameters.amplitude_re),
                change(parameters.amplitude_im),
            )

        return replace(
            self,
            gates=change(self.gates),
            omega=change(self.omega),
            fj=jet(self.fj),
            lc=jet(self.lc),
            damping=None if self.damping is None else change(self.damping),
            slope=None if self.slope is None else change(self.slope),
        )


def envelope(kernel: PositionKernel, sector: Sector, lags: Array) -> Array:
    """Size of each order's component before amplitude and gate, ``[H, R+1, T]``.

    FJ: ``(d/L)^r / r! exp(-c d/L)``; LC: ``beta_L(d)^r``.
    """
    xp = phase_namespace(lags)
    if sector == Sector.FJ:
        if kernel.damping is None:
            raise ValueError("sector fj is absent from this kernel")
        powers = xp.stack(
            [
                power / math.factorial(order)
                for order, power in enumerate(_powers(lags / kernel.train_length, kernel.max_order))
            ]
        )
        decay = xp.exp(-kernel.damping[:, None] * (lags / kernel.train_length)[None, :])
        return powers[None, :, :] * decay[:, None, :]
    powers = xp.stack(_powers(velocity(lags, kernel.train_length), kernel.max_order))
    return xp.broadcast_to(powers[None, :, :], (kernel.num_heads, *powers.shape))


def carrier_phase(kernel: PositionKernel, sector: Sector, lags: Array) -> Array:
    """Angle of the carrier in rad, ``[H, T]``: ``w d`` for FJ, ``w phi_L(d)`` for LC."""
    phase_namespace(lags)
    lag_phase = lags if sector == Sector.FJ else phase(lags, kernel.train_length)
    return kernel.omega[:, None] * lag_phase[None, :]


def components(kernel: PositionKernel, sector: Sector, lags: Array) -> Array:
    """Ungated components of a jet sector, per order, in logits: ``[H, R+1, T]``.

    FJ: ``alpha_r (d/L)^r / r! exp(-c d/L) [Re zeta_r cos(w d) - Im zeta_r sin(w d)]``.
    LC: ``alpha_r beta_L(d)^r [Re zeta_r cos(w phi_L(d)) - Im zeta_r sin(w phi_L(d))]``.

    ``lags`` is ``[T]``, floating point, in tokens. Raises ValueError for a sector that is absent.

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> kernel = PositionKernel(8.0, Rho.LINEAR, np.asarray([[1.0, 0.0, 0.0]]), np.asarray([np.pi]),
    ...     fj=JetParameters(one, one, 0 * one), lc=None, damping=np.zeros(1), slope=None)
    >>> components(kernel, Sector.FJ, np.arange(3.0)).round(6).tolist()
    [[[1.0, -1.0, 1.0]]]
    """
    jet = kernel.jet(sector)
    if jet is None:
        raise ValueError(f"sector {sector.value} is absent from this kernel")
    xp = namespace(lags)
    angle = carrier_phase(kernel, sector, lags)[:, None, :]
    wave = jet.amplitude_re[:, :, None] * xp.cos(angle) - jet.amplitude_im[:, :, None] * xp.sin(
        angle
    )
    return jet.order_spectrum[:, :, None] * envelope(kernel, sector, lags) * wave


def affine(kernel: PositionKernel, lags: Array) -> Array:
    """Ungated affine component ``A(d) = -s rho(d)`` in logits, ``[H, T]``.

    Raises ValueError where the affine sector is absent.
    """
    if kernel.slope is None:
        raise ValueError("sector affine is absent from this kernel")
    return -kernel.slope[:, None] * recency(lags, kernel.train_length, kernel.rho)[None, :]


def gated_components(kernel: PositionKernel, sector: Sector, lags: Array) -> Array:
    """``g C_r(d)`` of a jet sector, ``[H, R+1, T]``; for affine ``g A(d)`` as ``[H, 1, T]``."""
    if sector == Sector.AFFINE:
        return (kernel.gate(sector)[:, None] * affine(kernel, lags))[:, None, :]
    return kernel.gate(sector)[:, None, None] * components(kernel, sector, lags)


def bias(kernel: PositionKernel, lags: Array) -> Array:
    """The full kernel ``b(d)``, what is added to the attention logits: ``[H, T]``.

    >>> import numpy as np
    >>> kernel = PositionKernel(4.0, Rho.LINEAR, np.asarray([[0.0, 1.0, 0.0]]), np.zeros(1),
    ...     fj=None, lc=None, damping=None, slope=np.asarray([2.0]))
    >>> bias(kernel, np.arange(3.0)).tolist()
    [[0.0, -0.5, -1.0]]
    """
    xp = namespace(lags)
    parts = [xp.sum(gated_components(kernel, sector, lags), axis=1) for sector in kernel.sectors]
    if not parts:
        return xp.zeros((kernel.num_heads, lags.shape[0]), dtype=lags.dtype)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def mass(kernel: PositionKernel, sector: Sector) -> Array:
    """Effective mass per head and order: ``m_r = g alpha_r |zeta_r|``, ``[H, R+1]`` in logits.

    For the affine sector ``m = g |s|``, ``[H, 1]``. Raises ValueError for an absent sector.
    """
    if sector not in kernel.sectors:
        raise ValueError(f"sector {sector.value} is absent from this kernel")
    gate = kernel.gate(sector)[:, None]
    xp = namespace(gate)
    jet = kernel.jet(sector)
    if jet is None:
        return gate * xp.abs(kernel.slope)[:, None]
    return gate * jet.order_spectrum * xp.hypot(jet.amplitude_re, jet.amplitude_im)


def _powers(x: Array, max_order: int) -> list[Array]:
    """``x^0 .. x^R``, each of the shape of ``x``."""
    rows = [x * 0 + 1]
    for _ in range(max_order):
        rows.append(rows[-1] * x)
    return rows


def jet_sectors(kernel: PositionKernel) -> tuple[Sector, ...]:
    """The jet sectors that are present."""
    return tuple(sector for sector in kernel.sectors if sector in JET_SECTORS)
