"""Falcon in its three layouts, with RoPE or ALiBi."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np

from pjdiag.adapters import Layer, SkippedLayer, Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.layer_tensors import Geometry
from pjdiag.checkpoint import Checkpoint
from pjdiag.position.alibi import SlopeFamily, slopes
from pjdiag_plugins.shared import Around, PlacedAdapter, alibi_part
from pjdiag_plugins.stored_slopes import family_source

FALCON = ArchitectureMap(
    name="falcon",
    model_types=("falcon",),
    description="Falcon: heads, multi-query or groups of key heads; RoPE or ALiBi",
    prefixes=("transformer.", "model.", ""),
    layer="h.{layer}.",
    fused="self_attention.query_key_value",
    num_layers=("num_hidden_layers",),
    num_heads=("num_attention_heads",),
    num_kv_heads=("num_kv_heads",),
    hidden_size=("n_embed", "hidden_size"),
    head_dim=(),
    defaults={"rope_theta": 10000.0, "max_position_embeddings": 2048, "multi_query": True},
)
ROUNDED = (
    "Falcon computes its ALiBi in bfloat16: beyond position 256 the bias of a key is rounded by up "
    "to 1 part in 256, and is no exact function of the lag"
)
TWICE = (
    "transformers' eager Falcon adds its ALiBi twice (5.24); the slopes here are those of its "
    "default attention, which adds it once as in training"
)


class FalconAdapter(PlacedAdapter):
    """Chooses the layout that the configuration states."""

    def __init__(self, mapped: ArchitectureMap = FALCON) -> None:
        super().__init__(mapped)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer, read in its layout."""
        fields = self.fields(checkpoint)
        mapped = replace(
            self.map,
            fused_rows=_rows(fields),
            rope_layout="" if fields.flag("alibi").value else "half",
            input_norm=_input_norm(checkpoint),
        )
        chosen = FalconAdapter(mapped)
        yield from super(FalconAdapter, chosen).layers(checkpoint, train_length, eval_length)

    def geometry(self, fields: ConfigFields) -> Geometry:
        """One key head where the attention is multi-query, whatever ``num_kv_heads`` says."""
        rows = _rows(fields)
        if rows == "groups":
            return super().geometry(fields)
        unread = dict.fromkeys(self.map.num_kv_heads)
        made = super().geometry(replace(fields, config={**fields.config, **unread}))
        if rows == "heads":
            return made
        return replace(made, num_kv_heads=Sourced(1, fields.get("multi_query").source))

    def placed(self, layer: Layer, around: Around) -> Layer:
        """ALiBi where the configuration asks for it; else the layer rotates."""
        if not around.fields.flag("alibi").value:
            return layer
        heads, scale = layer.num_heads, layer.scale.value
        # The class rounds the slopes, adds the bias and multiplies the sum by the scale.
        rounded = np.asarray(slopes(heads.value)).astype(ml_dtypes.bfloat16).astype(np.float64)
        source = f"computed from {heads.value} heads ({heads.source}) in bfloat16, times the scale"
        stated = Sourced(
            tuple((scale * rounded).tolist()), family_source(SlopeFamily.STANDARD, source)
        )
        return replace(
            layer,
            parts=(alibi_part(stated, around.train_length),),
            warnings=(*layer.warnings, ROUNDED, TWICE),
        )


def _rows(fields: ConfigFields) -> str:
    if fields.flag("new_decoder_architecture").value:
        return "groups"
    # One key head for all queries: [queries | key | value].
    return "blocks" if fields.flag("multi_query").value else "heads"


def _input_norm(checkpoint: Checkpoint) -> str:
    """Falcon-40B norms the attention and the MLP apart."""
    apart = any(name.endswith(".0.ln_attn.weight") for name in checkpoint.headers)
    return "ln_attn" if apart else "input_layernorm"
