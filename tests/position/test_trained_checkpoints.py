"""Signs, order of channels and shear time, held by the logits of trained checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pjdiag.position.alibi import slopes
from pjdiag.position.jordan import jordan_key, jordan_query
from pjdiag.position.rotary import inverse_frequencies, rotate_half, rotate_interleaved

DATA = Path(__file__).parents[1] / "data"
TOKENS = torch.tensor([(31 * i * i + 7 * i) % 64 for i in range(200)])
POSITIONS = torch.arange(200, dtype=torch.float64)
HEADS, HEAD_DIM = 4, 12
SCALE = 1 / math.sqrt(HEAD_DIM)

Scores = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Queries and keys ``[H, T, D]`` to logits ``[H, T, T]``."""


def jordan_scores(layer: dict[str, Any], q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    omega, damping, shear = (
        torch.tensor(layer[name], dtype=torch.float64) for name in ("omega", "gamma", "shear")
    )
    at = POSITIONS, omega, damping, shear, layer["order"]
    time: dict[str, Any] = {
        "shear_scale": layer["shear_time_scale"],
        "shear_bound": 128.0 if layer["bounded_tau"] else None,
    }
    return SCALE * jordan_query(q, *at, **time) @ jordan_key(k, *at, **time).mT


def rope_alibi_scores(
    rotate: Callable[..., torch.Tensor], sign: float, q: torch.Tensor, k: torch.Tensor
) -> torch.Tensor:
    inv_freq = inverse_frequencies(HEAD_DIM, 1e4, POSITIONS)
    angles = POSITIONS[:, None] * inv_freq[None, :]
    lags = POSITIONS[:, None] - POSITIONS[None, :]
    slope = torch.tensor(slopes(HEADS), dtype=torch.float64)
    bias = -sign * slope[:, None, None] * lags
    return SCALE * rotate(q, angles) @ rotate(k, angles).mT + bias


def rms_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gain


def logits(name: str, scores_of_layers: list[Scores]) -> torch.Tensor:
    """The small model of the Jordan research code, in float64."""
    loaded = torch.load(DATA / f"{name}.pt", weights_only=True)["model"]
    state = {key: value.double() for key, value in loaded.items()}
    count = len(TOKENS)
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    x = state["embed.weight"][TOKENS]
    for index, scores in enumerate(scores_of_layers):
        prefix = f"blocks.{index}."
        qkv = rms_norm(x, state[prefix + "norm1.weight"]) @ state[prefix + "attn.qkv.weight"].T
        q, k, v = qkv.reshape(count, 3, HEADS, HEAD_DIM).permute(1, 2, 0, 3)
        weights = scores(q, k).masked_fill(~causal, -math.inf).softmax(-1)
        mixed = (weights @ v).permute(1, 0, 2).reshape(count, HEADS * HEAD_DIM)
        x = x + mixed @ state[prefix + "attn.proj.weight"].T
        hidden = rms_norm(x, state[prefix + "norm2.weight"]) @ state[prefix + "ff.net.0.weight"].T
        x = x + torch.nn.functional.gelu(hidden) @ state[prefix + "ff.net.2.weight"].T
    return rms_norm(x, state["norm.weight"]) @ state["embed.weight"].T


def expected_of(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((DATA / f"{name}.expected.json").read_text())
    return expected


def worst_error(expected: dict[str, Any], found: torch.Tensor) -> float:
    """Largest error of the listed logits over the size of a position's logits."""
    errors = []
    for position, values in expected["logits_at"].items():
        row = found[int(position)]
        errors.append((row[:8] - torch.tensor(values["first8"])).abs().max() / row.abs().max())
    return float(max(errors))


@pytest.mark.parametrize("name", ["jordan_rope", "jordan_exact_m3"])
def test_jordan(name: str) -> None:
    expected = expected_of(name)
    layers = expected["layers"]
    found = logits(name, [partial(jordan_scores, layer) for layer in layers])
    assert worst_error(expected, found) < 1e-5
    for position, values in expected["logits_at"].items():
        assert int(found[int(position)].argmax()) == values["argmax"]


@pytest.mark.parametrize("name", ["jordan_rope", "jordan_exact_m3"])
@pytest.mark.parametrize("parameter", ["shear", "omega"])
def test_the_logits_tell_the_signs_apart(name: str, parameter: str) -> None:
    expected = expected_of(name)
    layers = [
        layer | {parameter: (-torch.tensor(layer[parameter])).tolist()}
        for layer in expected["layers"]
    ]
    assert worst_error(expected, logits(name, [partial(jordan_scores, y) for y in layers])) > 1e-3


def test_interleaved_rope_with_alibi() -> None:
    expected = expected_of("rope_alibi")
    found = logits("rope_alibi", [partial(rope_alibi_scores, rotate_interleaved, 1.0)] * 2)
    assert worst_error(expected, found) < 1e-5
    for position, values in expected["logits_at"].items():
        assert int(found[int(position)].argmax()) == values["argmax"]
    for rotate, sign in ((rotate_half, 1.0), (rotate_interleaved, -1.0)):
        wrong = logits("rope_alibi", [partial(rope_alibi_scores, rotate, sign)] * 2)
        assert worst_error(expected, wrong) > 1e-3
