"""Fields of a config that state a rotation, and that the model's class does not read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pjdiag.adapters.rope_config import CONTAINERS, FULL_ATTENTION, RopeDefaults, container
from pjdiag.arguments import is_number
from pjdiag.checkpoint.text import shown

THETAS = (
    "rope_theta",
    "rotary_emb_base",
    "rope_local_base_freq",
    "local_rope_theta",
    "global_rope_theta",
)
SHARES = ("partial_rotary_factor", "rotary_pct", "rope_pct")
COUNT = "rotary_dim"


def unread_fields(
    config: Mapping[str, Any],
    head_dim: int,
    defaults: RopeDefaults,
    theta: float | None,
    rotary_dim: int,
    layer_type: str | None = None,
) -> list[str]:
    """A warning for each stated base or share that the class leaves aside, unless it says the same.

    ``theta`` and ``rotary_dim`` (channels) are those in use.

    >>> llama = RopeDefaults(reader="either", class_name="llama", partial_fields=())
    >>> unread_fields({"rotary_pct": 0.25}, 64, llama, 1e4, 64)
    ['config: rotary_pct is 0.25; llama does not read it: 64 channels rotate']
    """
    name = defaults.class_name
    base = "an unknown base" if theta is None else f"the base {theta:g}"
    said = [
        f"config: {field} is {shown(config[field])[1:-1]}; {name} does not read it{where}: {base} "
        "is used"
        for field, where in _unread_thetas(defaults, layer_type or FULL_ATTENTION)
        if _differs(config.get(field), theta)
    ]
    shares = [rotary_dim / size for size in (head_dim, defaults.share_of or head_dim)]
    said += [
        f"{place} is {shown(value)[1:-1]}; {name} does not read it: {rotary_dim} channels rotate"
        for place, value in _shares(config, defaults)
        if all(_differs(value, share) for share in shares)
    ]
    count = config.get(COUNT)
    if COUNT not in defaults.rotary_dim_fields and _differs(count, rotary_dim):
        said.append(
            f"config: {COUNT} is {shown(count)[1:-1]}; {name} does not read it: "
            f"{rotary_dim} channels rotate"
        )
    return said


def _unread_thetas(defaults: RopeDefaults, layer_type: str) -> Iterator[tuple[str, str]]:
    """Fields outside the settings that the class does not read, and in which layers."""
    by_type = defaults.theta_fields_by_layer_type
    read = by_type.values() if by_type is not None else defaults.theta_fields
    for field in THETAS:
        if defaults.reader == "parameters" or field not in read:
            yield field, ""
        elif by_type is not None and layer_type not in by_type:
            yield field, f" in layers of type {layer_type}"


def _shares(config: Mapping[str, Any], defaults: RopeDefaults) -> Iterator[tuple[str, Any]]:
    """Stated shares that are not read, and where they stand."""
    outside = defaults.partial_fields if defaults.reader == "either" else ()
    for field in SHARES:
        if field not in outside and config.get(field) is not None:
            yield f"config: {field}", config[field]
    if defaults.partial_fields:
        return
    for name in CONTAINERS:
        value = container(config, name).get(SHARES[0])
        if value is not None:
            yield f"config: {name}.{SHARES[0]}", value


def _differs(stated: Any, used: float | None) -> bool:
    if stated is None:
        return False
    if not is_number(stated) or used is None:
        return True
    return not math.isclose(stated, used, rel_tol=1e-9)
