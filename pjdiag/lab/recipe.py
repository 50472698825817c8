"""What a training run is asked to do, and what it reports while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pjdiag.arguments import is_number
from pjdiag.errors import UsageError
from pjdiag.models.config import ModelConfig


@dataclass(frozen=True)
class TrainRecipe:
    """Model, schedule and seed of a run. Raises UsageError where a value is out of range.

    >>> TrainRecipe(steps=100, warmup_steps=10).learning_rate_factor(10)
    1.0
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    steps: int = 12000
    batch_size: int = 32
    """Windows of train_length + 1 tokens in a step."""
    learning_rate: float = 3e-3
    """Peak rate of the weights."""
    position_learning_rate: float = 1e-2
    """Peak rate of the PJ-bias and the learned rotary parameters, which have no weight decay."""
    weight_decay: float = 0.01
    warmup_steps: int = 200
    final_rate: float = 0.02
    """Rate at the last step, as a share of the peak."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    eval_every: int = 250
    """Steps between two looks at the held-out works; the state is saved as often."""
    eval_windows: int = 512
    """Fixed windows of the held-out works, evenly spread; fewer where they hold fewer."""
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "eval_every": 1, "eval_windows": 1}
        for name, bound in {**least, "warmup_steps": 0, "seed": 0}.items():
            _check(name, getattr(self, name), bound, whole=True)
        for name in ("learning_rate", "position_learning_rate", "gradient_clip"):
            _check(name, getattr(self, name), 0.0, above=True)
        for name in ("weight_decay", "final_rate"):
            _check(name, getattr(self, name), 0.0)
        if self.warmup_steps >= self.steps:
            raise UsageError(
                f"warmup_steps is {self.warmup_steps} of {self.steps} steps; expected fewer",
                "train for more steps or warm up for fewer",
            )
        if self.model.vocab_size != 256:
            raise UsageError(f"vocab_size is {self.model.vocab_size}; byte models have 256")

    def learning_rate_factor(self, step: int) -> float:
        """Share of the peak rate at ``step`` (from 1): linear warm-up, then half a cosine."""
        if step <= self.warmup_steps:
            return step / self.warmup_steps
        progress = (step - self.warmup_steps) / (self.steps - self.warmup_steps)
        return self.final_rate + (1 - self.final_rate) * (1 + math.cos(math.pi * progress)) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the model's among them under ``model``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainRecipe:
        """The recipe that ``to_dict`` wrote. Raises UsageError for another field or value.

        >>> TrainRecipe.from_dict(TrainRecipe(seed=3).to_dict()).seed
        3
        """
        known = {entry.name for entry in fields(cls)}
        model_fields = {entry.name for entry in fields(ModelConfig)}
        model = values.get("model", {})
        surplus = [*(set(values) - known), *(set(model) - model_fields)]
        if surplus:
            raise UsageError(f"a recipe has no field {', '.join(sorted(surplus))}")
        return cls(**{**values, "model": ModelConfig(**model)})


@dataclass(frozen=True)
class HeldOutPoint:
    """Held-out loss at one step."""

    step: int
    train_loss: float
    """Mean next-byte NLL of the batches since the last point, nats per byte."""
    held_out_loss: float
    """Mean next-byte NLL of the fixed held-out windows, nats per byte."""


@dataclass(frozen=True)
class Progress:
    """What the progress callback is told after every step."""

    step: int
    """From 1 to ``steps``."""
    steps: int
    loss: float
    """Mean next-byte NLL of this batch, nats per byte."""
    learning_rate: float
    held_out_loss: float | None
    """At an evaluation; otherwise None."""
    seconds: float
    """Time spent in training so far, earlier sessions of a resumed run included."""


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class TrainOutcome:
    """What a finished run left behind."""

    checkpoint: Path
    card: Path
    history: tuple[HeldOutPoint, ...]
    best_step: int
    """Step with the lowest loss on the fixed windows; its weights are the checkpoint's."""
    best_held_out_loss: float
    final_held_out_loss: float
    """Of the checkpoint, over every held-out window, nats per byte."""
    held_out_bytes: int
    """Bytes that ``final_held_out_loss`` is a mean over."""
    parameters: int
    minutes: float


def _check(
    name: str, value: Any, bound: float, *, whole: bool = False, above: bool = False
) -> None:
    number = is_number(value) and (isinstance(value, int) or not whole)
    if not number or value < bound or (above and value == bound):
        what = "a whole number" if whole else "a finite number"
        limit = "above" if above else "of at least"
        raise UsageError(f"{name} is {value!r}; expected {what} {limit} {bound:g}")
