"""Gemma 4: full layers with heads of another size, keys that several layers share."""

from __future__ import annotations

from dataclasses import replace

from pjdiag.adapters import Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.geometry import Geometry, checked
from pjdiag.adapters.layer_tensors import LayerTensors
from pjdiag.adapters.protocol import Layer
from pjdiag.adapters.rope_fields import RopeFields
from pjdiag.adapters.schedule import FULL, LayerKind
from pjdiag.checkpoint import Checkpoint

GEMMA4 = ArchitectureMap(
    name="gemma4",
    model_types=("gemma4_text", "gemma4"),
    description="Gemma 4, text: larger heads in full layers, keys shared between layers",
    fixed_scale=1.0,
    window_layers="listed",
    pattern="sliding_window_pattern",
    shared_kv="num_kv_shared_layers",
    partial_fields=("partial_rotary_factor",),
    rope_reader="parameters",
    rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1000000.0,
        },
    },
    defaults={
        "num_hidden_layers": 30,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_kv_shared_layers": 0,
        "hidden_size": 2304,
        "rms_norm_eps": 1e-6,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    },
)
UNIFIED = GEMMA4.with_values(
    {
        "name": "gemma4_unified",
        "model_types": ["gemma4_unified_text", "gemma4_unified"],
        "description": "Gemma 4, text of the unified model",
        "defaults": {"sliding_window": 1024, "max_position_embeddings": 262144},
    }
)
BOTH_WAYS = "all"
"""``use_bidirectional_attention`` of an encoder; with ``vision`` text stays causal."""


def halved(kind: LayerKind, more: int = 0) -> LayerKind:
    """The kind with the window that the class makes of the stated one where it looks both ways.

    ``more`` keys beyond half of it on each side; the token itself is counted.
    """
    window = kind.window
    if window.value is None:
        return kind
    note = f"{window.source} // 2 + {1 + more}, on each side"
    return replace(kind, window=Sourced(window.value // 2 + 1 + more, note))


class Gemma4Adapter(DecoderAdapter):
    """Full layers have ``global_head_dim`` and, where keys are values, their own key heads."""

    mapped = GEMMA4

    def __init__(self) -> None:
        super().__init__(self.mapped)

    def layer_geometry(
        self, geometry: Geometry, fields: ConfigFields, kind: LayerKind, index: int
    ) -> Geometry:
        """The geometry of one layer, in the spelling of either library version."""
        if "per_layer_config" in fields.config or kind.layer_type != FULL:
            return super().layer_geometry(geometry, fields, kind, index)
        dim, kv = fields.needed("global_head_dim"), fields.count("num_global_key_value_heads")
        if kv.value is None or not fields.flag("attention_k_eq_v").value:
            return replace(geometry, head_dim=dim)
        return checked(replace(geometry, head_dim=dim, num_kv_heads=Sourced(kv.value, kv.source)))

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
        if fields.get("use_bidirectional_attention").value == BOTH_WAYS:
            # Its mask includes the key at the distance of the window, which others leave out.
            kind = halved(kind, more=1)
        return super().layer(index, kind, geometry, fields, tensors, rope)

    def causal(self, checkpoint: Checkpoint, fields: ConfigFields) -> Sourced[bool]:
        """Whether queries see earlier keys alone, on text."""
        found = fields.get("use_bidirectional_attention")
        if found.value == BOTH_WAYS:
            return Sourced(False, found.source)
        return super().causal(checkpoint, fields)


class Gemma4UnifiedAdapter(Gemma4Adapter):
    """The unified model's text decoder: other defaults."""

    mapped = UNIFIED
