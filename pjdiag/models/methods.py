"""The position methods of the small causal language model, in one table."""

from __future__ import annotations

from dataclasses import dataclass

from pjdiag.position.rotary import RopeRule
from pjdiag.terms import Mechanism, Sector

PJ_ROTARY_SHEAR = 1.0
"""Shear of PJ-rotary per train length; the research code fixes it."""


@dataclass(frozen=True)
class Method:
    """How a model knows about position: what is added to its logits, what turns its queries."""

    name: str
    sectors: frozenset[Sector]
    """Sectors of the PJ-bias; empty where there is no bias."""
    rotary: Mechanism | None
    """Transform of queries and keys: rope, pj_rotary, jordan, pope, or None."""
    rope_rule: RopeRule = RopeRule.DEFAULT
    """What happens to RoPE beyond the train length."""

    @property
    def layout(self) -> str | None:
        """Which channels form a pair: ``interleaved`` for RoPE, otherwise None."""
        return "interleaved" if self.rotary == Mechanism.ROPE else None


_NO_BIAS: frozenset[Sector] = frozenset()
_AFFINE = frozenset({Sector.AFFINE})
_ROPE = Mechanism.ROPE

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("none", _NO_BIAS, None),
        Method("rope", _NO_BIAS, _ROPE),
        Method("rope_pi", _NO_BIAS, _ROPE, RopeRule.LINEAR),
        Method("rope_ntk", _NO_BIAS, _ROPE, RopeRule.NTK),
        Method("rope_yarn", _NO_BIAS, _ROPE, RopeRule.YARN),
        Method("pj_rotary", _NO_BIAS, Mechanism.PJ_ROTARY),
        Method("grape_m_rope", _NO_BIAS, _ROPE),
        Method("affine", _AFFINE, None),
        Method("rope_affine", _AFFINE, _ROPE),
        Method("rope_ntk_affine", _AFFINE, _ROPE, RopeRule.NTK),
        Method("rope_yarn_affine", _AFFINE, _ROPE, RopeRule.YARN),
        Method("grape_a_alibi", _AFFINE, None),
        Method("grape_ma_rope_alibi", _AFFINE, _ROPE),
        Method("fj_affine", frozenset({Sector.FJ, Sector.AFFINE}), None),
        Method("fj_lc", frozenset({Sector.FJ, Sector.LC}), None),
        Method("lc_affine", frozenset({Sector.LC, Sector.AFFINE}), None),
        Method("full", frozenset(Sector), None),
        Method("jordan", _NO_BIAS, Mechanism.JORDAN),
        Method("pope", _NO_BIAS, Mechanism.POPE),
    )
}
