"""The transforms that ``verify`` measures beside a checkpoint's own, with stated parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.position.polar import polar_frequencies
from pjdiag.position.rotary import (
    RopeRule,
    frequencies,
    inverse_frequencies,
    pj_rotary_frequencies,
)
from pjdiag.position.transforms import (
    JordanTransform,
    PJRotaryTransform,
    PolarTransform,
    PositionTransform,
    RotaryTransform,
)
from pjdiag.terms import Mechanism

HEAD_DIM = 24
"""Divides into pairs, PJ-rotary blocks and Jordan blocks of orders 2, 3 and 4."""
BASE = 1e4
TRAIN_LENGTH = 1024
PJ_ROTARY_SHEAR = 1.0
JORDAN_ORDERS = (2, 3, 4)
JORDAN_SHEAR = 0.05
JORDAN_DAMPING = 1e-4
CLAMPED_DAMPING = 1e-3
"""Its exponent reaches the clamp at position 30,000."""

PARAMETERS: dict[str, Any] = {
    "head_dim": HEAD_DIM,
    "base": BASE,
    "train_length": TRAIN_LENGTH,
    "pj_rotary_shear": PJ_ROTARY_SHEAR,
    "jordan_shear": JORDAN_SHEAR,
    "jordan_damping": JORDAN_DAMPING,
    "jordan_damping_clamped": CLAMPED_DAMPING,
    "jordan_shear_bound": TRAIN_LENGTH,
    "pope_offset": "-2 pi to 0, evenly over the channels",
}

_FLOAT64 = np.zeros(0)


@dataclass(frozen=True)
class NamedTransform:
    """A transform and how its rows call it."""

    name: str
    mechanism: Mechanism
    transform: PositionTransform


def standard_transforms(eval_length: int) -> tuple[NamedTransform, ...]:
    """RoPE in both layouts and under each length rule, PJ-rotary, Jordan blocks, PoPE.

    >>> len(standard_transforms(2048))
    17
    """
    rope = {
        "rope_interleaved": _rope(RopeRule.DEFAULT, eval_length, "interleaved"),
        "rope_half": _rope(RopeRule.DEFAULT, eval_length, "half"),
        "rope_pi": _rope(RopeRule.LINEAR, eval_length),
        "rope_ntk": _rope(RopeRule.NTK, eval_length),
        "rope_yarn": _rope(RopeRule.YARN, eval_length),
    }
    sheared = PJRotaryTransform(
        HEAD_DIM, pj_rotary_frequencies(HEAD_DIM, BASE, _FLOAT64), PJ_ROTARY_SHEAR, TRAIN_LENGTH
    )
    jordan = {}
    for order in JORDAN_ORDERS:
        jordan[f"jordan_m{order}_raw"] = _jordan(order)
        jordan[f"jordan_m{order}_scaled"] = _jordan(order, shear_scale=1 / TRAIN_LENGTH)
        jordan[f"jordan_m{order}_bounded"] = _jordan(order, bound=float(TRAIN_LENGTH))
    jordan["jordan_m2_clamped"] = _jordan(2, CLAMPED_DAMPING, shear_scale=1 / TRAIN_LENGTH)
    polar = PolarTransform(
        HEAD_DIM,
        polar_frequencies(HEAD_DIM, BASE, _FLOAT64),
        np.linspace(-2 * np.pi, 0, HEAD_DIM),
    )
    return (
        *(NamedTransform(name, Mechanism.ROPE, made) for name, made in rope.items()),
        NamedTransform("pj_rotary", Mechanism.PJ_ROTARY, sheared),
        *(NamedTransform(name, Mechanism.JORDAN, made) for name, made in jordan.items()),
        NamedTransform("pope", Mechanism.POPE, polar),
    )


def _rope(rule: RopeRule, eval_length: int, layout: str = "interleaved") -> RotaryTransform:
    at = frequencies(HEAD_DIM, BASE, TRAIN_LENGTH, eval_length, rule, _FLOAT64)
    return RotaryTransform(HEAD_DIM, at.inv_freq * at.position_scale, layout, at.attention_factor)


def _jordan(
    order: int,
    damping: float = JORDAN_DAMPING,
    *,
    shear_scale: float = 1.0,
    bound: float | None = None,
) -> JordanTransform:
    blocks = HEAD_DIM // (2 * order)
    return JordanTransform(
        HEAD_DIM,
        inverse_frequencies(HEAD_DIM, BASE, _FLOAT64)[:blocks],
        np.full(blocks, damping),
        np.full(blocks, JORDAN_SHEAR),
        order,
        shear_scale,
        bound,
    )
