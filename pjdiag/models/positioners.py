"""Transforms of queries and keys by position, one module a mechanism.

Queries and keys are ``[B, H, T, D]``, positions ``[T]`` in tokens (float32). Within a head the
score depends on the lag only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pjdiag.models.config import ModelConfig
from pjdiag.models.methods import PJ_ROTARY_SHEAR
from pjdiag.position.jordan import jordan_key, jordan_query
from pjdiag.position.polar import polar_frequencies, polar_key, polar_query
from pjdiag.position.rotary import (
    frequencies,
    inverse_frequencies,
    pj_rotary_frequencies,
    pj_rotary_key,
    pj_rotary_query,
    rotate_interleaved,
)
from pjdiag.terms import Mechanism

INIT_JORDAN_DAMPING = 0.1
INIT_JORDAN_SHEAR = 0.1


class Positioner(nn.Module):
    """A transform of queries and keys; this one is the identity."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Positioned queries and keys."""
        del positions
        return q, k


class RotaryPositioner(Positioner):
    """RoPE on interleaved pairs; its length rule looks at the actual sequence length."""

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated queries and keys."""
        config = self.config
        at_length = frequencies(
            config.head_dim,
            config.rope_base,
            config.train_length,
            positions.shape[0],
            config.position_method.rope_rule,
            positions,
        )
        angles, factor = at_length.angles(positions), at_length.attention_factor
        return rotate_interleaved(q, angles, factor), rotate_interleaved(k, angles, factor)


class PJRotaryPositioner(Positioner):
    """PJ-rotary of order 1 with shear 1 per train length."""

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Sheared and rotated queries and keys."""
        inv_freq = pj_rotary_frequencies(self.config.head_dim, self.config.rope_base, positions)
        shear, train_length = PJ_ROTARY_SHEAR, self.config.train_length
        return (
            pj_rotary_query(q, positions, inv_freq, shear, train_length),
            pj_rotary_key(k, positions, inv_freq, shear, train_length),
        )


class JordanPositioner(Positioner):
    """Jordan blocks of order R + 1 in their exact relative form, damping and shear learned.

    Per head and block: damping ``c = softplus(raw_damping)`` and shear ``raw_shear``, both per
    train length. The blocks turn at the first frequencies of RoPE's list.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.order = config.max_order + 1
        self.blocks = config.head_dim // (2 * self.order)
        shape = (config.num_heads, self.blocks)
        start = math.log(math.expm1(INIT_JORDAN_DAMPING))
        self.raw_damping = nn.Parameter(torch.full(shape, start))
        self.raw_shear = nn.Parameter(torch.full(shape, INIT_JORDAN_SHEAR))

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of the Jordan blocks."""
        omega = inverse_frequencies(self.config.head_dim, self.config.rope_base, positions)
        length = self.config.train_length
        damping, shear = softplus(self.raw_damping) / length, self.raw_shear / length
        block = (omega[: self.blocks], damping, shear, self.order)
        return jordan_query(q, positions, *block), jordan_key(k, positions, *block)


class PolarPositioner(Positioner):
    """PoPE: D frequencies of D channels, a learned phase offset, features of width 2 D."""

    inv_freqs: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        inv_freqs = polar_frequencies(config.head_dim, config.rope_base, torch.zeros(0))
        self.register_buffer("inv_freqs", inv_freqs)
        self.bias = nn.Parameter(torch.zeros(config.num_heads, config.head_dim))

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Polar features of queries and keys."""
        return (
            polar_query(q, positions, self.inv_freqs),
            polar_key(k, positions, self.inv_freqs, self.bias),
        )


_POSITIONERS: dict[Mechanism, type[Positioner]] = {
    Mechanism.ROPE: RotaryPositioner,
    Mechanism.PJ_ROTARY: PJRotaryPositioner,
    Mechanism.JORDAN: JordanPositioner,
    Mechanism.POPE: PolarPositioner,
}


def positioner_for(config: ModelConfig) -> Positioner:
    """The transform that the configuration's method asks for."""
    mechanism = config.position_method.rotary
    kind = _POSITIONERS[mechanism] if mechanism is not None else Positioner
    return kind(config)
