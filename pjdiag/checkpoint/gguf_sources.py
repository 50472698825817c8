"""Where a value of a GGUF file comes from: its own key, not the field it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pjdiag.checkpoint.gguf_config import ARCHITECTURE_FIELDS, SCALING_FIELDS
from pjdiag.checkpoint.source import Checkpoint

OTHERS = {
    "layer_types": ("attention.sliding_window_pattern",),
    "partial_rotary_factor": ("rope.dimension_count",),
    "is_causal": ("attention.causal",),
    "rope_type": ("rope.scaling.type", "rope.scale_linear"),
}
"""Fields that are made of keys with another meaning."""
KEYS: dict[str, tuple[str, ...]] = {
    **{field: (key,) for key, field in ARCHITECTURE_FIELDS.items()},
    **{field: (f"rope.scaling.{key}",) for key, field in SCALING_FIELDS.items()},
    **OTHERS,
}
FACTORS = {
    *("rope_scaling", "rope_type", "short_factor", "long_factor"),
    *("low_freq_factor", "high_freq_factor"),
    *SCALING_FIELDS.values(),
}
"""Fields that follow from ``rope_freqs`` or ``rope_factors_*`` where no key states them."""
FIELD = re.compile(r"config: (?:[a-z_]+\.)*([a-z_0-9]+)")


def own_source(source: str, checkpoint: Checkpoint) -> str:
    """``source`` in the terms of the file: ``config: FIELD`` of a GGUF file is its key.

    A field that the file has no key for follows from its architecture. Other files say what they
    said.
    """
    metadata = checkpoint.container.get("gguf")
    if checkpoint.format != "gguf" or not isinstance(metadata, Mapping):
        return source
    return FIELD.sub(lambda found: _key(found[1], metadata), source)


def _key(field: str, metadata: Mapping[str, Any]) -> str:
    """The key of ``field``.

    >>> _key("rope_theta", {"general.architecture": "llama", "llama.rope.freq_base": 1e5})
    'gguf: llama.rope.freq_base'
    >>> _key("query_pre_attn_scalar", {"general.architecture": "gemma3"})
    'gguf architecture gemma3: query_pre_attn_scalar'
    >>> _key("factor", {"general.architecture": "llama"})
    'gguf: tensors of rope factors'
    """
    architecture = metadata.get("general.architecture")
    stated = [f"{architecture}.{key}" for key in KEYS.get(field, ())]
    for key in stated:
        if key in metadata:
            return f"gguf: {key}"
    if field in FACTORS:
        return "gguf: tensors of rope factors"
    return f"gguf architecture {architecture}: {field}"
