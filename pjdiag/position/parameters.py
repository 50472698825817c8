"""Raw, trainable parameters of a PJ-bias to effective values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from pjdiag.position._array import Array, namespace, softmax, softplus
from pjdiag.position.kernel import GATE_INDEX, JetParameters, PositionKernel
from pjdiag.terms import Rho, Sector


class SlopeForm(StrEnum):
    """``softplus``: s = softplus(raw). ``signed``: s = raw, which can start at zero and move."""

    SOFTPLUS = "softplus"
    SIGNED = "signed"


SHARED_NAMES = ("omega", "gate_logits")
SECTOR_NAMES: dict[Sector, tuple[str, ...]] = {
    Sector.FJ: ("fj_alpha_logits", "fj_zeta_re", "fj_zeta_im", "raw_fj_damping"),
    Sector.AFFINE: ("raw_affine_slope",),
    Sector.LC: ("lc_alpha_logits", "lc_zeta_re", "lc_zeta_im"),
}


def parameter_shapes(
    sectors: Collection[Sector], num_heads: int, max_order: int
) -> dict[str, tuple[int, ...]]:
    """Name and shape of every raw parameter that the enabled sectors use.

    >>> parameter_shapes({Sector.AFFINE}, 4, 3)
    {'omega': (4,), 'gate_logits': (4, 3), 'raw_affine_slope': (4,)}
    """
    per_order = (num_heads, max_order + 1)
    shapes: dict[str, tuple[int, ...]] = {"omega": (num_heads,), "gate_logits": (num_heads, 3)}
    for sector in Sector:
        if sector in sectors:
            for name in SECTOR_NAMES[sector]:
                shapes[name] = (num_heads,) if name.startswith("raw_") else per_order
    return shapes


def gates_from_logits(gate_logits: Array, sectors: Collection[Sector]) -> Array:
    """Softmax over the enabled sectors, ``[H, 3]``; the gate of any other is exactly 0.

    >>> import numpy as np
    >>> gates_from_logits(np.zeros((1, 3)), {Sector.FJ, Sector.AFFINE}).tolist()
    [[0.5, 0.5, 0.0]]
    """
    xp = namespace(gate_logits)
    columns = [GATE_INDEX[sector] for sector in Sector if sector in sectors]
    enabled = softmax(xp.stack([gate_logits[:, column] for column in columns], axis=-1))
    zero = xp.zeros_like(enabled[:, 0])
    by_column = {column: enabled[:, position] for position, column in enumerate(columns)}
    return xp.stack([by_column.get(column, zero) for column in range(3)], axis=-1)


def effective_kernel(
    raw: Mapping[str, Array],
    sectors: Collection[Sector],
    train_length: float,
    rho: Rho = Rho.LINEAR,
    slope_form: SlopeForm = SlopeForm.SOFTPLUS,
) -> PositionKernel:
    """The kernel that the raw parameters stand for.

    gates = softmax over the enabled sectors, alpha = softmax over the orders,
    zeta = re + i im, c = softplus(raw_fj_damping), s = softplus(raw_affine_slope).

    ``raw`` maps the names of ``parameter_shapes`` to arrays; other names are not read.
    Raises KeyError for a missing name, ValueError where no sector is enabled.

    >>> import numpy as np
    >>> raw = {"omega": np.ones(2), "gate_logits": np.zeros((2, 3)),
    ...        "raw_affine_slope": np.zeros(2)}
    >>> effective_kernel(raw, {Sector.AFFINE}, 128).slope.round(4).tolist()
    [0.6931, 0.6931]
    """
    if not sectors:
        raise ValueError("a PJ-bias kernel needs at least one sector")

    def jet(sector: Sector) -> JetParameters | None:
        if sector not in sectors:
            return None
        alpha_logits, re, im = (raw[name] for name in SECTOR_NAMES[sector][:3])
        return JetParameters(softmax(alpha_logits), re, im)

    slope = None
    if Sector.AFFINE in sectors:
        raw_slope = raw["raw_affine_slope"]
        slope = softplus(raw_slope) if slope_form == SlopeForm.SOFTPLUS else raw_slope
    return PositionKernel(
        train_length=train_length,
        rho=rho,
        gates=gates_from_logits(raw["gate_logits"], sectors),
        omega=raw["omega"],
        fj=jet(Sector.FJ),
        lc=jet(Sector.LC),
        damping=softplus(raw["raw_fj_damping"]) if Sector.FJ in sectors else None,
        slope=slope,
    )
