"""Small folders as transformers saves them, written without it: for what is about the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}


def projections(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors of a Llama's attention and its input norms."""
    random = np.random.default_rng(seed)
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv = config.get("num_key_value_heads") or heads
    dim = config.get("head_dim") or width // heads
    made = {}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        for name, rows in (("q", heads), ("k", kv), ("v", kv)):
            weight = random.normal(size=(rows * dim, width)) / width**0.5
            made[f"{layer}self_attn.{name}_proj.weight"] = weight.astype(np.float32)
        made[f"{layer}input_layernorm.weight"] = np.ones(width, dtype=np.float32)
    return made


def write(
    folder: Path,
    changes: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """A folder with ``LLAMA`` changed, and its tensors; a field set to ``...`` is left out."""
    config = {**LLAMA, **(changes or {})}
    config = {name: value for name, value in config.items() if value is not ...}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(projections(LLAMA) if tensors is None else tensors, folder / "model.safetensors")
    return folder
