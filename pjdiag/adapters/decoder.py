"""The adapter that a declarative map makes: an ordinary decoder with rotary positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pjdiag.adapters.architecture_map import ALWAYS, ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.geometry import Geometry, geometry_of, layer_geometry
from pjdiag.adapters.layer_prefix import layer_prefix
from pjdiag.adapters.layer_tensors import LayerTensors, read_projections
from pjdiag.adapters.map_rope import rope_defaults
from pjdiag.adapters.model_type import match_reason
from pjdiag.adapters.protocol import Layer, Loaded, Match, Part, SkippedLayer, Sourced
from pjdiag.adapters.qk_norms import (
    clip_size,
    norm_eps,
    normed,
    not_relative,
    why_approximate,
)
from pjdiag.adapters.rope_config import CONTAINERS, ORIGINAL_LENGTH
from pjdiag.adapters.rope_fields import (
    RopeDefaults,
    RopeFields,
    rope_fields,
    text_config,
    train_length,
)
from pjdiag.adapters.rotary_part import backwards, rotary_part
from pjdiag.adapters.schedule import (
    CHUNKED,
    LayerKind,
    layer_count,
    layer_kinds,
    shared_keys,
    unread_period,
)
from pjdiag.adapters.stored_frequencies import StoredFrequencies

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint

NOT_USED: Sourced[None] = Sourced(None, "not used")


class DecoderAdapter:
    """Reads the architecture that a map describes, a layer at a time."""

    def __init__(self, mapped: ArchitectureMap, where: str = "") -> None:
        """``where`` is the file of the map and what brings it; empty for a map in a class."""
        self.map = mapped
        self.where = where
        self.name = mapped.name
        self.description = mapped.description or f"{', '.join(mapped.model_types)}"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """Whether the configuration's ``model_type`` is one of the map's."""
        reason = match_reason(checkpoint.config, self.map.model_types, self.map.text_of)
        return Match(50, reason) if reason else None

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from the configuration's position fields, else from what the class fills in."""
        fields = self.fields(checkpoint)
        named = fields.count(*self.map.train_length_fields)
        if named.value is not None:
            return named
        stated = train_length(fields.config, self.rope_defaults(fields))
        original = fields.defaults.get(ORIGINAL_LENGTH)
        if not any(fields.config.get(name) for name in CONTAINERS):
            original = (self.map.rope_parameters or {}).get(ORIGINAL_LENGTH, original)
        if original is None or ORIGINAL_LENGTH in stated.source or original > (stated.value or 0):
            return stated
        return Sourced(original, self.map.defaults_source)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer in order; those without attention are skipped with the reason."""
        fields = self.fields(checkpoint)
        count = layer_count(self.map, fields)
        if self.map.refused:
            yield from (SkippedLayer(index, self.map.refused) for index in range(count))
            return
        geometry = self.geometry(fields)
        prefix = self.prefix(checkpoint)
        stored = StoredFrequencies(checkpoint, prefix)
        by_type: dict[tuple[str, int], RopeFields | None] = {}
        length = eval_length if eval_length is not None else train_length
        kinds = layer_kinds(self.map, fields, count)
        shared = shared_keys(self.map, fields, kinds)
        for index, kind in enumerate(kinds):
            tensors = self.tensors(checkpoint, prefix, index, kind)
            holder = shared[index].value
            if holder is not None:
                tensors = replace(tensors, shared=self.tensors(checkpoint, prefix, holder, kind))
            reason = self.skip_reason(tensors, kind)
            if reason:
                yield SkippedLayer(index, reason)
                continue
            own = self.layer_geometry(geometry, fields, kind, index)
            key = (kind.layer_type, own.head_dim.value)
            if key not in by_type:
                rope = self.rope(fields, own, kind, length)
                by_type[key] = stored.compared(rope, tensors.prefix)
            layer = self.layer(index, kind, own, fields, tensors, by_type[key])
            yield replace(layer, shared_kv_layer=shared[index])

    def tensors(
        self, checkpoint: Checkpoint, prefix: str, index: int, kind: LayerKind
    ) -> LayerTensors:
        """Where the tensors of one layer are."""
        name = f"{prefix}{self.map.layer.format(layer=index)}"
        return LayerTensors(checkpoint, name, self.map.at(rotates=kind.rotates.value))

    def fields(self, checkpoint: Checkpoint) -> ConfigFields:
        """The configuration of the text model, with the architecture's defaults."""
        config = text_config(checkpoint.config)
        return ConfigFields(config, self.map.defaults or {}, self.map.defaults_source)

    def geometry(self, fields: ConfigFields) -> Geometry:
        """Head counts and sizes. Raises CheckpointError where they contradict each other."""
        return geometry_of(self.map, fields)

    def layer_geometry(
        self,
        geometry: Geometry,
        fields: ConfigFields,
        kind: LayerKind,  # noqa: ARG002  for subclasses
        index: int,
    ) -> Geometry:
        """The geometry of one layer: the model's but for what ``per_layer_config`` replaces."""
        return layer_geometry(self.map, geometry, fields, index)

    def prefix(self, checkpoint: Checkpoint) -> str:
        """What stands before the layers' names. Raises CheckpointError where nothing fits."""
        return layer_prefix(self.map, checkpoint, self.where)

    def skip_reason(self, tensors: LayerTensors, kind: LayerKind) -> str:
        """Why a layer cannot be read; empty where it can."""
        if kind.other:
            return kind.other
        missing = (side.missing(name) for side, name in projections(tensors))
        found = next(filter(None, missing), "")
        return f"{found} (names: {self.where})" if found and self.where else found

    def rope(
        self, fields: ConfigFields, geometry: Geometry, kind: LayerKind, length: int | None
    ) -> RopeFields | None:
        """Frequencies of the layers of one type; None where nothing rotates."""
        if not self.map.rope_layout:
            return None
        return rope_fields(
            fields.config,
            geometry.head_dim.value,
            layer_type=kind.layer_type,
            eval_length=length,
            defaults=self.rope_defaults(fields),
        )

    def rope_defaults(self, fields: ConfigFields) -> RopeDefaults:
        """What the architecture's configuration class fills in."""
        return rope_defaults(self.map, self.name, fields)

    def scale(self, fields: ConfigFields, geometry: Geometry) -> Sourced[float]:
        """The factor on the logits, before any correction of the rotary rule."""
        mapped = self.map
        if mapped.fixed_scale:
            return Sourced(mapped.fixed_scale, "architecture")
        if mapped.scale_field:
            found = fields.number(mapped.scale_field)
            if found.value is not None and (found.value > 0 or mapped.scale_power > 0):
                power = mapped.scale_power
                note = found.source if power == 1 else f"{found.source} ** {power:g}"
                return Sourced(found.value**power, note)
        dim = geometry.head_dim
        return Sourced(dim.value**-0.5, f"head_dim ** -0.5 ({dim.source})")

    def layer(
        self,
        index: int,
        kind: LayerKind,
        geometry: Geometry,
        fields: ConfigFields,
        tensors: LayerTensors,
        rope: RopeFields | None,
    ) -> Layer:
        """One layer in effective values; its weights are read when asked for."""
        unreadable = (side.unreadable(name) for side, name in projections(tensors))
        packed = next(filter(None, unreadable), "")
        if not packed:
            tensors.check_shapes(geometry)
        mapped = self.map
        if rope is not None and not (kind.rotates.value and rope.rotary_dim.value):
            rope = None
        scale = self.factored(self.scale(fields, geometry), fields, rope)
        norm = normed(tensors, fields)
        unread = packed or not_relative(tensors, norm, rope)
        read = partial(self.read_projections, tensors, geometry, fields)
        approximate = self.approximate(fields, norm)
        parts: tuple[Part, ...] = ()
        if rope is not None:
            part = rotary_part(rope, mapped.rope_layout, scale.value, read, approximate, unread)
            parts = (backwards(part, geometry.head_dim.value) if mapped.rope_backwards else part,)
        return Layer(
            index=index,
            num_heads=geometry.num_heads,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            scale=scale,
            window=kind.window,
            parts=parts,
            causal=self.causal(tensors.checkpoint, fields),
            softcap=self.softcap(fields),
            qk_norm=norm,
            sinks=Sourced(True, f"tensor {mapped.sinks}")
            if tensors.has(mapped.sinks)
            else Sourced(False, "not used"),
            projections=None if unread else read,
            warnings=(
                *self.notes(tensors.checkpoint, fields, kind),
                *(rope.warnings if rope else ()),
                *(tensors.without_norm() if parts else ()),
                *unread_period(mapped, fields),
            ),
        )

    def softcap(self, fields: ConfigFields) -> Sourced[float | None]:
        """The cap on the logits; None where the configuration sets none."""
        stated = fields.number(self.map.softcap) if self.map.softcap else NOT_USED
        return stated if stated.value is not None else NOT_USED

    def causal(self, checkpoint: Checkpoint, fields: ConfigFields) -> Sourced[bool]:
        """Whether queries see earlier keys alone, on text."""
        # Within a model that notes its images, the flag is about those.
        outer = str(checkpoint.config.get("model_type"))
        if not self.map.bidirectional or outer in (self.map.notes_in or {}):
            return Sourced(True, "architecture: causal attention")
        switch = fields.flag(self.map.bidirectional)
        return Sourced(not switch.value, switch.source)

    def factored(
        self, scale: Sourced[float], fields: ConfigFields, rope: RopeFields | None
    ) -> Sourced[float]:
        """The scale with the corrections of the rotary rule and of the configuration."""
        factors = [] if rope is None else [rope.scale_factor]
        if self.map.key_factor:
            stated = fields.number(self.map.key_factor)
            factors.append(Sourced(1.0 if stated.value is None else stated.value, stated.source))
        for factor in factors:
            if factor.value != 1:
                scale = Sourced(scale.value * factor.value, f"{scale.source}, {factor.source}")
        return scale

    def approximate(self, fields: ConfigFields, norm: Sourced[str | None]) -> str:
        """Why the channel masses are not exact; empty where they are."""
        return why_approximate(self.map, fields, norm)

    def notes(
        self, checkpoint: Checkpoint, fields: ConfigFields, kind: LayerKind
    ) -> tuple[str, ...]:
        """What a reader of the layer's figures must know."""
        made = [
            text
            for flag, text in (self.map.notes or {}).items()
            if flag == ALWAYS or fields.flag(flag).value
        ]
        outer = (self.map.notes_in or {}).get(str(checkpoint.config.get("model_type")))
        if outer is not None:
            made.append(outer)
        if kind.layer_type == CHUNKED:
            made.append(f"layers of type {CHUNKED} see {kind.window.source}")
        return tuple(made)

    def read_projections(
        self, tensors: LayerTensors, geometry: Geometry, fields: ConfigFields
    ) -> Loaded:
        """The layer's ``LinearProjections``, and the tensors that spoil some heads."""
        eps, clip = norm_eps(tensors, fields), clip_size(self.map, fields)
        return read_projections(tensors, geometry, eps, clip)


def projections(tensors: LayerTensors) -> list[tuple[LayerTensors, str]]:
    """The projections to queries and keys, and the layers that hold them."""
    queries, keys = ((tensors.side(which), tensors.names(which)) for which in (True, False))
    return [queries] if tensors.map.fused else [queries, keys]
