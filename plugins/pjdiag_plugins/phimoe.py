"""Phi-3.5-MoE: long rope whose factor on cos and sin is stated for each length."""

from __future__ import annotations

from dataclasses import replace

from pjdiag.adapters import Sourced
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.geometry import Geometry
from pjdiag.adapters.rope_config import CONTAINERS, ORIGINAL_LENGTH, read_number
from pjdiag.adapters.rope_fields import RopeFields
from pjdiag.adapters.schedule import LayerKind

PHIMOE = ArchitectureMap(
    name="phimoe",
    model_types=("phimoe",),
    description="Phi-3.5-MoE: long rope with its own factors on cos and sin",
    window_layers="all",
    query_norm="",
    key_norm="",
    defaults={
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
    },
)
SHORT_FREQUENCIES = (
    "beyond the original length the long factors are used, as the code it was trained with does; "
    "the class of transformers keeps the short ones"
)


class PhimoeAdapter(DecoderAdapter):
    """``short_mscale`` up to the original length, ``long_mscale`` beyond."""

    def __init__(self) -> None:
        super().__init__(PHIMOE)

    def rope(
        self, fields: ConfigFields, geometry: Geometry, kind: LayerKind, length: int | None
    ) -> RopeFields | None:
        """Frequencies, and the stated factor on cos and sin."""
        rope = super().rope(fields, geometry, kind, length)
        if rope is None or rope.rope_type.value != "longrope":
            return rope
        place, settings = next(
            (f"config: {name}", fields.config[name])
            for name in CONTAINERS
            if fields.config.get(name)
        )
        original = settings.get(ORIGINAL_LENGTH) or fields.config.get(ORIGINAL_LENGTH)
        is_long = bool(length and original and length > original)
        name = "long_mscale" if is_long else "short_mscale"
        if settings.get(name) is not None:
            factor = Sourced(read_number(settings[name], f"{place}.{name}"), f"{place}.{name}")
            rope = replace(rope, attention_factor=factor)
        return replace(rope, warnings=(*rope.warnings, SHORT_FREQUENCIES)) if is_long else rope
