"""Small torch files as the Jordan-RoPE research code writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

HEADS, HEAD_DIM, LAYERS, CONTEXT = 3, 24, 2, 16
WIDTH = HEADS * HEAD_DIM
CONFIG: dict[str, Any] = {
    "vocab_size": 11,
    "d_model": WIDTH,
    "n_heads": HEADS,
    "n_layers": LAYERS,
    "mlp_ratio": 2,
    "dropout": 0.0,
    "theta": 10000.0,
    "gamma_min": 0.01,
    "init_gamma": 0.01,
    "eta_max": 0.1,
    "init_eta": 0.0,
    "train_context": CONTEXT,
    "bounded_tau": True,
    "shear_time_scale": 1.0,
    "max_exponent": 30.0,
}


def positioner(method: str) -> dict[str, tuple[int, ...]]:
    """The raw parameters that a method stores."""
    name = method.removesuffix("_alibi")
    if name in ("rope", "nope", "alibi"):
        return {}
    if name == "damped_rope":
        return {"raw_gamma": (HEADS, 6)}
    if name == "jordan_no_gamma":
        return {"raw_eta": (HEADS, 6)}
    if name == "direct_sum":
        return {f"real_jordan.{raw}": (HEADS, 3) for raw in ("raw_gamma", "raw_eta")}
    order = next((int(part[1:]) for part in name.split("_") if part in ("m3", "m4")), 2)
    blocks = HEAD_DIM // (2 * order)
    if "jetmix" in name:
        shapes = {"raw_gamma": (HEADS, blocks), "raw_jet_coefficients": (order - 1, HEADS, blocks)}
        return shapes | ({"raw_jet_base": (HEADS, blocks)} if "full" in name else {})
    return dict.fromkeys(("raw_gamma", "raw_eta"), (HEADS, blocks))


def state(method: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tensors of a model with this position method."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    made = {"embed.weight": random(11, WIDTH), "norm.weight": torch.ones(WIDTH)}
    for index in range(LAYERS):
        block = f"blocks.{index}"
        made |= {
            f"{block}.norm1.weight": 1 + 0.3 * random(WIDTH),
            f"{block}.attn.qkv.weight": random(3 * WIDTH, WIDTH) / WIDTH**0.5,
            f"{block}.attn.proj.weight": random(WIDTH, WIDTH) / WIDTH**0.5,
            f"{block}.norm2.weight": torch.ones(WIDTH),
            f"{block}.ff.net.0.weight": random(2 * WIDTH, WIDTH) / WIDTH**0.5,
            f"{block}.ff.net.2.weight": random(WIDTH, 2 * WIDTH) / WIDTH**0.5,
        }
        for name, shape in positioner(method).items():
            # raw_gamma: a damping of about 0.0025 per token
            start = -6 if name.endswith("raw_gamma") else 0
            made[f"{block}.attn.positioner.{name}"] = random(*shape) + start
    return made | {"lm_head.weight": made["embed.weight"]}


def write(path: Path, method: str, **changes: Any) -> Path:
    """Saves ``{model, config}`` of this method; ``changes`` go into the config, None removes."""
    config = CONFIG | {"position_method": method} | changes
    config = {name: value for name, value in config.items() if value is not None}
    torch.save({"model": state(method), "config": config}, path)
    return path
