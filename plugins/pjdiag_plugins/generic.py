"""The fallback: an architecture that no other adapter knows, and what it does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pjdiag.adapters import Layer, Match, MultiplicativeSpectrum, SkippedLayer, Sourced
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.protocol import UNKNOWN, Part
from pjdiag.adapters.registry import WRITE_A_MAP, registrations, unknown_architecture
from pjdiag.adapters.rope_fields import rope_fields, text_config, train_length
from pjdiag.adapters.schedule import ATTENTION, FULL
from pjdiag.checkpoint import Checkpoint
from pjdiag.checkpoint.text import shown
from pjdiag.terms import Mechanism
from pjdiag_plugins.attention_modules import Found, attention_modules, layer_indices
from pjdiag_plugins.position_tables import PositionTable, position_table
from pjdiag_plugins.shared import alibi_part, unknown_part
from pjdiag_plugins.stored_slopes import SlopeStore

HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead", "attention_heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
)
HEAD_DIM = ("head_dim", "d_kv", "kv_channels", "head_size")
WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
THETA = ("rope_theta", "rotary_emb_base", "rope_base")
SETTINGS = ("rope_parameters", "rope_scaling")
GENERIC = "generic reading, which states only what the file tells: {}; " + WRITE_A_MAP


@dataclass(frozen=True)
class Shared:
    """What all layers of a checkpoint have in common."""

    checkpoint: Checkpoint
    fields: ConfigFields
    train_length: int | None
    """L in tokens."""
    slopes: SlopeStore
    table: PositionTable | None
    unknown: str
    """Why no other adapter reads it."""


class GenericAdapter:
    """Per-layer tensors that look like queries and keys; nothing else is taken for granted."""

    name = "generic"
    description = "fallback: any per-layer query and key tensors; says what it cannot determine"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """Any such tensors, below every other adapter."""
        found = attention_modules(checkpoint)
        if not found:
            return None
        model_type = text_config(checkpoint.config).get("model_type")
        known = f"model_type {model_type!a}" if model_type else "no model_type"
        return Match(5, f"generic: {len(found)} layers of query and key tensors; {known}")

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from the configuration's position fields."""
        return train_length(text_config(checkpoint.config))

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer, with what could not be determined."""
        del eval_length
        config = text_config(checkpoint.config)
        fields = ConfigFields(config, {})
        found = attention_modules(checkpoint)
        width = fields.count(*WIDTH).value
        shared = Shared(
            checkpoint,
            fields,
            train_length,
            SlopeStore(checkpoint),
            position_table(checkpoint, width) if width is not None else None,
            unknown_architecture(checkpoint.config, registrations()),
        )
        for index, module in zip(layer_indices(found), found, strict=True):
            yield _layer(shared, index, module)


def _layer(shared: Shared, index: int, module: Found) -> Layer | SkippedLayer:
    fields = shared.fields
    kinds = fields.entries("layer_types").value or []
    kind = str(kinds[index]) if index < len(kinds) else FULL
    if kind not in ATTENTION:
        return SkippedLayer(index, f"layer type {shown(kind)[1:-1]}: no softmax attention")
    if module.latent:
        return SkippedLayer(index, f"{module.path}: latent attention of an unknown class")
    heads, sizes = fields.count(*HEADS), _sizes(shared.checkpoint, fields, module)
    if isinstance(sizes, str):
        return SkippedLayer(index, f"{module.path or module.query}: {sizes}")
    head_dim, kv_heads = sizes
    unknown: Any = UNKNOWN
    missing = ["softmax scale", "mask", "windows", "norms of queries and keys"]
    parts, told = _parts(shared, module, heads, head_dim, missing)
    return Layer(
        index=index,
        num_heads=heads,  # type: ignore[arg-type]
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        scale=unknown,
        window=unknown,
        parts=parts,
        causal=unknown,
        softcap=unknown,
        qk_norm=unknown,
        sinks=unknown,
        warnings=(GENERIC.format(shared.unknown), *told, f"not determined: {', '.join(missing)}"),
    )


def _sizes(
    checkpoint: Checkpoint, fields: ConfigFields, module: Found
) -> tuple[Sourced[int], Sourced[int]] | str:
    """Head size and key heads, or why they cannot be found."""
    heads = fields.count(*HEADS)
    shape = checkpoint.headers[module.query].shape
    if heads.value is None:
        return (
            f"config states no number of heads, and {module.query} {list(shape)} does not tell it"
        )
    if len(shape) != 2:
        return f"{module.query} has shape {list(shape)}; expected two axes"
    stated, kv = fields.count(*HEAD_DIM), fields.count(*KV_HEADS)
    if module.key is None:
        return _fused_sizes(fields, shape, heads, stated, kv)
    rows, remainder = divmod(shape[0], heads.value)
    if remainder or (stated.value is not None and stated.value != rows):
        return (
            f"{module.query} {list(shape)} does not hold {heads.value} heads ({heads.source})"
            + (f" of {stated.value} channels" if stated.value else "")
        )
    key_rows = checkpoint.headers[module.key].shape[0]
    if key_rows % rows or heads.value % (key_rows // rows or 1):
        return f"{module.key} has {key_rows} rows; no whole number of heads of {rows} channels"
    return (
        Sourced(rows, f"rows of {module.query} / heads"),
        Sourced(key_rows // rows, f"rows of {module.key} / head_dim"),
    )


def _fused_sizes(
    fields: ConfigFields,
    shape: tuple[int, ...],
    heads: Sourced[int | None],
    stated: Sourced[int | None],
    kv: Sourced[int | None],
) -> tuple[Sourced[int], Sourced[int]] | str:
    """Sizes from the config, where the fused projection has a side of that size."""
    count = heads.value or 1
    hidden = fields.count(*WIDTH).value
    if stated.value is None and (hidden is None or hidden % count):
        return "config states no head_dim, and no hidden_size that the heads divide"
    dim = stated if stated.value is not None else Sourced((hidden or 0) // count, "hidden / heads")
    key_heads = kv if kv.value is not None else Sourced(count, "as many as query heads fit")
    wanted = (count + 2 * (key_heads.value or 1)) * (dim.value or 1)
    if wanted not in shape:
        return (
            f"the fused projection {list(shape)} does not hold {count} query and "
            f"{key_heads.value} key heads of {dim.value} channels"
        )
    return Sourced(dim.value or 0, dim.source), Sourced(key_heads.value or 0, key_heads.source)


def _parts(
    shared: Shared,
    module: Found,
    heads: Sourced[int | None],
    head_dim: Sourced[int],
    missing: list[str],
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """What the file tells of positions; else one part of unknown mechanism."""
    parts: list[Part] = []
    told: list[str] = []
    config = shared.fields.config
    if _states_rope(config):
        parts.append(_rope_part(config, head_dim.value, module))
        missing += ["pairing of the rotated channels", "channels that rotate"]
    stored = shared.slopes.find(module.prefix, heads.value or 1)
    if stored is not None:
        parts.append(alibi_part(stored.slopes, shared.train_length, stored.bad))
        told += stored.warnings
    if shared.table is not None:
        parts.append(shared.table.part())
    if parts:
        return tuple(parts), tuple(told)
    reason = "generic: the config states no rope, and no slopes or positions are stored"
    missing.append("position mechanism")
    return (unknown_part(reason),), tuple(told)


def _states_rope(config: Mapping[str, Any]) -> bool:
    if any(config.get(name) is not None for name in THETA):
        return True
    return any(
        isinstance(config.get(name), Mapping)
        and any(key in config[name] for key in ("rope_theta", "rope_type", "type"))
        for name in SETTINGS
    )


def _rope_part(config: Mapping[str, Any], head_dim: int, module: Found) -> MultiplicativeSpectrum:
    """RoPE of the stated base; which channels it turns, and how they pair, is not known."""
    rope = rope_fields(config, head_dim)
    unknown: Any = UNKNOWN
    fused = ", nor the rows of the fused projection" if module.key is None else ""
    return MultiplicativeSpectrum(
        mechanism=Mechanism.ROPE,
        inv_freq=unknown,
        rotary_dim=unknown,
        rope_layout=unknown,
        rope_theta=rope.theta,
        rope_type=rope.rope_type,
        attention_factor=unknown,
        unread_reason=f"generic: the pairing of the rotated channels is not known{fused}",
    )
