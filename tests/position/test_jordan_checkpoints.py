"""Signs, order of channels and shear time, held by the logits of trained checkpoints."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from pjdiag.position.jordan import jordan_key, jordan_query

DATA = Path(__file__).parents[1] / "data"
TOKENS = torch.tensor([(31 * i * i + 7 * i) % 64 for i in range(200)])


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gain


def attention(h: torch.Tensor, state: dict[str, Any], layer: dict[str, Any], **change: Any):
    tokens, width = h.shape
    heads = len(layer["gamma"])
    head_dim = width // heads
    qkv = (h @ state["qkv.weight"].T).reshape(tokens, 3, heads, head_dim)
    q, k, v = qkv.permute(1, 2, 0, 3)
    options: dict[str, Any] = {
        "omega": torch.tensor(layer["omega"], dtype=torch.float64),
        "damping": torch.tensor(layer["gamma"], dtype=torch.float64),
        "shear": torch.tensor(layer["shear"], dtype=torch.float64),
        "order": layer["order"],
        "shear_scale": layer["shear_time_scale"],
        "shear_bound": 128.0 if layer["bounded_tau"] else None,
    }
    options |= change
    positions = torch.arange(tokens, dtype=torch.float64)
    scores = jordan_query(q, positions, **options) @ jordan_key(k, positions, **options).mT
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    weights = (scores / math.sqrt(head_dim)).masked_fill(~causal, -math.inf).softmax(-1)
    return (weights @ v).permute(1, 0, 2).reshape(tokens, width) @ state["proj.weight"].T


def logits(name: str, layers: list[dict[str, Any]], **change: Any) -> torch.Tensor:
    loaded = torch.load(DATA / f"{name}.pt", weights_only=True)["model"]
    state = {key: value.double() for key, value in loaded.items()}
    x = state["embed.weight"][TOKENS]
    for index, layer in enumerate(layers):
        block = {
            key.removeprefix(f"blocks.{index}."): value
            for key, value in state.items()
            if key.startswith(f"blocks.{index}.")
        }
        inside = {key.removeprefix("attn."): value for key, value in block.items()}
        x = x + attention(rms_norm(x, block["norm1.weight"]), inside, layer, **change)
        hidden = rms_norm(x, block["norm2.weight"]) @ block["ff.net.0.weight"].T
        x = x + torch.nn.functional.gelu(hidden) @ block["ff.net.2.weight"].T
    return rms_norm(x, state["norm.weight"]) @ state["embed.weight"].T


def worst_error(expected: dict[str, Any], found: torch.Tensor) -> float:
    """Largest error of the listed logits over the size of a position's logits."""
    errors = []
    for position, values in expected["logits_at"].items():
        row = found[int(position)]
        scale = row.abs().max()
        errors.append((row[:8] - torch.tensor(values["first8"])).abs().max() / scale)
    return float(max(errors))


@pytest.mark.parametrize("name", ["jordan_rope", "jordan_exact_m3"])
def test_logits(name: str) -> None:
    expected = json.loads((DATA / f"{name}.expected.json").read_text())
    found = logits(name, expected["layers"])
    assert worst_error(expected, found) < 1e-5
    for position, values in expected["logits_at"].items():
        assert int(found[int(position)].argmax()) == values["argmax"]
    # The test can tell: neither the sign of the shear nor that of the rotation is free.
    for name_of_change in ("shear", "omega"):
        layers = [
            layer | {name_of_change: (-torch.tensor(layer[name_of_change])).tolist()}
            for layer in expected["layers"]
        ]
        assert worst_error(expected, logits(name, layers)) > 1e-3
