"""Native checkpoints made for tests, from raw values or from effective ones."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from pjdiag.models.config import ModelConfig
from pjdiag.position.parameters import parameter_shapes
from pjdiag.terms import Sector


def random_raw(
    sectors: Collection[Sector], heads: int, max_order: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Raw PJ-bias parameters of one layer."""
    shapes = parameter_shapes(sectors, heads, max_order)
    raw = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    raw["omega"] = np.abs(raw["omega"]) + 0.01
    return raw


def raw_from_effective(
    *,
    omega: Sequence[float],
    gates: Sequence[Sequence[float]],
    alpha: Sequence[Sequence[float]],
    zeta_re: Sequence[Sequence[float]],
    zeta_im: Sequence[Sequence[float]],
    damping: Sequence[float],
    slope: Sequence[float],
) -> dict[str, np.ndarray]:
    """Raw parameters of all three sectors with these effective values; FJ and LC share theirs."""
    raw: dict[str, np.ndarray] = {
        "omega": np.asarray(omega),
        "gate_logits": np.log(gates),
        "raw_fj_damping": np.asarray([math.log(math.expm1(c)) for c in damping]),
        "raw_affine_slope": np.asarray([math.log(math.expm1(s)) for s in slope]),
    }
    for sector in ("fj", "lc"):
        raw[f"{sector}_alpha_logits"] = np.log(alpha)
        raw[f"{sector}_zeta_re"] = np.asarray(zeta_re)
        raw[f"{sector}_zeta_im"] = np.asarray(zeta_im)
    return raw


def write_native(
    path: Path,
    layers: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    method: str = "full",
    embed_dim: int = 16,
    num_heads: int = 2,
    train_length: int = 128,
    max_order: int = 3,
    extra: Mapping[str, np.ndarray] | None = None,
    **settings: Any,
) -> Path:
    """A native checkpoint whose layers hold these raw PJ-bias parameters (dtype kept)."""
    config = ModelConfig(
        method=method,
        embed_dim=embed_dim,
        num_heads=num_heads,
        train_length=train_length,
        max_order=max_order,
        layers=max(len(layers), 1),
        **settings,
    )
    rng = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {}
    for index, raw in enumerate(layers or [{}]):
        block = f"blocks.{index}"
        tensors[f"{block}.attn.qkv.weight"] = rng.normal(size=(3 * embed_dim, embed_dim)).astype(
            np.float32
        )
        tensors[f"{block}.norm1.weight"] = np.ones(embed_dim, dtype=np.float32)
        for name, value in raw.items():
            tensors[f"{block}.attn.pj_bias.{name}"] = np.ascontiguousarray(value)
    tensors.update(extra or {})
    save_file(tensors, path, {"pjdiag": json.dumps(config.to_metadata())})
    return path


def full_native(path: Path, *, layers: int = 2, heads: int = 2, seed: int = 0) -> Path:
    """A native checkpoint of method ``full`` with random parameters."""
    rng = np.random.default_rng(seed)
    raw = [random_raw(tuple(Sector), heads, 3, rng) for _ in range(layers)]
    return write_native(path, raw, num_heads=heads, embed_dim=8 * heads)
