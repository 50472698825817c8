"""The recipe of the patched sample: a small Llama, trained, patched and trained on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from pjdiag.terms import Sector

FINAL_RATE = 0.05
"""Rate at the end of a phase, as a share of its peak."""


@dataclass(frozen=True)
class Phase:
    """One stretch of training with a learning rate of its own."""

    steps: int
    learning_rate: float
    """Peak rate of the weights."""
    position_learning_rate: float = 0.0
    """Peak rate of the PJ-bias, which has no weight decay."""
    warmup_steps: int = 50

    def learning_rate_factor(self, step: int) -> float:
        """Share of the peak rates at ``step`` (from 1): linear warm-up, then half a cosine.

        >>> Phase(steps=100, learning_rate=1e-3, warmup_steps=10).learning_rate_factor(10)
        1.0
        """
        if step <= self.warmup_steps:
            return step / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class PatchedRecipe:
    """Model, tokenizer and the two phases. Sizes are those of transformers' ``LlamaConfig``."""

    vocab_size: int = 512
    """Byte-level BPE, made from the training works."""
    hidden_size: int = 96
    intermediate_size: int = 256
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    train_length: int = 192
    """L in tokens: windows, ``max_position_embeddings``, and the L of the PJ-bias."""
    sectors: tuple[str, ...] = tuple(sector.value for sector in Sector)
    max_order: int = 3
    base: Phase = field(default_factory=lambda: Phase(steps=1500, learning_rate=4e-3))
    """Before the patch."""
    patched: Phase = field(
        default_factory=lambda: Phase(600, learning_rate=1e-3, position_learning_rate=2e-2)
    )
    """After the patch. The control is trained in the same way without one."""
    batch_size: int = 16
    """Windows of train_length + 1 tokens in a step."""
    weight_decay: float = 0.05
    gradient_clip: float = 1.0
    eval_every: int = 150
    eval_windows: int = 128
    """Fixed held-out windows, evenly spread, for the losses on the way."""
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        values = asdict(self)
        values["sectors"] = list(self.sectors)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PatchedRecipe:
        """The recipe that ``to_dict`` wrote.

        >>> PatchedRecipe.from_dict(PatchedRecipe(seed=3).to_dict()) == PatchedRecipe(seed=3)
        True
        """
        phases = {name: Phase(**values[name]) for name in ("base", "patched")}
        return cls(**{**values, **phases, "sectors": tuple(values["sectors"])})


PATCHED_LLAMA = PatchedRecipe()
