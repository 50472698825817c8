"""Which layer rotates, and which sees a window: schedules over the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.protocol import Sourced
from pjdiag.checkpoint.text import shown
from pjdiag.errors import CheckpointError

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
ATTENTION = frozenset({FULL, SLIDING, CHUNKED, "attention", "hybrid"})
OTHER_KINDS = {
    "linear_attention": "no softmax attention",
    "mamba": "a state-space layer, no attention",
    "mamba2": "a state-space layer, no attention",
    "conv": "a convolution, no attention",
    "recurrent": "a recurrence, no attention",
    "moe": "no attention",
    "mlp": "no attention",
}
PATTERN = "sliding_window_pattern"
"""The usual name of the period of full layers."""
MOST_LAYERS = 10_000
EVERY_KEY = "architecture: every earlier key"
LISTS = "correct config.json, or take the file of the original checkpoint"


@dataclass(frozen=True)
class LayerKind:
    """What the configuration says of one layer."""

    layer_type: str
    window: Sourced[int | None]
    rotates: Sourced[bool]

    @property
    def other(self) -> str:
        """Why a layer of this type has no attention to be read; empty where it has."""
        if self.layer_type in ATTENTION:
            return ""
        name = ascii(self.layer_type)[1:-1]
        return f"layer type {name}: {OTHER_KINDS.get(self.layer_type, 'this is not read')}"


def layer_kinds(mapped: ArchitectureMap, fields: ConfigFields, num_layers: int) -> list[LayerKind]:
    """The kind of every layer. Raises CheckpointError for a list of the wrong length.

    >>> mapped = ArchitectureMap("toy", ("toy",), window_layers="listed", pattern="period")
    >>> kinds = layer_kinds(mapped, ConfigFields({"sliding_window": 8, "period": 3}, {}), 3)
    >>> [kind.window.value for kind in kinds]
    [8, 8, None]
    """
    window = _window(mapped, fields)
    types = _layer_types(mapped, fields, num_layers, window.value is not None)
    windows = [_layer_window(mapped, fields, window, entry, types) for entry in types.value]
    rotation = _rotation(mapped, fields, window, windows)
    return [LayerKind(*entry) for entry in zip(types.value, windows, rotation, strict=True)]


def layer_count(mapped: ArchitectureMap, fields: ConfigFields) -> int:
    """Number of layers: as stated, else as many as the list of layer types has.

    Raises CheckpointError where neither is there, and for more than 10,000.
    """
    listed = fields.entries(*mapped.layer_types)
    if listed.value and fields.count(*mapped.num_layers).value is None:
        count = len(listed.value)
    else:
        count = fields.needed(*mapped.num_layers).value
    if count > MOST_LAYERS:
        raise CheckpointError(
            f"config states {count} layers; expected at most {MOST_LAYERS}", "correct config.json"
        )
    return count


def shared_keys(
    mapped: ArchitectureMap, fields: ConfigFields, kinds: Sequence[LayerKind]
) -> list[Sourced[int | None]]:
    """The layer whose keys each layer reads in place of its own; None where it has its own.

    The last layers read those of the last earlier layer of their type. Raises CheckpointError
    where there is none.
    """
    own = Sourced(None, "not used")
    shared = fields.whole(mapped.shared_kv) if mapped.shared_kv else own
    first = len(kinds) - (shared.value or 0)
    made: list[Sourced[int | None]] = [own] * max(first, 0)
    for index in range(max(first, 0), len(kinds)):
        wanted = kinds[index].layer_type
        before = [i for i in range(max(first, 0)) if kinds[i].layer_type == wanted]
        if not before:
            raise CheckpointError(
                f"{shared.source} is {shared.value}: layer {index} would read the keys of an "
                f"earlier {wanted} layer, and there is none",
                LISTS,
            )
        made.append(Sourced(before[-1], shared.source))
    return made


def _layer_window(
    mapped: ArchitectureMap,
    fields: ConfigFields,
    window: Sourced[int | None],
    layer_type: str,
    types: Sourced[list[str]],
) -> Sourced[int | None]:
    if layer_type == CHUNKED:
        size = fields.needed("attention_chunk_size")
        return Sourced(None, f"keys of the same chunk of {size.value} tokens ({size.source})")
    if mapped.window_layers == "all" or layer_type == SLIDING or window.value is None:
        return window
    return Sourced(None, f"no window: {layer_type} ({types.source})")


def _window(mapped: ArchitectureMap, fields: ConfigFields) -> Sourced[int | None]:
    if mapped.window_layers == "none":
        return Sourced(None, EVERY_KEY)
    if mapped.window_switch and not _switch_unlisted(mapped, fields):
        switch = fields.flag(mapped.window_switch)
        if not switch.value:
            return Sourced(None, f"{mapped.window_switch} is false ({switch.source})")
    found = fields.count(mapped.window)
    return found if found.value is not None else Sourced(None, f"no {mapped.window} in config")


def _switch_unlisted(mapped: ArchitectureMap, fields: ConfigFields) -> bool:
    """Whether a list of layer types stands in place of the switch.

    It does where layers are listed that do not rotate: such classes mask by the list alone.
    """
    return mapped.rope_layers == "listed" and fields.entries(*mapped.layer_types).value is not None


def _layer_types(
    mapped: ArchitectureMap, fields: ConfigFields, num_layers: int, windowed: bool
) -> Sourced[list[str]]:
    stated = fields.entries(*mapped.layer_types)
    if stated.value is not None:
        types = [str(entry) for entry in stated.value]
        _check_length(stated.source, types, num_layers)
        return Sourced(types, stated.source)
    if mapped.layer_types_needed:
        raise CheckpointError(
            f"config.json states no {' or '.join(mapped.layer_types)}; {mapped.name} cannot be "
            "read without",
            LISTS,
        )
    if mapped.window_layers == "all" and windowed:
        return Sourced([SLIDING] * num_layers, "architecture: every layer has the window")
    if windowed and mapped.window_switch and mapped.rope_layers == "listed":
        rotation = _listed(mapped, fields, num_layers)
        types = [FULL if entry.value else SLIDING for entry in rotation]
        return Sourced(types, "architecture: layers that do not rotate have the window")
    if mapped.first_sliding and windowed:
        first = fields.whole(mapped.first_sliding)
        start = num_layers if first.value is None else first.value
        return Sourced([SLIDING if i >= start else FULL for i in range(num_layers)], first.source)
    period = _period(mapped, fields)
    if not period.value or (mapped.window_switch and not windowed):
        return _unlisted(mapped, fields, num_layers)
    full = period.value - 1 if mapped.full_layer == "last" else 0
    until = fields.whole(mapped.sliding_before).value if mapped.sliding_before else None
    stop = num_layers if until is None else until
    types = [FULL if i % period.value == full or i >= stop else SLIDING for i in range(num_layers)]
    return Sourced(types, period.source)


def _period(mapped: ArchitectureMap, fields: ConfigFields) -> Sourced[int | None]:
    """Every which layer is full, where the kinds are not listed; None or 0: nothing tells."""
    if mapped.pattern:
        return fields.whole(mapped.pattern)
    return Sourced(mapped.period, f"architecture: one layer in {mapped.period} is full")


def unread_period(mapped: ArchitectureMap, fields: ConfigFields) -> list[str]:
    """A warning for a stated period of full layers that the class does not read."""
    stated = fields.config.get(PATTERN)
    listed = fields.entries(*mapped.layer_types).value is not None
    if listed or not mapped.period or mapped.pattern or stated in (None, mapped.period):
        return []
    return [
        f"config: {PATTERN} is {shown(stated)[1:-1]}; {mapped.name} does not read it: one layer "
        f"in {mapped.period} is full"
    ]


def _unlisted(mapped: ArchitectureMap, fields: ConfigFields, num_layers: int) -> Sourced[list[str]]:
    if mapped.unlisted == "sliding":
        return Sourced([SLIDING] * num_layers, "architecture: every layer has the window")
    chunk = fields.count("attention_chunk_size")
    if mapped.unlisted == "full" or chunk.value is None:
        return Sourced([FULL] * num_layers, EVERY_KEY)
    rotation = _listed(mapped, fields, num_layers)
    types = [CHUNKED if entry.value else FULL for entry in rotation]
    return Sourced(types, "architecture: layers that rotate see chunks")


def _rotation(
    mapped: ArchitectureMap,
    fields: ConfigFields,
    window: Sourced[int | None],
    windows: Sequence[Sourced[int | None]],
) -> list[Sourced[bool]]:
    count = len(windows)
    if mapped.rope_switch:
        switch = fields.get(mapped.rope_switch)
        if switch.value not in (True, "rope"):
            stated = shown(switch.value) if switch.value is not None else "not stated"
            return [Sourced(False, f"{mapped.rope_switch} is {stated} ({switch.source})")] * count
    if mapped.rope_layers == "windowed_or_all" and window.value is None:
        return [Sourced(True, f"every layer rotates: {window.source}")] * count
    if mapped.rope_layers.startswith("windowed"):
        why = "architecture: layers with a window rotate"
        return [Sourced(entry.value is not None, why) for entry in windows]
    if mapped.rope_layers == "listed":
        return _listed(mapped, fields, count)
    return [Sourced(True, "architecture: every layer rotates")] * count


def _listed(mapped: ArchitectureMap, fields: ConfigFields, count: int) -> list[Sourced[bool]]:
    stated = fields.entries("no_rope_layers")
    if stated.value:
        # The field's name lies: 1 marks a layer that rotates.
        _check_length(stated.source, stated.value, count)
        return [Sourced(bool(entry), stated.source) for entry in stated.value]
    interval = fields.count(mapped.no_rope_interval)
    if interval.value is None:
        return [Sourced(True, "config states no layers without rotation")] * count
    return [Sourced((i + 1) % interval.value != 0, interval.source) for i in range(count)]


def _check_length(source: str, found: Sequence[object], num_layers: int) -> None:
    if len(found) != num_layers:
        raise CheckpointError(
            f"{source} lists {len(found)} layers; expected {num_layers}, as config.json states",
            LISTS,
        )
