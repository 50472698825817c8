"""Gemma 3: as Gemma 2 without a cap on the logits, and an encoder's window is halved."""

from __future__ import annotations

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.geometry import Geometry
from pjdiag.adapters.layer_tensors import LayerTensors
from pjdiag.adapters.protocol import Layer
from pjdiag.adapters.rope_fields import RopeFields
from pjdiag.adapters.schedule import LayerKind
from pjdiag_plugins.gemma4 import halved

GEMMA3 = ArchitectureMap(
    name="gemma3",
    model_types=("gemma3_text", "gemma3"),
    description="Gemma 3, text: norms of queries and keys, one theta for windows and one for full "
    "layers",
    notes_in={
        "gemma3": "the tokens of an image see each other both ways; read as for text alone, "
        "which is causal"
    },
    norm_gain="one_plus_weight",
    rope_reader="layered",
    theta_by_layer_type={"sliding_attention": 10000.0, "full_attention": 1000000.0},
    theta_fields_by_layer_type={
        "sliding_attention": "rope_local_base_freq",
        "full_attention": "rope_theta",
    },
    scale_field="query_pre_attn_scalar",
    scale_power=-0.5,
    window_layers="listed",
    pattern="sliding_window_pattern",
    bidirectional="use_bidirectional_attention",
    defaults={
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_size": 2304,
        "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "use_bidirectional_attention": False,
        "max_position_embeddings": 131072,
        "rope_theta": None,
    },
)


class Gemma3Adapter(DecoderAdapter):
    """The class halves the window where queries look both ways."""

    def __init__(self) -> None:
        super().__init__(GEMMA3)

    def layer(
        self,
        index: int,
        kind: LayerKind,
        geometry: Geometry,
        fields: ConfigFields,
        tensors: LayerTensors,
        rope: RopeFields | None,
    ) -> Layer:
        """One layer; an encoder's window is half of the stated one, on each side."""
        if fields.flag("use_bidirectional_attention").value:
            kind = halved(kind)
        return super().layer(index, kind, geometry, fields, tensors, rope)
