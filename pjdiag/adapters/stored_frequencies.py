"""Rotary frequencies that a checkpoint stores beside those that its configuration asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.adapters.protocol import Sourced
from pjdiag.adapters.rope_fields import RopeFields
from pjdiag.checkpoint.text import shown

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint

ROUNDING = {"F64": 1e-5, "F32": 1e-5, "F16": 2e-3, "BF16": 8e-3}
"""Largest relative difference that the stored type explains."""
MOST_CHANNELS = 4096


@dataclass(frozen=True)
class StoredFrequencies:
    """``rotary_emb.inv_freq`` of a model or of its layers; old checkpoints persist it."""

    checkpoint: Checkpoint
    prefix: str
    """What stands before the layers' names."""

    def compared(self, rope: RopeFields | None, layer: str) -> RopeFields | None:
        """``rope`` with a warning where a stored list disagrees with it.

        The configuration's frequencies stay in use, as the model classes ignore the stored ones.
        The unscaled frequencies agree too: old classes stored those and scaled positions.
        """
        if rope is None or rope.inv_freq.value is None or not rope.inv_freq.value:
            return rope
        for name in (f"{layer}self_attn.rotary_emb.inv_freq", f"{self.prefix}rotary_emb.inv_freq"):
            header = self.checkpoint.headers.get(name)
            if header is None or header.dtype not in ROUNDING:
                continue
            wanted = np.asarray(rope.inv_freq.value)
            said = self._difference(name, wanted, _unscaled(rope), ROUNDING[header.dtype])
            return replace(rope, warnings=(*rope.warnings, said)) if said else rope
        return rope

    def _difference(self, name: str, wanted: Any, unscaled: Any, tolerance: float) -> str:
        shape = self.checkpoint.headers[name].shape
        used = "the configuration's are used, as its model class does"
        if shape != wanted.shape or shape[0] > MOST_CHANNELS:
            return (
                f"tensor {shown(name)} has shape {list(shape)}, and the configuration asks for "
                f"{wanted.size} frequencies: {used}"
            )
        stored = self.checkpoint.read(name).astype(np.float64)
        for frequencies in (wanted, unscaled):
            if np.allclose(stored, frequencies, rtol=tolerance, atol=0.0):
                return ""
        off = np.nonzero(~np.isclose(stored, wanted, rtol=tolerance, atol=0.0))[0]
        first = int(off[0])
        return (
            f"tensor {shown(name)} disagrees with the configuration in {off.size} of "
            f"{wanted.size} frequencies (channel {first}: {stored[first]:.6g}, configuration: "
            f"{wanted[first]:.6g}): {used}"
        )


def _unscaled(rope: RopeFields) -> Any:
    """``[rotary_dim/2]`` of the default rule at the same base."""
    theta: Sourced[float | None] = rope.theta
    count = rope.rotary_dim.value // 2
    if theta.value is None:
        return np.full(count, np.nan)
    return theta.value ** (-np.arange(count) / count)
