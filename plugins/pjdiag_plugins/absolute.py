"""Decoders with learned absolute positions: GPT-2, GPT-BigCode, OPT and GPT-Neo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pjdiag.adapters import AbsolutePositions, Layer, SkippedLayer, Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.layer_tensors import Geometry
from pjdiag.adapters.schedule import FULL, SLIDING
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag_plugins.shared import Around, PlacedAdapter, absolute_part

GPT2 = ArchitectureMap(
    name="gpt2",
    model_types=("gpt2",),
    description="GPT-2: learned absolute positions, fused blocks stored [in, out]",
    prefixes=("transformer.", "model.", ""),
    layer="h.{layer}.",
    fused="attn.c_attn",
    transposed=True,
    input_norm="ln_1",
    num_layers=("n_layer", "num_hidden_layers"),
    num_heads=("n_head", "num_attention_heads"),
    num_kv_heads=(),
    head_dim=(),
    hidden_size=("n_embd", "hidden_size"),
    rope_layout="",
    defaults={"scale_attn_weights": True, "max_position_embeddings": 1024},
)
GPT_BIGCODE = replace(
    GPT2,
    name="gpt_bigcode",
    model_types=("gpt_bigcode",),
    description="GPT-BigCode: learned absolute positions, one key head or fused heads",
    transposed=False,
    defaults={"scale_attn_weights": True, "multi_query": True, "max_position_embeddings": 1024},
)
OPT = ArchitectureMap(
    name="opt",
    model_types=("opt",),
    description="OPT: learned absolute positions",
    prefixes=("model.decoder.", "decoder.", ""),
    input_norm="self_attn_layer_norm",
    num_kv_heads=(),
    head_dim=(),
    rope_layout="",
    defaults={"max_position_embeddings": 2048},
)
OPT_RESERVED = 2
"""Rows of OPT's table in front of position 0."""
GPT_NEO = ArchitectureMap(
    name="gpt_neo",
    model_types=("gpt_neo",),
    description="GPT-Neo: learned absolute positions, local windows in turn, logits not scaled",
    prefixes=("transformer.", "model.", ""),
    layer="h.{layer}.",
    query="attn.attention.q_proj",
    key="attn.attention.k_proj",
    input_norm="ln_1",
    num_layers=("num_layers", "num_hidden_layers"),
    num_heads=("num_heads", "num_attention_heads"),
    num_kv_heads=(),
    head_dim=(),
    rope_layout="",
    fixed_scale=1.0,
    window="window_size",
    window_layers="listed",
    defaults={"max_position_embeddings": 2048, "window_size": 256},
)
UNSCALED = 1.0


class AbsoluteAdapter(PlacedAdapter):
    """Adds the table of absolute positions to every layer."""

    tables: tuple[str, ...] = ("wpe.weight",)
    """Ends of the table's name."""
    lengths: tuple[str, ...] = ("n_positions", "max_position_embeddings")
    """Fields that state its length."""

    def reserved(self, fields: ConfigFields) -> int:
        """Rows of the table that belong to no position."""
        del fields
        return 0

    def stated(self, fields: ConfigFields) -> Sourced[int | None]:
        """Positions that the configuration states."""
        return fields.count(*self.lengths)

    def table(self, around: Around) -> AbsolutePositions:
        """The table of positions, as stored or as stated."""
        reserved = self.reserved(around.fields)
        return absolute_part(around.checkpoint, self.tables, self.stated(around.fields), reserved)

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer with its table."""
        return replace(layer, parts=(self.table(around),))


class GPT2Adapter(AbsoluteAdapter):
    """GPT-2 and models of its class."""

    def __init__(self) -> None:
        super().__init__(GPT2)

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer, scaled as the configuration asks."""
        placed = super().placed(layer, around)
        if isinstance(placed, SkippedLayer):
            return placed
        scale = _weights_scale(layer, around.fields)
        deeper = around.fields.flag("scale_attn_by_inverse_layer_idx")
        if deeper.value:
            scale = Sourced(
                scale.value / (layer.index + 1),
                f"{scale.source} / layer number ({deeper.source})",
            )
        return replace(placed, scale=scale)


class GPTBigCodeAdapter(AbsoluteAdapter):
    """GPT-BigCode: one key head for all queries, or heads as in GPT-NeoX."""

    def __init__(self, mapped: ArchitectureMap = GPT_BIGCODE) -> None:
        super().__init__(mapped)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Any:
        """Every layer, read in its layout."""
        shared = self.fields(checkpoint).flag("multi_query").value
        mapped = replace(self.map, fused_rows="blocks" if shared else "heads")
        chosen = GPTBigCodeAdapter(mapped)
        yield from super(GPTBigCodeAdapter, chosen).layers(checkpoint, train_length, eval_length)

    def geometry(self, fields: ConfigFields) -> Geometry:
        """One key head where ``multi_query`` is set."""
        made = super().geometry(fields)
        shared = fields.flag("multi_query")
        return replace(made, num_kv_heads=Sourced(1, shared.source)) if shared.value else made

    def placed(self, layer: Layer, around: Around) -> Layer | SkippedLayer:
        """The layer, scaled as the configuration asks."""
        placed = super().placed(layer, around)
        if isinstance(placed, SkippedLayer):
            return placed
        return replace(placed, scale=_weights_scale(layer, around.fields))


class OPTAdapter(AbsoluteAdapter):
    """OPT: the first two rows of its table belong to no position."""

    tables = ("embed_positions.weight",)

    def __init__(self) -> None:
        super().__init__(OPT)

    def reserved(self, fields: ConfigFields) -> int:
        """Two, in every OPT."""
        del fields
        return OPT_RESERVED


class GPTNeoAdapter(AbsoluteAdapter):
    """GPT-Neo: ``attention_types`` lists the local layers; nothing divides the logits."""

    def __init__(self) -> None:
        super().__init__(GPT_NEO)

    def fields(self, checkpoint: Checkpoint) -> ConfigFields:
        """The configuration with ``attention_types`` spelt out as ``layer_types``."""
        fields = super().fields(checkpoint)
        stated = fields.entries("attention_types").value
        types = [["global", "local"], 12] if stated is None else None
        kinds = _spelt_out([types] if types else stated)
        return replace(fields, config={**fields.config, "layer_types": kinds})


def _weights_scale(layer: Layer, fields: ConfigFields) -> Sourced[float]:
    scaled = fields.flag("scale_attn_weights")
    return layer.scale if scaled.value else Sourced(UNSCALED, scaled.source)


def _spelt_out(groups: Any) -> list[str]:
    """Layer types of ``[[kinds, times], ...]``. Raises CheckpointError for anything else.

    >>> _spelt_out([[["global", "local"], 2]])[:3]
    ['full_attention', 'sliding_attention', 'full_attention']
    """
    kinds = {"global": FULL, "local": SLIDING}
    try:
        return [kinds[kind] for names, times in groups for _ in range(times) for kind in names]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            'config: attention_types cannot be read; expected [[["global", "local"], 12]]',
            "correct config.json",
        ) from error
