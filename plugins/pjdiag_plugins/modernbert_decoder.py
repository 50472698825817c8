"""The ModernBERT decoder: its window is half of what ``local_attention`` says."""

from __future__ import annotations

from dataclasses import replace

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.layer_tensors import LayerTensors
from pjdiag.adapters.schedule import LayerKind
from pjdiag.checkpoint import Checkpoint

MODERNBERT_DECODER = ArchitectureMap(
    name="modernbert_decoder",
    model_types=("modernbert-decoder",),
    description="ModernBERT decoder: windows and rope by layer type",
    query="attn.q_proj",
    key="attn.k_proj",
    query_norm="",
    key_norm="",
    input_norm="attn_norm",
    num_kv_heads=(),
    head_dim=(),
    window_layers="listed",
    pattern="global_attn_every_n_layers",
    full_layer="first",
    rope_reader="layered",
    scaled_layer_types=("sliding_attention", "full_attention"),
    theta_by_layer_type={"sliding_attention": 10000.0, "full_attention": 160000.0},
    theta_fields_by_layer_type={
        "sliding_attention": "local_rope_theta",
        "full_attention": "global_rope_theta",
    },
    defaults={
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "hidden_size": 768,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "max_position_embeddings": 8192,
    },
)


class ModernBertDecoderAdapter(DecoderAdapter):
    """``sliding_window`` where it is stated, else half of ``local_attention``."""

    def __init__(self) -> None:
        super().__init__(MODERNBERT_DECODER)

    def fields(self, checkpoint: Checkpoint) -> ConfigFields:
        """The configuration with the window that the class derives."""
        fields = super().fields(checkpoint)
        both_sides = fields.count("local_attention").value
        if both_sides is None or fields.config.get("sliding_window") is not None:
            return fields
        return replace(fields, config={**fields.config, "sliding_window": both_sides // 2})

    def tensors(
        self, checkpoint: Checkpoint, prefix: str, index: int, kind: LayerKind
    ) -> LayerTensors:
        """The layer's tensors; the first layer's attention has no norm in front of it."""
        found = super().tensors(checkpoint, prefix, index, kind)
        return found if index else replace(found, map=replace(found.map, input_norm=""))
