"""The adapter that a declarative map makes: an ordinary decoder with rotary positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.layer_tensors import Geometry, LayerTensors, read_projections
from pjdiag.adapters.projections import APPROXIMATE, rotary_pairs
from pjdiag.adapters.protocol import (
    ChannelSpectrum,
    Layer,
    Loaded,
    Match,
    MultiplicativeSpectrum,
    Part,
    SkippedLayer,
    Sourced,
)
from pjdiag.adapters.rope_fields import (
    RopeDefaults,
    RopeFields,
    rope_fields,
    text_config,
    train_length,
)
from pjdiag.adapters.schedule import ATTENTION, LayerKind, layer_kinds
from pjdiag.errors import CheckpointError
from pjdiag.terms import Mechanism

if TYPE_CHECKING:
    from pjdiag.checkpoint.source import Checkpoint


class DecoderAdapter:
    """Reads the architecture that a map describes, a layer at a time."""

    def __init__(self, mapped: ArchitectureMap) -> None:
        self.map = mapped
        self.name = mapped.name
        self.description = mapped.description or f"{', '.join(mapped.model_types)}"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """Whether the configuration's ``model_type`` is one of the map's."""
        model_type = text_config(checkpoint.config).get("model_type")
        if model_type in self.map.model_types:
            return Match(50, f"config: model_type {model_type}")
        return None

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from the configuration's position fields."""
        config = text_config(checkpoint.config)
        found = train_length(config)
        if found.value is not None or "max_position_embeddings" in config:
            return found
        return self.fields(checkpoint).count("max_position_embeddings")

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer in order; those without attention are skipped with the reason."""
        fields = self.fields(checkpoint)
        count = fields.needed(*self.map.num_layers).value
        _check_count(count)
        geometry = self.geometry(fields)
        prefix = self.prefix(checkpoint)
        by_type: dict[str, RopeFields | None] = {}
        length = eval_length if eval_length is not None else train_length
        for index, kind in enumerate(layer_kinds(self.map, fields, count)):
            tensors = LayerTensors(
                checkpoint, f"{prefix}{self.map.layer.format(layer=index)}", self.map
            )
            reason = self.skip_reason(tensors, kind)
            if reason:
                yield SkippedLayer(index, reason)
                continue
            if kind.layer_type not in by_type:
                by_type[kind.layer_type] = self.rope(fields, geometry, kind, length)
            yield self.layer(index, kind, geometry, fields, tensors, by_type[kind.layer_type])

    def fields(self, checkpoint: Checkpoint) -> ConfigFields:
        """The configuration of the text model, with the architecture's defaults."""
        return ConfigFields(text_config(checkpoint.config), self.map.defaults or {})

    def geometry(self, fields: ConfigFields) -> Geometry:
        """Head counts and sizes. Raises CheckpointError where they contradict each other."""
        hidden = fields.needed(*self.map.hidden_size)
        heads = fields.needed(*self.map.num_heads)
        kv = fields.count(*self.map.num_kv_heads)
        if kv.value is None:
            kv = Sourced(heads.value, f"as many as query heads ({heads.source})")
        dim = fields.count(*self.map.head_dim)
        if dim.value is None:
            if hidden.value % heads.value:
                raise CheckpointError(
                    f"config: hidden_size {hidden.value} is no multiple of "
                    f"{heads.value} heads, and head_dim is not stated",
                    "state head_dim in config.json",
                )
            dim = Sourced(hidden.value // heads.value, f"{hidden.source} / heads")
        if heads.value % kv.value:  # type: ignore[operator]
            raise CheckpointError(
                f"config: {heads.value} query heads cannot share {kv.value} key heads",
                "correct num_attention_heads or num_key_value_heads",
            )
        return Geometry(heads, kv, dim, hidden.value)  # type: ignore[arg-type]

    def prefix(self, checkpoint: Checkpoint) -> str:
        """What stands before the layers' names. Raises CheckpointError where nothing fits."""
        needle = re.compile(
            re.escape(self.map.layer).replace(re.escape("{layer}"), r"\d{1,9}")
            + ".*"
            + re.escape(self.map.fused or self.map.query)
            + r"\."
        )
        for prefix in self.map.prefixes:
            if any(
                name.startswith(prefix) and needle.match(name, len(prefix))
                for name in checkpoint.headers
            ):
                return prefix
        wanted = f"{self.map.layer.format(layer='N')}{self.map.fused or self.map.query}.weight"
        raise CheckpointError(
            f"no tensor is named {wanted}, as {self.name} has them",
            "check that the weights and config.json belong together",
        )

    def skip_reason(self, tensors: LayerTensors, kind: LayerKind) -> str:
        """Why a layer cannot be read; empty where it can."""
        if kind.layer_type not in ATTENTION:
            return f"layer type {ascii(kind.layer_type)[1:-1]}: no softmax attention"
        name = self.map.fused or self.map.query
        if not tensors.has(f"{name}.weight"):
            found = tensors.suggestion()
            return tensors.packed(name) or f"it has no {name}.weight" + (
                f"; its tensors are {found}" if found else ""
            )
        return tensors.unreadable(f"{name}.weight")

    def rope(
        self, fields: ConfigFields, geometry: Geometry, kind: LayerKind, length: int | None
    ) -> RopeFields | None:
        """Frequencies of the layers of one type; None where nothing rotates."""
        if not self.map.rope_layout:
            return None
        theta = fields.defaults.get("rope_theta")
        return rope_fields(
            fields.config,
            geometry.head_dim.value,
            layer_type=kind.layer_type,
            eval_length=length,
            defaults=RopeDefaults(
                theta=theta,
                theta_by_layer_type=self.map.theta_by_layer_type or {},
                partial_rotary_factor=self.map.partial_rotary_factor,
                max_position_embeddings=fields.defaults.get("max_position_embeddings"),
                theta_fields=self.map.theta_fields,
                reads_mscale_all_dim=self.map.reads_mscale_all_dim,
            ),
        )

    def scale(self, fields: ConfigFields, geometry: Geometry) -> Sourced[float]:
        """The factor on the logits, before any correction of the rotary rule."""
        if self.map.scale_field:
            found = fields.number(self.map.scale_field)
            if found.value is not None and (found.value > 0 or self.map.scale_power > 0):
                power = self.map.scale_power
                note = found.source if power == 1 else f"{found.source} ** {power:g}"
                return Sourced(found.value**power, note)
        return Sourced(
            geometry.head_dim.value**-0.5, f"head_dim ** -0.5 ({geometry.head_dim.source})"
        )

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
        tensors.check_shapes(geometry)
        scale = self.scale(fields, geometry)
        if rope is not None and rope.scale_factor.value != 1:
            scale = Sourced(
                scale.value * rope.scale_factor.value, f"{scale.source}, {rope.scale_factor.source}"
            )
        read = partial(self.read_projections, tensors, geometry, fields)
        normed = self.normed(tensors, fields)
        parts: list[Part] = []
        if rope is not None and kind.rotates.value:
            parts.append(self.rotary_part(rope, scale.value, read, normed))
        bidirectional = fields.flag(self.map.bidirectional) if self.map.bidirectional else None
        return Layer(
            index=index,
            num_heads=geometry.num_heads,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            scale=scale,
            window=kind.window,
            parts=tuple(parts),
            causal=Sourced(True, "architecture: causal attention")
            if bidirectional is None
            else Sourced(not bidirectional.value, bidirectional.source),
            softcap=fields.number(self.map.softcap)
            if self.map.softcap
            else Sourced(None, "not used"),
            qk_norm=normed,
            sinks=Sourced(tensors.has(self.map.sinks), f"tensor {self.map.sinks}")
            if tensors.has(self.map.sinks)
            else Sourced(False, "not used"),
            projections=read,
        )

    def normed(self, tensors: LayerTensors, fields: ConfigFields) -> Sourced[str | None]:
        """How queries and keys are normalised."""
        what = f"{self.map.qk_norm_kind} over {self.map.qk_norm_over}"
        bare = self.map.qk_norm_bare
        if bare == "always" or (bare and fields.flag(bare).value):
            return Sourced(what, f"architecture: {bare}")
        if tensors.has(f"{self.map.query_norm}.weight"):
            return Sourced(what, f"tensor {self.map.query_norm}.weight")
        return Sourced(None, "not used")

    def rotary_part(
        self, rope: RopeFields, scale: float, read: Any, normed: Sourced[str | None]
    ) -> MultiplicativeSpectrum:
        """RoPE as this architecture applies it."""
        layout = self.map.rope_layout
        return MultiplicativeSpectrum(
            mechanism=Mechanism.ROPE,
            inv_freq=rope.inv_freq,
            rotary_dim=rope.rotary_dim,
            rope_layout=Sourced(layout, "architecture"),
            rope_theta=rope.theta,
            rope_type=rope.rope_type,
            attention_factor=rope.attention_factor,
            read=partial(_spectrum, read, rope, layout, scale),
            approximate=APPROXIMATE if normed.value else "",
        )

    def read_projections(
        self, tensors: LayerTensors, geometry: Geometry, fields: ConfigFields
    ) -> Loaded:
        """The layer's ``LinearProjections``, and the tensors that spoil some heads."""
        eps = fields.number(self.map.qk_norm_eps).value
        normed = self.normed(tensors, fields).value is not None
        return read_projections(tensors, geometry, (eps or 1e-6) if normed else None)


def _spectrum(read: Any, rope: RopeFields, layout: str, scale: float) -> Loaded:
    loaded = read()
    pairs = rotary_pairs(layout, rope.rotary_dim.value)
    frequencies = rope.inv_freq.value
    made: ChannelSpectrum = loaded.value.spectrum(
        pairs,
        None if frequencies is None else np.asarray(frequencies),
        scale * rope.attention_factor.value**2,
    )
    return Loaded(made, loaded.bad)


def _check_count(count: int) -> None:
    if count > 10_000:
        raise CheckpointError(f"config states {count} layers; expected at most 10000", "correct it")
