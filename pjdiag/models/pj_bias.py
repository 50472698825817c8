"""The trainable PJ-bias: raw parameters whose kernel of the lag is added to attention logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pjdiag.position.kernel import PositionKernel, bias
from pjdiag.position.parameters import SlopeForm, effective_kernel, parameter_shapes
from pjdiag.terms import Rho, Sector

SHORTEST_WAVELENGTH = 8.0


@dataclass(frozen=True)
class PJBiasInit:
    """Where a PJ-bias starts. Gates and order spectra start uniform.

    Frequencies are log-spaced over the heads, from one wave per train length to one per 8 tokens.
    """

    affine_slope: float = 2.0
    """s, in logits per train length (linear rho)."""
    damping: float = 0.1
    """c, per train length."""
    constant_amplitude: float = 0.2
    """Re zeta of order 0, in logits: the plain character leads."""
    amplitude_spread: float = 0.1
    """Standard deviation of every other part of zeta, in logits."""


class PJBias(nn.Module):
    """A PJ-bias kernel in raw parameters, which are registered for the enabled sectors only.

    ``H`` heads, ``R`` the highest jet order. ``omega[H]``, ``gate_logits[H, 3]``; per jet sector
    ``*_alpha_logits``, ``*_zeta_re``, ``*_zeta_im`` ``[H, R+1]``; ``raw_fj_damping[H]``;
    ``raw_affine_slope[H]``. Positions need float32, so a cast of the model to a narrower type
    leaves these parameters alone. Raises ValueError without a sector.

    >>> module = PJBias({Sector.FJ, Sector.AFFINE}, num_heads=4, max_order=3, train_length=128)
    >>> module(torch.arange(10.0)).shape, len(list(module.parameters()))
    (torch.Size([4, 10]), 7)
    """

    def __init__(
        self,
        sectors: Collection[Sector],
        num_heads: int,
        max_order: int,
        train_length: float,
        *,
        rho: Rho = Rho.LINEAR,
        slope_form: SlopeForm = SlopeForm.SOFTPLUS,
        init: PJBiasInit | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not sectors:
            raise ValueError("a PJ-bias needs at least one sector")
        self.sectors = tuple(sector for sector in Sector if sector in sectors)
        self.train_length = train_length
        self.rho = rho
        self.slope_form = slope_form
        self.init = init or PJBiasInit()
        for name, shape in parameter_shapes(sectors, num_heads, max_order).items():
            value = self._start(name, shape, generator)
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, lags: Tensor) -> Tensor:
        """The bias at ``lags`` ``[T]`` (floating point, in tokens): ``[H, T]`` in logits."""
        total: Tensor = bias(self.kernel(), lags)
        return total

    def kernel(self) -> PositionKernel:
        """The kernel in effective values; gradients lead back to the raw parameters."""
        raw = dict(self.named_parameters(recurse=False))
        return effective_kernel(raw, self.sectors, self.train_length, self.rho, self.slope_form)

    def _start(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator | None
    ) -> Tensor:
        if name == "omega":
            return _log_spaced_frequencies(shape[0], self.train_length)
        if name == "raw_fj_damping":
            return torch.full(shape, _inverse_softplus(self.init.damping))
        if name == "raw_affine_slope":
            slope = self.init.affine_slope
            raw = slope if self.slope_form == SlopeForm.SIGNED else _inverse_softplus(slope)
            return torch.full(shape, raw)
        if not name.endswith(("_re", "_im")):
            return torch.zeros(shape)
        amplitude = self.init.amplitude_spread * torch.randn(shape, generator=generator)
        if name.endswith("_re"):
            amplitude[:, 0] = self.init.constant_amplitude
        return amplitude

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PJBias:
        def keep_wide(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return tensor.to(moved.device) if moved.dtype.itemsize < 4 else moved

        applied: PJBias = super()._apply(keep_wide, recurse)  # type: ignore[no-untyped-call]
        return applied

    def extra_repr(self) -> str:
        """Shown by ``print(model)``."""
        sectors = ", ".join(sector.value for sector in self.sectors)
        return f"{sectors}; L={self.train_length:g}, rho={self.rho.value}"


def _log_spaced_frequencies(num_heads: int, train_length: float) -> Tensor:
    longest = math.log(max(train_length, SHORTEST_WAVELENGTH))
    wavelengths = torch.linspace(longest, math.log(SHORTEST_WAVELENGTH), num_heads).exp()
    return 2 * math.pi / wavelengths


def _inverse_softplus(value: float) -> float:
    """The x with ``log(1 + e^x) = value``, for ``value > 0``."""
    return value + math.log(-math.expm1(-value))
