"""ALiBi decoders: BLOOM and MPT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pjdiag.adapters import Layer, SkippedLayer, Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.position.alibi import SlopeFamily, slopes
from pjdiag_plugins.shared import Around, PlacedAdapter, absolute_part, alibi_part
from pjdiag_plugins.stored_slopes import family_source

BLOOM = ArchitectureMap(
    name="bloom",
    model_types=("bloom",),
    description="BLOOM: ALiBi, fused heads",
    prefixes=("transformer.", ""),
    layer="h.{layer}.",
    fused="self_attention.query_key_value",
    fused_rows="heads",
    num_layers=("n_layer", "num_hidden_layers"),
    num_heads=("n_head", "num_attention_heads"),
    hidden_size=("n_embed", "hidden_size"),
    rope_layout="",
)
MPT = ArchitectureMap(
    name="mpt",
    model_types=("mpt",),
    description="MPT: ALiBi, fused blocks, clipped projections where the config asks for it",
    prefixes=("transformer.", "model.", ""),
    layer="blocks.{layer}.",
    fused="attn.Wqkv",
    input_norm="norm_1",
    num_layers=("n_layers", "num_hidden_layers"),
    num_heads=("n_heads", "num_attention_heads"),
    hidden_size=("d_model", "hidden_size"),
    scale_field="softmax_scale",
    clip="clip_qkv",
    rope_layout="",
    defaults={"max_position_embeddings": 2048, "alibi_bias_max": 8, "alibi": True},
)
DEFAULT_BIAS_MAX = 8.0


class BloomAdapter(PlacedAdapter):
    """BLOOM: the class computes the slopes from the number of heads alone."""

    def __init__(self) -> None:
        super().__init__(BLOOM)

    def placed(self, layer: Layer, around: Around) -> Layer:
        """The layer with its ALiBi."""
        return with_slopes(layer, around, f"h.{layer.index}.", Sourced(DEFAULT_BIAS_MAX, ""))


class MptAdapter(PlacedAdapter):
    """MPT: ``attn_config`` says what the attention does."""

    def __init__(self) -> None:
        super().__init__(MPT)

    def fields(self, checkpoint: Checkpoint) -> ConfigFields:
        """The configuration with ``attn_config`` beside the other fields."""
        fields = super().fields(checkpoint)
        inner = fields.config.get("attn_config") or {}
        if not isinstance(inner, Mapping):
            raise CheckpointError(
                "config: attn_config is no object; the attention cannot be read without",
                "correct config.json",
            )
        # No clipping is written as null or 0.
        clip = {"clip_qkv": inner.get("clip_qkv") or None}
        return replace(fields, config={**fields.config, **inner, **clip})

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer with ALiBi or learned positions, or what is not read."""
        fields = around.fields
        for name, what in (
            ("qk_ln", "norms of queries and keys"),
            ("prefix_lm", "attention that is not causal within a prefix"),
            ("rope", "rotary positions of a later code"),
        ):
            if fields.flag(name).value:
                return SkippedLayer(layer.index, f"config: {name}: {what}; this is not read")
        kind = fields.get("attn_type").value
        if kind not in (None, "multihead_attention"):
            return SkippedLayer(layer.index, f"config: attn_type {ascii(kind)[1:-1]} is not read")
        if fields.flag("alibi").value:
            most = fields.number("alibi_bias_max")
            return with_slopes(
                layer, around, f"blocks.{layer.index}.", Sourced(most.value or 8.0, most.source)
            )
        if f"{around.prefix}wpe.weight" not in around.checkpoint.headers:
            return SkippedLayer(
                layer.index,
                "config: alibi is false, and no position table (wpe) is stored: its positions "
                "are not known",
            )
        part = absolute_part(around.checkpoint, ("wpe.weight",), fields.count("max_seq_len"))
        ignored = "config: alibi is false; transformers' MptModel ignores that and adds ALiBi"
        return replace(layer, parts=(part,), warnings=(*layer.warnings, ignored))


def with_slopes(layer: Layer, around: Around, layer_name: str, bias_max: Sourced[float]) -> Layer:
    """The layer with the slopes that its class computes; stored ones are compared with them."""
    heads = layer.num_heads
    computed = slopes(heads.value, bias_max.value)
    source = f"computed from {heads.value} heads ({heads.source})"
    warnings = []
    if bias_max.value != DEFAULT_BIAS_MAX:
        source += f" and alibi_bias_max {bias_max.value:g} ({bias_max.source})"
        warnings.append(
            f"alibi_bias_max is {bias_max.value:g} and is honoured, as its training code does; "
            "transformers' MptModel ignores it and uses 8"
        )
    stored = around.slopes.find(f"{around.prefix}{layer_name}", heads.value)
    if stored is not None:
        warnings += [*stored.warnings, *_disagreement(stored.slopes, stored.family, computed)]
    stated = Sourced(computed, family_source(SlopeFamily.STANDARD, source))
    return replace(
        layer,
        parts=(alibi_part(stated, around.train_length),),
        warnings=(*layer.warnings, *warnings),
    )


def _disagreement(
    stored: Sourced[tuple[float, ...]], family: SlopeFamily, computed: tuple[float, ...]
) -> list[str]:
    pairs = zip(stored.value, computed, strict=True)
    if all(abs(value - wanted) <= 2.0**-7 * wanted for value, wanted in pairs):
        return []
    return [
        f"{stored.source} disagrees with the slopes that the class computes, which are used "
        f"({family.value}: {stored.value[0]:.6g} ..., computed: {computed[0]:.6g} ...)"
    ]
