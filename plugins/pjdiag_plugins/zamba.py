"""Zamba: a few attention blocks that many layers share, over twice the width."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pjdiag.adapters import Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.geometry import Geometry
from pjdiag.adapters.layer_tensors import LayerTensors
from pjdiag.adapters.schedule import LayerKind
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError

ZAMBA = ArchitectureMap(
    name="zamba",
    model_types=("zamba",),
    description="Zamba: one attention block that layers share, without positions",
    query="shared_transf.self_attn.q_proj",
    key="shared_transf.self_attn.k_proj",
    input_norm="shared_transf.input_layernorm",
    hidden_size=("attention_hidden_size",),
    head_dim=("attention_head_dim",),
    query_norm="",
    key_norm="",
    rope_layout="",
    layer_types=("layer_types", "layers_block_type"),
    layer_types_needed=True,
    defaults={
        "num_hidden_layers": 76,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "hidden_size": 3712,
        "max_position_embeddings": 4096,
    },
)
ZAMBA2 = replace(
    ZAMBA,
    name="zamba2",
    model_types=("zamba2",),
    description="Zamba2: attention blocks that layers share, rotation and adapters where asked for",
    query="shared_transformer.self_attn.q_proj",
    key="shared_transformer.self_attn.k_proj",
    input_norm="shared_transformer.input_layernorm",
    rope_layout="half",
    rope_switch="use_mem_rope",
    defaults={
        "num_hidden_layers": 54,
        "num_attention_heads": 32,
        "hidden_size": 2560,
        "num_mem_blocks": 1,
        "use_mem_rope": False,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
    },
)


HYBRID = "hybrid"


@dataclass(frozen=True)
class AdaptedTensors(LayerTensors):
    """A shared block as one layer uses it: with a product of two small matrices added."""

    place: int = 0
    """The layer's place among those with attention."""

    def projection(self, kind: str, geometry: Geometry, *, is_query: bool) -> Any:
        """``[rows, E]`` of the weights or ``[rows]`` of the bias; None where there is none."""
        values = super().projection(kind, geometry, is_query=is_query)
        block = self.names(is_query).rsplit(".", 1)[0]
        name = f"{block}.linear_{'q' if is_query else 'k'}_adapter_list.{self.place}"
        if kind != "weight" or not self.has(f"{name}.0.weight"):
            return values
        added = self.read(f"{name}.1.weight") @ self.read(f"{name}.0.weight")
        if added.shape != values.shape:
            raise CheckpointError(
                f"tensors {self.full(name)} make {list(added.shape)}; expected "
                f"{list(values.shape)}, as the projection that they are added to",
                "check num_key_value_heads in config.json",
            )
        return values + added


class ZambaAdapter(DecoderAdapter):
    """The attention reads the layer's input beside the token embeddings: twice the width."""

    mapped = ZAMBA

    def __init__(self) -> None:
        super().__init__(self.mapped)

    def fields(self, checkpoint: Checkpoint) -> ConfigFields:
        """The configuration with the sizes that the class derives."""
        fields = super().fields(checkpoint)
        width = 2 * fields.needed("hidden_size").value
        heads = fields.needed("num_attention_heads").value
        derived = {"attention_hidden_size": width, "attention_head_dim": width // heads}
        return replace(fields, defaults={**fields.defaults, **derived})

    def tensors(
        self, checkpoint: Checkpoint, prefix: str, index: int, kind: LayerKind
    ) -> LayerTensors:
        """The layer's tensors; a shared block is stored in the first layer that uses it."""
        own = super().tensors(checkpoint, prefix, index, kind)
        if kind.other:
            return own
        types = self.fields(checkpoint).entries(*self.map.layer_types).value or []
        hybrids = [at for at, entry in enumerate(types) if entry == HYBRID]
        blocks = [super(ZambaAdapter, self).tensors(checkpoint, prefix, at, kind) for at in hybrids]
        blocks = [block for block in blocks if block.has(f"{self.map.query}.weight")]
        place = hybrids.index(index)
        block = blocks[place % len(blocks)] if blocks else own
        return AdaptedTensors(checkpoint, block.prefix, block.map, place=place)

    def scale(self, fields: ConfigFields, geometry: Geometry) -> Sourced[float]:  # noqa: ARG002
        """The factor on the logits: heads are twice as wide as usual."""
        return Sourced((geometry.head_dim.value / 2) ** -0.5, "architecture: (head_dim/2) ** -0.5")


class Zamba2Adapter(ZambaAdapter):
    """Zamba2: blocks take turns, and may rotate."""

    mapped = ZAMBA2
