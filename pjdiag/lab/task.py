"""The loop of a training run, whatever is learned: seeded, resumable, the best weights kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pjdiag.errors import UsageError
from pjdiag.lab.native import save_model
from pjdiag.lab.recipe import HeldOutPoint, Progress, ProgressCallback, TrainRecipe
from pjdiag.lab.run_state import RunState, restore_state, save_state
from pjdiag.models.causal_lm import CausalLM

MODEL_NAME = "model.safetensors"
POSITION_PARTS = (".pj_bias.", ".positioner.")


@dataclass(frozen=True)
class Task:
    """What a run learns: where its batches come from, and what it makes small."""

    digest: str
    """Of the data, or of the words that define them; a run goes on with the same one only."""
    draw: Callable[[int], Tensor]
    """That many examples, drawn from torch's global random state."""
    loss: Callable[[CausalLM, Tensor], Tensor]
    """Mean loss of a batch, in nats."""
    held_out: Callable[[CausalLM], float]
    """Loss on fixed examples that are not trained on; the checkpoint is where it is lowest."""
    stated: Mapping[str, object]
    """What the checkpoint itself says about its making."""


def run_task(
    recipe: TrainRecipe, task: Task, out: Path, progress: ProgressCallback | None = None
) -> RunState:
    """Train to the last step, and leave the best weights and the state of the run in ``out``.

    An interrupted run goes on from its last evaluation. torch's global random state is left as
    it was. Raises UsageError where ``out`` holds something else than this run or where training
    diverges, OutputError where it cannot be written.
    """
    with torch.random.fork_rng(devices=[]):
        model = CausalLM(recipe.model, seed=recipe.seed)
        optimizer = _optimizer(model, recipe)
        state = restore_state(out, recipe, task.digest, model, optimizer)
        _run(recipe, task, out, progress, model, optimizer, state)
    return state


def _run(
    recipe: TrainRecipe,
    task: Task,
    out: Path,
    progress: ProgressCallback | None,
    model: CausalLM,
    optimizer: torch.optim.Optimizer,
    state: RunState,
) -> None:
    before = state.seconds
    started = time.monotonic()
    losses: list[float] = []
    model.train()
    if state.step == 0:
        save_state(out, state, recipe, task.digest, model, optimizer)
    for step in range(state.step + 1, recipe.steps + 1):
        torch.manual_seed(_step_seed(recipe.seed, step))
        loss, rate = _take_step(recipe, task, model, optimizer, step)
        if not math.isfinite(loss):
            raise UsageError(
                f"training diverged: the loss is {loss} at step {step}", "lower the learning rates"
            )
        losses.append(loss)
        state.step = step
        state.seconds = before + time.monotonic() - started
        held_out = None
        if step % recipe.eval_every == 0 or step == recipe.steps:
            held_out = task.held_out(model)
            state.history.append(HeldOutPoint(step, float(np.mean(losses)), held_out))
            losses = []
            if state.best.step == step:
                save_model(model, out / MODEL_NAME, task.stated)
            state.seconds = before + time.monotonic() - started
            save_state(out, state, recipe, task.digest, model, optimizer)
        if progress is not None:
            progress(Progress(step, recipe.steps, loss, rate, held_out, state.seconds))


def _take_step(
    recipe: TrainRecipe,
    task: Task,
    model: CausalLM,
    optimizer: torch.optim.Optimizer,
    step: int,
) -> tuple[float, float]:
    """One update; the loss before it and the learning rate of the weights."""
    factor = recipe.learning_rate_factor(step)
    for group in optimizer.param_groups:
        group["lr"] = factor * group["peak_rate"]
    optimizer.zero_grad(set_to_none=True)
    loss = task.loss(model, task.draw(recipe.batch_size))
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip)
    optimizer.step()
    return float(loss.detach()), factor * recipe.learning_rate


def _optimizer(model: CausalLM, recipe: TrainRecipe) -> torch.optim.AdamW:
    """AdamW in three groups: matrices, vectors without decay, position parameters without."""
    groups: dict[str, list[Tensor]] = {"matrix": [], "vector": [], "position": []}
    for name, parameter in model.named_parameters():
        position = any(part in name for part in POSITION_PARTS)
        kind = "position" if position else "matrix" if parameter.ndim > 1 else "vector"
        groups[kind].append(parameter)
    peaks = {
        "matrix": (recipe.learning_rate, recipe.weight_decay),
        "vector": (recipe.learning_rate, 0.0),
        "position": (recipe.position_learning_rate, 0.0),
    }
    return torch.optim.AdamW(
        [
            {"params": parameters, "peak_rate": peaks[kind][0], "weight_decay": peaks[kind][1]}
            for kind, parameters in groups.items()
            if parameters
        ],
        betas=(0.9, 0.99),
    )


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)
