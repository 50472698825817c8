"""Tiny patched models whose PJ-bias is far from zero."""

from __future__ import annotations

from typing import Any

import torch

import pjdiag
from pjdiag.models.patching import patched_layers
from tests.models.huggingface.tiny import MODELS

PATCHABLE = ("llama", "qwen3", "gemma3", "gpt_neox", "gpt2")
"""RoPE with grouped keys, with q/k norms, with windows, fused and partial; learned positions."""
TRAIN_LENGTH = 16


def plain(name: str) -> Any:
    """A tiny random model of the real class, before the patch."""
    return MODELS[name].build()


def stirred(name: str, seed: int = 5, **settings: Any) -> Any:
    """A patched tiny model, its PJ-bias moved to random values."""
    model = pjdiag.patch(plain(name), train_length=TRAIN_LENGTH, **settings)
    stir(model, seed)
    return model


@torch.no_grad()
def stir(model: Any, seed: int = 5) -> None:
    """Moves every raw parameter of every PJ-bias."""
    generator = torch.Generator().manual_seed(seed)
    for _, bias in patched_layers(model):
        for parameter in bias.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
