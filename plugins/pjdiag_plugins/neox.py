"""GPT-J and CodeGen: part of each head rotates, in interleaved pairs. GPT-NeoX is a map."""

from __future__ import annotations

from dataclasses import replace

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.layer_tensors import Geometry
from pjdiag.adapters.rope_fields import RopeFields
from pjdiag.adapters.schedule import LayerKind
from pjdiag.errors import CheckpointError

GPTJ = ArchitectureMap(
    name="gptj",
    model_types=("gptj",),
    description="GPT-J: partial rotation of interleaved pairs, its base fixed in the class",
    prefixes=("transformer.", "model.", ""),
    layer="h.{layer}.",
    query="attn.q_proj",
    key="attn.k_proj",
    input_norm="ln_1",
    num_layers=("n_layer", "num_hidden_layers"),
    num_heads=("n_head", "num_attention_heads"),
    num_kv_heads=(),
    head_dim=(),
    hidden_size=("n_embd", "hidden_size"),
    rope_layout="interleaved",
    # No field is read: the base is a constant of the class.
    theta_fields=(),
    rotary_dim_fields=("rotary_dim",),
    defaults={"rope_theta": 10000.0, "max_position_embeddings": 2048},
)
CODEGEN = replace(
    GPTJ,
    name="codegen",
    model_types=("codegen",),
    description="CodeGen: four blocks of queries, values and keys; rotation as GPT-J's",
    fused="attn.qkv_proj",
    fused_rows="quarters",
)
ROTARY_DIM = 64
"""Channels that rotate where the configuration states no ``rotary_dim``."""


class GPTJAdapter(DecoderAdapter):
    """GPT-J: ``rotary_dim`` counts channels, whatever the size of a head."""

    def __init__(self, mapped: ArchitectureMap = GPTJ) -> None:
        super().__init__(mapped)

    def rope(
        self, fields: ConfigFields, geometry: Geometry, kind: LayerKind, length: int | None
    ) -> RopeFields | None:
        """Frequencies of the rotated channels. Raises CheckpointError for a null rotary_dim."""
        if fields.config.get("rotary_dim") is not None:
            return super().rope(fields, geometry, kind, length)
        if "rotary_dim" in fields.config:
            raise CheckpointError(
                "config: rotary_dim is null; its class then has frequencies for the whole width, "
                "which fit no head",
                "state rotary_dim in config.json",
            )
        share = ROTARY_DIM / geometry.head_dim.value
        usual = GPTJAdapter(replace(self.map, partial_rotary_factor=share))
        return super(GPTJAdapter, usual).rope(fields, geometry, kind, length)


class CodeGenAdapter(GPTJAdapter):
    """CodeGen: the fused projection holds a quarter of the heads after another."""

    def __init__(self) -> None:
        super().__init__(CODEGEN)
