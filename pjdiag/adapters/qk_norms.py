"""How queries and keys of a layer are normalised and clipped, and what follows from it."""

from __future__ import annotations

from pjdiag.adapters.architecture_map import ALWAYS, ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.layer_tensors import LayerTensors
from pjdiag.adapters.projections import APPROXIMATE, CLIPPED
from pjdiag.adapters.protocol import Sourced
from pjdiag.adapters.rope_fields import RopeFields

USUAL_EPS = 1e-6
NOT_RELATIVE = (
    "queries and keys are normalised with a gain after the rotation: their product is no "
    "function of the lag alone"
)


def normed(tensors: LayerTensors, fields: ConfigFields) -> Sourced[str | None]:
    """Which norm a layer's queries and keys go through; None where there is none."""
    mapped = tensors.map
    what = f"{mapped.qk_norm_kind} over {mapped.qk_norm_over}"
    what += " after the rotation" if mapped.qk_norm_after else ""
    bare = mapped.qk_norm_bare
    if bare == ALWAYS:
        return Sourced(what, "architecture")
    if bare and (switch := fields.flag(bare)).value:
        return Sourced(what, switch.source)
    name = _gain_name(mapped)
    return Sourced(what, f"tensor {name}") if tensors.has(name) else Sourced(None, "not used")


def not_relative(tensors: LayerTensors, norm: Sourced[str | None], rope: RopeFields | None) -> str:
    """Why the logits are no function of the lag; empty where they are."""
    mapped = tensors.map
    if rope is None or norm.value is None or not mapped.qk_norm_after:
        return ""
    gained = tensors.has(_gain_name(mapped))
    return NOT_RELATIVE if gained or rope.attention_factor.value != 1 else ""


def why_approximate(
    mapped: ArchitectureMap, fields: ConfigFields, norm: Sourced[str | None]
) -> str:
    """Why the channel masses are not exact; empty where they are."""
    clip = clip_size(mapped, fields)
    reasons = (APPROXIMATE if norm.value else "", CLIPPED.format(clip) if clip else "")
    return "; ".join(filter(None, reasons))


def norm_eps(tensors: LayerTensors, fields: ConfigFields) -> float | None:
    """What the norm adds under its root; None where there is no norm."""
    if normed(tensors, fields).value is None:
        return None
    return fields.number(tensors.map.qk_norm_eps).value or USUAL_EPS


def clip_size(mapped: ArchitectureMap, fields: ConfigFields) -> float | None:
    """The largest size that queries and keys may have; None where there is no bound."""
    return fields.number(mapped.clip).value if mapped.clip else None


def _gain_name(mapped: ArchitectureMap) -> str:
    return f"{mapped.query_norm.format(head=0)}.weight"
