"""The PJ-bias kernel in effective values, from its raw tensors in a checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import numpy as np

from pjdiag.adapters import AdditiveKernel, Loaded, Sourced
from pjdiag.checkpoint import Checkpoint
from pjdiag.position.kernel import GATE_INDEX
from pjdiag.position.parameters import SlopeForm, effective_kernel, parameter_shapes
from pjdiag.terms import Mechanism, Rho, Sector
from pjdiag_plugins.checked import check_shapes, not_finite


@dataclass(frozen=True)
class RawBias:
    """Where the raw parameters of one layer's PJ-bias stand, and what they mean."""

    prefix: str
    """Of the tensors' names, such as ``blocks.0.attn.pj_bias``."""
    sectors: Collection[Sector]
    num_heads: int
    max_order: int
    train_length: int
    """L of the kernel, in tokens."""
    rho: Rho
    slope_form: SlopeForm

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor name -> shape."""
        shapes = parameter_shapes(self.sectors, self.num_heads, self.max_order)
        return {f"{self.prefix}.{name}": shape for name, shape in shapes.items()}


def bias_part(checkpoint: Checkpoint, raw: RawBias) -> AdditiveKernel:
    """The bias as a part of its layer; values are read when asked for.

    Raises CheckpointError for a tensor that is missing or of another shape.
    """
    check_shapes(checkpoint, raw.shapes)
    jets = set(raw.sectors) - {Sector.AFFINE}
    return AdditiveKernel(
        mechanism=Mechanism.PJ_BIAS,
        sectors=tuple(sector for sector in Sector if sector in raw.sectors),
        max_order=raw.max_order if jets else 0,
        read=partial(_read, checkpoint, raw),
        slopes=Sourced(None, "learned"),
    )


def _read(checkpoint: Checkpoint, raw: RawBias) -> Loaded:
    values = {name: checkpoint.read(name).astype(np.float64) for name in raw.shapes}
    bad = []
    for name, array in values.items():
        used = array
        if name.endswith(".gate_logits"):
            used = array[:, sorted(GATE_INDEX[sector] for sector in raw.sectors)]
        bad += not_finite(name, used.reshape(raw.num_heads, -1))
    with np.errstate(invalid="ignore", over="ignore"):
        kernel = effective_kernel(
            {name.removeprefix(f"{raw.prefix}."): array for name, array in values.items()},
            raw.sectors,
            raw.train_length,
            raw.rho,
            raw.slope_form,
        )
    return Loaded(kernel, tuple(bad))
