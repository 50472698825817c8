"""Multi-head latent attention: DeepSeek-V2 and V3, and models of their attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pjdiag.adapters import Layer, Loaded, SkippedLayer, Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import NOT_USED, DecoderAdapter
from pjdiag.adapters.layer_tensors import Geometry, LayerTensors
from pjdiag.adapters.projections import not_finite
from pjdiag.adapters.rope_fields import RopeDefaults, RopeFields, rope_fields
from pjdiag.adapters.rotary_part import rotary_part
from pjdiag.adapters.schedule import LayerKind
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag_plugins.latent import Latent, LatentProjections

Q_A, Q_B, Q = "self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.q_proj"
KV_A, KV_B = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"
Q_NORM, KV_NORM = "self_attn.q_a_layernorm", "self_attn.kv_a_layernorm"
NOT_INTERLEAVED = ("minicpm3",)
"""Model types that rotate halves; DeepSeek-V2 has no field, and rotates interleaved pairs."""
MISTRAL4 = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""What its class fills in where the config has no rope settings."""
MLA = ArchitectureMap(
    name="mla",
    model_types=(
        "deepseek_v2",
        "deepseek_v3",
        "glm4_moe_lite",
        "minicpm3",
        "mistral4",
        "youtu",
    ),
    description="Multi-head latent attention: one shared rotated key, interleaved",
    fused=KV_A,
    rope_layout="interleaved",
    reads_mscale_all_dim=True,
    defaults={"rope_interleave": True, "rope_theta": 10000.0},
)


@dataclass(frozen=True)
class Sizes:
    """Channels of a head, and widths of the latents."""

    rotated: int
    other: int
    value: int
    key_latent: int
    query_latent: int | None


class MlaAdapter(DecoderAdapter):
    """A head is [others | rotated]; the rotated key is the end of ``kv_a_proj_with_mqa``."""

    def __init__(self, mapped: ArchitectureMap = MLA) -> None:
        super().__init__(mapped)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer, in the pairing that the configuration states."""
        fields = self.fields(checkpoint)
        halves = fields.config.get("model_type") in NOT_INTERLEAVED or (
            fields.config.get("model_type") != "deepseek_v2"
            and not fields.flag("rope_interleave").value
        )
        chosen = MlaAdapter(replace(self.map, rope_layout="half" if halves else "interleaved"))
        yield from super(MlaAdapter, chosen).layers(checkpoint, train_length, eval_length)

    def geometry(self, fields: ConfigFields) -> Geometry:
        """A head has its rotated and its other channels."""
        sizes = _sizes(fields)
        heads = fields.needed("num_attention_heads")
        source = "config: qk_nope_head_dim + qk_rope_head_dim"
        return Geometry(
            heads,
            Sourced(heads.value, "architecture: a key for every head, its rotated part shared"),
            Sourced(sizes.rotated + sizes.other, source),
            fields.needed("hidden_size").value,
        )

    def rope(
        self, fields: ConfigFields, geometry: Geometry, kind: LayerKind, length: int | None
    ) -> RopeFields:
        """Frequencies of the rotated channels."""
        del geometry
        return rope_fields(
            fields.config,
            _sizes(fields).rotated,
            layer_type=kind.layer_type,
            eval_length=length,
            defaults=self.rope_defaults(fields),
        )

    def rope_defaults(self, fields: ConfigFields) -> RopeDefaults:
        """The share of a head that rotates is stated by the two sizes alone."""
        own = fields.config.get("model_type") == "mistral4"
        return replace(
            super().rope_defaults(fields),
            partial_fields=(),
            rotary_dim_fields=(),
            share_of=_sizes(fields).rotated + _sizes(fields).other,
            parameters=MISTRAL4 if own else {},
        )

    def skip_reason(self, tensors: LayerTensors, kind: LayerKind) -> str:
        """Why a layer cannot be read: a tensor is missing, or packed."""
        query = Q if tensors.has(f"{Q}.weight") else Q_B
        names = (KV_A, KV_B, query, *((Q_A,) if query == Q_B else ()))
        reasons = (tensors.missing(name) or tensors.unreadable(name) for name in names)
        return kind.other or next(filter(None, reasons), "")

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
        sizes = _sizes(fields)
        _check(tensors, geometry, sizes)
        if rope is None:
            raise CheckpointError("the layer has no rope settings", "complete config.json")
        scale = self.factored(self.scale(fields, geometry), fields, rope)
        read = partial(_read, tensors, geometry, sizes)
        normed: Sourced[str | None] = NOT_USED
        if sizes.query_latent is not None:
            normed = Sourced("rms over latent", f"tensor {Q_NORM}.weight")
        approximate = self.approximate(fields, normed)
        return Layer(
            index=index,
            num_heads=geometry.num_heads,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            scale=scale,
            window=kind.window,
            parts=(rotary_part(rope, self.map.rope_layout, scale.value, read, approximate),),
            qk_norm=normed,
            projections=read,
            warnings=rope.warnings,
        )


def _sizes(fields: ConfigFields) -> Sizes:
    return Sizes(
        rotated=fields.needed("qk_rope_head_dim").value,
        other=fields.needed("qk_nope_head_dim").value,
        value=_value_size(fields),
        key_latent=fields.needed("kv_lora_rank").value,
        query_latent=fields.count("q_lora_rank").value,
    )


def _value_size(fields: ConfigFields) -> int:
    stated = fields.count("v_head_dim").value
    if stated is not None:
        return stated
    return fields.needed("hidden_size").value // fields.needed("num_attention_heads").value


def _check(tensors: LayerTensors, geometry: Geometry, sizes: Sizes) -> None:
    """Raises CheckpointError where a projection does not have the stated shape."""
    heads, width = geometry.num_heads.value, geometry.hidden_size
    shapes = {
        KV_A: (sizes.key_latent + sizes.rotated, width),
        KV_B: (heads * (sizes.other + sizes.value), sizes.key_latent),
    }
    if sizes.query_latent is None:
        shapes[Q] = (heads * geometry.head_dim.value, width)
    else:
        shapes[Q_A] = (sizes.query_latent, width)
        shapes[Q_B] = (heads * geometry.head_dim.value, sizes.query_latent)
    for name, wanted in shapes.items():
        header = tensors.checkpoint.headers.get(tensors.full(f"{name}.weight"))
        if header is None or header.shape != wanted:
            found = "is missing" if header is None else f"has shape {list(header.shape)}"
            raise CheckpointError(
                f"tensor {tensors.full(name)}.weight {found}; config.json asks for {list(wanted)}",
                "check num_attention_heads, the head sizes and the lora ranks in config.json",
            )
    vectors = {
        f"{KV_A}.bias": sizes.key_latent + sizes.rotated,
        f"{KV_NORM}.weight": sizes.key_latent,
    }
    vectors[f"{tensors.map.input_norm}.weight"] = width
    if sizes.query_latent is not None:
        vectors |= {f"{Q_A}.bias": sizes.query_latent, f"{Q_NORM}.weight": sizes.query_latent}
    for name, size in vectors.items():
        if tensors.has(name) or name.startswith((KV_NORM, Q_NORM)):
            tensors.check_vector(tensors.full(name), size)


def _read(tensors: LayerTensors, geometry: Geometry, sizes: Sizes) -> Loaded:
    heads = geometry.num_heads.value
    query = tensors.read(f"{Q if sizes.query_latent is None else Q_B}.weight")
    query = query.reshape(heads, geometry.head_dim.value, -1)
    key = tensors.read(f"{KV_B}.weight").reshape(heads, sizes.other + sizes.value, -1)
    key = key[:, : sizes.other]
    shared = tensors.read(f"{KV_A}.weight")
    bias = _optional(tensors, f"{KV_A}.bias")
    latent = None
    if sizes.query_latent is not None:
        latent = Latent(
            tensors.read(f"{Q_A}.weight"),
            _optional(tensors, f"{Q_A}.bias"),
            tensors.read(f"{Q_NORM}.weight"),
        )
    gain = _optional(tensors, f"{tensors.map.input_norm}.weight")
    cut = sizes.key_latent
    made = LatentProjections(
        query_latent=latent,
        query=np.concatenate([query[:, sizes.other :], query[:, : sizes.other]], axis=1),
        key_latent=Latent(
            shared[:cut],
            None if bias is None else bias[:cut],
            tensors.read(f"{KV_NORM}.weight"),
        ),
        key=key,
        shared_key=shared[cut:],
        shared_key_bias=None if bias is None else bias[cut:],
        input_gain=gain,
    )
    bad = not_finite(tensors.full(Q if latent is None else Q_B), query)
    bad += not_finite(tensors.full(KV_B), key)
    everyones = {KV_A: shared, f"{KV_A}.bias": bias, f"{KV_NORM}.weight": made.key_latent.gain}
    everyones[f"{tensors.map.input_norm}.weight"] = gain
    if latent is not None:
        everyones |= {Q_A: latent.weight, f"{Q_A}.bias": latent.bias, Q_NORM: latent.gain}
    for name, values in everyones.items():
        if values is not None and not np.isfinite(values).all():
            bad += not_finite(tensors.full(name), np.broadcast_to(values, (heads, *values.shape)))
    return Loaded(made, tuple(bad))


def _optional(tensors: LayerTensors, name: str) -> Any:
    return tensors.read(name) if tensors.has(name) else None
