"""Which layer rotates, and which sees a window: schedules over the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.protocol import Sourced
from pjdiag.errors import CheckpointError

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
ATTENTION = frozenset({FULL, SLIDING, CHUNKED, "attention", "hybrid"})
FIRST_SLIDING = "max_window_layers"


@dataclass(frozen=True)
class LayerKind:
    """What the configuration says of one layer."""

    layer_type: str
    window: Sourced[int | None]
    rotates: Sourced[bool]


def layer_kinds(mapped: ArchitectureMap, fields: ConfigFields, num_layers: int) -> list[LayerKind]:
    """The kind of every layer. Raises CheckpointError for a list of the wrong length."""
    window = _window(mapped, fields)
    types = _layer_types(mapped, fields, num_layers, window.value is not None)
    slides = window.value is not None and SLIDING in types.value
    rotation = _rotation(mapped, fields, num_layers)
    kinds = []
    for index, layer_type in enumerate(types.value):
        if mapped.rope_layers == "sliding":
            rotates = Sourced(not slides or layer_type == SLIDING, types.source)
        else:
            rotates = Sourced(rotation.value[index], rotation.source)
        kinds.append(
            LayerKind(layer_type, _layer_window(fields, window, layer_type, types), rotates)
        )
    return kinds


def _layer_window(
    fields: ConfigFields,
    window: Sourced[int | None],
    layer_type: str,
    types: Sourced[list[str]],
) -> Sourced[int | None]:
    if layer_type == CHUNKED:
        size = fields.count("attention_chunk_size")
        return Sourced(None, f"keys of the same chunk of {size.value} tokens ({size.source})")
    if layer_type == SLIDING or window.value is None:
        return window
    return Sourced(None, types.source)


def _window(mapped: ArchitectureMap, fields: ConfigFields) -> Sourced[int | None]:
    if mapped.window_layers == "none":
        return Sourced(None, "architecture: every earlier key")
    if mapped.window_switch:
        switch = fields.flag(mapped.window_switch)
        if not switch.value:
            return Sourced(None, f"{mapped.window_switch} is false ({switch.source})")
    found = fields.count(mapped.window)
    return found if found.value is not None else Sourced(None, f"no {mapped.window} in config")


def _layer_types(
    mapped: ArchitectureMap, fields: ConfigFields, num_layers: int, windowed: bool
) -> Sourced[list[str]]:
    stated = fields.entries("layer_types")
    if stated.value is not None:
        types = [str(entry) for entry in stated.value]
        _check_length("layer_types", types, num_layers)
        return Sourced(types, stated.source)
    if not windowed:
        return Sourced([FULL] * num_layers, "architecture: every earlier key")
    if mapped.window_layers == "all":
        return Sourced([SLIDING] * num_layers, "architecture: every layer has the window")
    if mapped.pattern == FIRST_SLIDING:
        first = fields.get(FIRST_SLIDING)
        start = first.value if isinstance(first.value, int) else num_layers
        return Sourced([SLIDING if i >= start else FULL for i in range(num_layers)], first.source)
    period = fields.count(mapped.pattern) if mapped.pattern else Sourced(None, "unknown")
    if period.value is None:
        return Sourced([FULL] * num_layers, "config states no layer_types")
    types = [SLIDING if (i + 1) % period.value else FULL for i in range(num_layers)]
    return Sourced(types, period.source)


def _rotation(
    mapped: ArchitectureMap, fields: ConfigFields, num_layers: int
) -> Sourced[list[bool]]:
    if mapped.rope_layers != "listed":
        return Sourced([True] * num_layers, "architecture: every layer rotates")
    stated = fields.entries("no_rope_layers")
    if stated.value:
        # The field's name lies: 1 marks a layer that rotates.
        _check_length("no_rope_layers", stated.value, num_layers)
        return Sourced([bool(entry) for entry in stated.value], stated.source)
    interval = fields.count(mapped.no_rope_interval)
    if interval.value is None:
        return Sourced([True] * num_layers, "config states no layers without rotation")
    return Sourced([(i + 1) % interval.value != 0 for i in range(num_layers)], interval.source)


def _check_length(name: str, found: Sequence[object], num_layers: int) -> None:
    if len(found) != num_layers:
        raise CheckpointError(
            f"config: {name} lists {len(found)} layers; num_hidden_layers is {num_layers}",
            "correct config.json",
        )
