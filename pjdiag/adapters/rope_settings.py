"""The rope settings that hold for one kind of layer, whichever way a config spells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pjdiag.adapters.protocol import Sourced
from pjdiag.adapters.rope_config import (
    CONTAINERS,
    FULL_ATTENTION,
    RopeDefaults,
    container,
    is_entry,
    keyed_by_layer_type,
)
from pjdiag.checkpoint.text import listed

NOT_STATED: Sourced[Any] = Sourced(None, "not stated")


@dataclass(frozen=True)
class RopeSettings:
    """The rope settings of one layer type."""

    places: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Settings and where they stand; a field is read from the first place that has it."""
    keyed: bool = False
    """Whether they are keyed by layer type."""
    unrotated: str = ""
    """Why layers of this type do not rotate; empty where they do."""
    missing: str = ""
    """Why the settings of this layer type are not known; empty where they are."""
    note: str = ""
    """Why there are none; empty where there are, or where the config has none at all."""
    warnings: tuple[str, ...] = ()

    def get(self, *names: str) -> Sourced[Any]:
        """The first of these fields that is there, and its place; None where none is.

        >>> settings = RopeSettings((("config: rope_scaling", {"type": "su"}),))
        >>> settings.get("rope_type", "type").source
        'config: rope_scaling.type'
        """
        for place, settings in self.places:
            for name in names:
                if settings.get(name) is not None:
                    return Sourced(settings[name], f"{place}.{name}")
        return NOT_STATED

    @property
    def where(self) -> str:
        """Where the settings stand, in words."""
        return " and ".join(place for place, _ in self.places)


def rope_settings(
    config: Mapping[str, Any], layer_type: str | None, defaults: RopeDefaults
) -> RopeSettings:
    """Read the settings of one layer type; without one, those that all layers share.

    >>> config = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}
    >>> rope_settings(config, "full_attention", RopeDefaults()).get("rope_theta").value
    1000000.0
    """
    if defaults.reader:
        return class_settings(config, layer_type, defaults)
    found = {name: container(config, name) for name in CONTAINERS}
    stated = {f"config: {name}": settings for name, settings in found.items() if settings}
    if not stated and defaults.parameters:
        stated = {f"{defaults.source}: rope_parameters": defaults.parameters}
    parts = [_part(*item, layer_type, config, defaults) for item in stated.items()]
    warnings = [warning for part in parts for warning in part.warnings]
    if len(parts) == len(CONTAINERS) and found["rope_scaling"] != found["rope_parameters"]:
        warnings.append(
            "config has both rope_scaling and rope_parameters: rope_scaling is read first, and "
            "transformers 5 may read nothing else"
        )
    places = tuple(place for part in parts for place in part.places)
    return RopeSettings(
        places=places,
        keyed=any(part.keyed for part in parts),
        unrotated="" if places else "; ".join(filter(None, (part.unrotated for part in parts))),
        missing="; ".join(filter(None, (part.missing for part in parts))),
        note="; ".join(filter(None, (part.note for part in parts))),
        warnings=tuple(warnings),
    )


def class_settings(
    config: Mapping[str, Any], layer_type: str | None, defaults: RopeDefaults
) -> RopeSettings:
    """The settings that a known class takes for one layer type, and what it drops.

    >>> config = {
    ...     "rope_scaling": {"type": "linear", "factor": 2.0},
    ...     "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    ... }
    >>> found = class_settings(config, None, RopeDefaults(reader="either", class_name="llama"))
    >>> found.get("rope_theta").value, found.warnings
    (None, ('config: rope_parameters is dropped: llama takes rope_scaling where both are stated',))
    """
    scaling, stated = (container(config, name) for name in CONTAINERS)
    if defaults.reader == "layered":
        return _layered(scaling, stated, layer_type, config, defaults)
    warnings: tuple[str, ...] = ()
    if scaling:
        place, settings = f"config: {CONTAINERS[0]}", scaling
        if stated and stated != scaling:
            warnings = (
                f"config: {CONTAINERS[1]} is dropped: {defaults.class_name} takes "
                f"{CONTAINERS[0]} where both are stated",
            )
    elif stated or config.get(CONTAINERS[1]) is not None:
        place, settings = f"config: {CONTAINERS[1]}", stated
    else:
        place, settings = f"{defaults.source}: {CONTAINERS[1]}", defaults.parameters
    if not settings:
        return RopeSettings(warnings=warnings)
    if keyed_by_layer_type(settings, config) and not defaults.keyed:
        kept = {k: v for k, v in settings.items() if not is_entry(k, v, config)}
        reason = (
            f"{place} is keyed by layer type, and {defaults.class_name} has one rope for all "
            "layers: what the entries say is dropped"
        )
        places = ((place, kept),) if kept else ()
        return RopeSettings(places, note=reason, warnings=(*warnings, reason))
    if not keyed_by_layer_type(settings, config):
        return RopeSettings(((place, settings),), warnings=warnings)
    found = _part(place, settings, layer_type, config, defaults)
    return replace(found, warnings=(*warnings, *found.warnings))


def _layered(
    scaling: Mapping[str, Any],
    stated: Mapping[str, Any],
    layer_type: str | None,
    config: Mapping[str, Any],
    defaults: RopeDefaults,
) -> RopeSettings:
    """Settings by layer type; ``rope_scaling`` is laid over those of some types."""
    kind = layer_type or FULL_ATTENTION
    place, name = f"config: {CONTAINERS[1]}", defaults.class_name
    keyed = keyed_by_layer_type(stated, config)
    entry = container(stated, kind) if keyed else {}
    note, warnings = "", []
    if stated and not keyed:
        note = f"{place} is not keyed by layer type, as {name} has it: not used"
        warnings.append(note)
    elif stated and not entry:
        note = f"{place} has no {kind}"
    laid = scaling if kind in (defaults.scaled_layer_types or (FULL_ATTENTION,)) else {}
    if keyed_by_layer_type(laid, config):
        laid = {k: v for k, v in laid.items() if not is_entry(k, v, config)}
        warnings.append(
            f"config: {CONTAINERS[0]} is keyed by layer type; {name} takes that from "
            f"{CONTAINERS[1]} alone: not used"
        )
    elif scaling and not laid:
        note = note or f"config: {CONTAINERS[0]} is not for {kind}"
    if laid.get("type") is not None and laid.get("rope_type") is None:
        # The class has a rope_type already when it lays these over its own.
        laid = {k: v for k, v in laid.items() if k != "type"}
        warnings.append(f"config: {CONTAINERS[0]}.type is not read: {name} takes rope_type alone")
    if laid and entry:
        warnings.append(
            f"config: {CONTAINERS[0]} is laid over {CONTAINERS[1]}.{kind}, as {name} does"
        )
    both = [(f"config: {CONTAINERS[0]}", laid), (f"{place}.{kind}", entry)]
    return RopeSettings(
        tuple((where, settings) for where, settings in both if settings),
        keyed=True,
        note=note,
        warnings=tuple(warnings),
    )


def _part(
    place: str,
    settings: Mapping[str, Any],
    layer_type: str | None,
    config: Mapping[str, Any],
    defaults: RopeDefaults,
) -> RopeSettings:
    """What one container says about one layer type."""
    if not keyed_by_layer_type(settings, config):
        return _unkeyed(place, settings, layer_type, config, defaults)
    kinds = {kind: value for kind, value in settings.items() if is_entry(kind, value, config)}
    if layer_type is None and all(value == next(iter(kinds.values())) for value in kinds.values()):
        layer_type = next(iter(kinds))
    has_own_base = layer_type in defaults.theta_by_layer_type
    if layer_type not in kinds:
        if has_own_base:
            return RopeSettings(keyed=True, note=f"{place} has no {layer_type}")
        asked = "no layer type is known" if layer_type is None else f"not for {layer_type}"
        return RopeSettings(keyed=True, missing=f"{place} is for {listed(kinds)}: {asked}")
    entry = kinds[layer_type]
    if entry is None:
        null = f"{place}.{layer_type} is null"
        # Where the class has a base for this layer type, null is filled in; else it is no rotation.
        if has_own_base:
            return RopeSettings(keyed=True, note=null)
        return RopeSettings(keyed=True, unrotated=null)
    return RopeSettings(((f"{place}.{layer_type}", entry),), keyed=True)


def _unkeyed(
    place: str,
    settings: Mapping[str, Any],
    layer_type: str | None,
    config: Mapping[str, Any],
    defaults: RopeDefaults,
) -> RopeSettings:
    """Settings that name no layer type hold for all of them, with two exceptions."""
    by_layer_type = defaults.theta_by_layer_type
    if place.endswith("rope_parameters") and layer_type in by_layer_type:
        reason = f"{place} is not keyed by layer type, as this architecture has it: not used"
        return RopeSettings(note=reason, warnings=(reason,))
    scaled = defaults.scaled_layer_types
    if scaled is None and (by_layer_type or config.get("rope_local_base_freq") is not None):
        scaled = (FULL_ATTENTION,)
    unscaled = layer_type is not None and scaled is not None and layer_type not in scaled
    if place.endswith("rope_scaling") and scaled is not None and unscaled:
        return RopeSettings(note=f"{place} is for {', '.join(scaled)} alone")
    return RopeSettings(((place, settings),))
