"""Complete native checkpoints that run, with parameters away from their tame start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pjdiag.lab.native import save_model
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

CONTENT_SCALE = 8.0
"""On the start's small weights: attention logits then differ by several units."""


def runnable(path: Path, method: str = "full", seed: int = 0, **settings: Any) -> Path:
    """A checkpoint of an untrained model; its position parameters are spread at random."""
    sizes = {"embed_dim": 48, "num_heads": 2, "train_length": 64, "layers": 2, "max_order": 2}
    model = CausalLM(ModelConfig(method=method, **{**sizes, **settings}), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "pj_bias" in name or "positioner" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
            elif parameter.ndim > 1:
                parameter.mul_(CONTENT_SCALE)
    save_model(model, path)
    return path
