"""Capturing attention: what is caught explains what the model went on with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.models.capture import captured_attention, observed_attention
from pjdiag.models.methods import METHODS
from pjdiag.models.running import RunningAttention
from tests.diagnostics.runnable import runnable

TOKENS = np.random.default_rng(1).integers(0, 256, 40)


@pytest.mark.parametrize("method", METHODS)
def test_the_logits_give_the_mixed_values(tmp_path: Path, method: str) -> None:
    model = load_model(load(runnable(tmp_path / "m.safetensors", method)))
    captured = captured_attention(model, TOKENS)
    assert len(captured) == 2
    for layer in captured:
        assert layer.logits.shape == (2, 40, 40)
        causal = np.where(np.tri(40, dtype=bool), layer.logits.astype(np.float64), -np.inf)
        weights = np.exp(causal - causal.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ layer.values
        np.testing.assert_allclose(mixed, layer.mixed, atol=2e-5 * np.abs(mixed).max())


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = load_model(load(runnable(tmp_path / "m.safetensors", "rope_affine")))
    tokens = torch.from_numpy(TOKENS)[None]
    before = model(tokens)
    captured_attention(model, TOKENS)
    assert not any(module._forward_hooks for module in model.modules())
    torch.testing.assert_close(model(tokens), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["full", "rope", "pope"])
def test_running_attention_is_what_is_captured(tmp_path: Path, method: str) -> None:
    model = load_model(load(runnable(tmp_path / "m.safetensors", method)))
    tokens = torch.from_numpy(TOKENS)[None]
    logits = [layer.logits for layer in captured_attention(model, TOKENS)]
    lags = (torch.arange(40)[:, None] - torch.arange(40)).clamp(min=0)
    seen_layers = []

    def observe(index: int, seen: RunningAttention) -> None:
        found = seen.scale * seen.queries[0] @ seen.keys[0].mT
        if seen.bias_by_lag is not None:
            found = found + seen.bias_by_lag[:, lags]
        np.testing.assert_allclose(found.numpy(), logits[index], rtol=1e-5, atol=1e-5)
        seen_layers.append((index, seen.bias_by_lag is not None))

    with torch.no_grad(), observed_attention(model, observe):
        model(tokens)
    assert seen_layers == [(0, method == "full"), (1, method == "full")]
    assert not any(module._forward_hooks for module in model.modules())
