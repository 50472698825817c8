"""Model folders of a few tensors, written without the model's class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import pjdiag
from pjdiag import adapters
from pjdiag.adapters import Reading


def write(folder: Path, config: Mapping[str, Any] | None, tensors: Mapping[str, Any]) -> Path:
    """A folder with ``config.json`` and ``model.safetensors``."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def read(
    folder: Path, config: Mapping[str, Any] | None, tensors: Mapping[str, Any], **named: Any
) -> Reading:
    """Our reading of such a folder."""
    return adapters.read(pjdiag.load(write(folder, config, tensors)), **named)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Random float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def numbered(rows: int, width: int) -> np.ndarray:
    """A projection whose row r answers r to an input of ones over ``width``."""
    return np.repeat(np.arange(rows, dtype=np.float32)[:, None], width, axis=1)


def rows_of(reading: Reading, layer: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of the queries and keys of a layer, head by head, of a numbered projection."""
    entry = reading.layers[layer]
    assert entry.projections is not None
    made = entry.projections().value
    width = made.query.weight.shape[-1]
    x = np.full((1, width), 1 / width)
    return tuple(  # type: ignore[return-value]
        [[round(float(value)) for value in head[0]] for head in side]
        for side in (made.queries(x), made.keys(x))
    )


BLOOM = {"model_type": "bloom", "hidden_size": 8, "n_layer": 2}


def bloom(heads: int, head_dim: int = 4, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and tensors of a BLOOM of two layers."""
    width = heads * head_dim
    config = {**BLOOM, "hidden_size": width, "n_head": heads, **fields}
    tensors = {
        f"h.{layer}.self_attention.query_key_value.weight": noise(3 * width, width, seed=layer)
        for layer in range(2)
    }
    return config, tensors


def mpt(heads: int, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and tensors of an MPT of one layer."""
    width = 4 * heads
    config = {"model_type": "mpt", "d_model": width, "n_heads": heads, "n_layers": 1, **fields}
    return config, {"transformer.blocks.0.attn.Wqkv.weight": noise(3 * width, width)}


def t5(
    buckets: np.ndarray, stacks: tuple[str, ...] = ("encoder", "decoder"), **fields: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and tensors of a T5 of two layers a stack, its queries and keys zero."""
    heads = buckets.shape[1]
    config = {
        "model_type": "t5",
        "d_model": 8,
        "d_kv": 4,
        "num_heads": heads,
        "num_layers": 2,
        "relative_attention_num_buckets": buckets.shape[0],
        **fields,
    }
    tensors: dict[str, Any] = {}
    for stack in stacks:
        for block in range(2):
            prefix = f"{stack}.block.{block}.layer.0.SelfAttention"
            for side in ("q", "k"):
                tensors[f"{prefix}.{side}.weight"] = np.zeros((4 * heads, 8), np.float32)
        tensors[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = buckets
    return config, tensors


def latent(**fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and tensors of a DeepSeek-V3 of one layer: 2 heads of 4 + 2 channels."""
    config = {
        "model_type": "deepseek_v3",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "q_lora_rank": None,
        "kv_lora_rank": 3,
        "qk_rope_head_dim": 2,
        "qk_nope_head_dim": 4,
        "v_head_dim": 5,
        "max_position_embeddings": 4096,
        **fields,
    }
    prefix = "model.layers.0.self_attn."
    tensors = {
        f"{prefix}q_proj.weight": numbered(12, 8),
        f"{prefix}kv_a_proj_with_mqa.weight": numbered(5, 8),
        f"{prefix}kv_a_layernorm.weight": np.ones(3, np.float32),
        f"{prefix}kv_b_proj.weight": numbered(18, 3),
        "model.layers.0.input_layernorm.weight": np.ones(8, np.float32),
    }
    return config, tensors
