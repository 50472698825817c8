"""Training a small byte-level language model, seeded and resumable."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from pjdiag.errors import UsageError
from pjdiag.lab.card import write_card
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.native import save_model
from pjdiag.lab.recipe import HeldOutPoint, Progress, ProgressCallback, TrainOutcome, TrainRecipe
from pjdiag.lab.run_state import STATE_NAME, RunState, restore_state, save_state
from pjdiag.models.causal_lm import CausalLM

MODEL_NAME = "model.safetensors"
POSITION_PARTS = (".pj_bias.", ".positioner.")
_EVAL_BATCH = 64


def train(
    recipe: TrainRecipe,
    corpus: Corpus,
    out: Path,
    progress: ProgressCallback | None = None,
    source: str = "",
    command: str = "",
) -> TrainOutcome:
    """Train, and leave ``model.safetensors``, ``card.json`` and ``README.md`` in ``out``.

    The checkpoint holds the weights of the evaluation with the lowest held-out loss. A run that
    was interrupted goes on from its last evaluation when it is started again with the same
    recipe, corpus and folder, and ends with the same weights. ``source`` says in words where the
    text comes from, ``command`` what to type to train again; both go on the card.
    torch's global random state is left as it was.

    Raises DataError for a work that is shorter than a window, UsageError where ``out`` holds
    something else than this run, OutputError where it cannot be written.
    """
    corpus.require_windows(recipe.model.train_length + 1)
    with torch.random.fork_rng(devices=[]):
        model = CausalLM(recipe.model, seed=recipe.seed)
        optimizer = _optimizer(model, recipe)
        state = restore_state(out, recipe, corpus.digest, model, optimizer)
        _run(recipe, corpus, out, progress, model, optimizer, state)
    return _finish(recipe, corpus, out, state, source, command)


def held_out_loss(
    model: CausalLM, works: tuple[Work, ...], max_windows: int | None = None
) -> tuple[float, int]:
    """Mean next-byte NLL in nats over windows of ``works``, and the number of bytes predicted.

    Windows of train_length + 1 bytes follow one another within each work; with ``max_windows``
    that many are taken, evenly spread.
    """
    length = model.config.train_length
    windows = [
        np.frombuffer(work.data, np.uint8)[start : start + length + 1]
        for work in works
        for start in range(0, len(work.data) - length, length)
    ]
    if max_windows is not None and max_windows < len(windows):
        chosen = np.linspace(0, len(windows) - 1, max_windows).round().astype(int)
        windows = [windows[index] for index in chosen]
    training = model.training
    model.eval()
    total = 0.0
    with torch.no_grad():
        for first in range(0, len(windows), _EVAL_BATCH):
            tokens = torch.from_numpy(np.stack(windows[first : first + _EVAL_BATCH])).long()
            total += float(_loss(model, tokens)) * len(tokens)
    model.train(training)
    return total / len(windows), len(windows) * length


def _run(
    recipe: TrainRecipe,
    corpus: Corpus,
    out: Path,
    progress: ProgressCallback | None,
    model: CausalLM,
    optimizer: torch.optim.Optimizer,
    state: RunState,
) -> None:
    draw = window_sampler(corpus.train, recipe.model.train_length + 1)
    before = state.seconds
    started = time.monotonic()
    losses: list[float] = []
    model.train()
    if state.step == 0:
        save_state(out, state, recipe, corpus.digest, model, optimizer)
    for step in range(state.step + 1, recipe.steps + 1):
        torch.manual_seed(_step_seed(recipe.seed, step))
        loss, rate = _take_step(recipe, model, optimizer, draw(recipe.batch_size), step)
        if not math.isfinite(loss):
            raise UsageError(
                f"training diverged: the loss is {loss} at step {step}", "lower the learning rates"
            )
        losses.append(loss)
        state.step = step
        state.seconds = before + time.monotonic() - started
        held_out = None
        if step % recipe.eval_every == 0 or step == recipe.steps:
            held_out, _ = held_out_loss(model, corpus.held_out, recipe.eval_windows)
            state.history.append(HeldOutPoint(step, float(np.mean(losses)), held_out))
            losses = []
            if state.best.step == step:
                save_model(model, out / MODEL_NAME, _stated(recipe, corpus))
            state.seconds = before + time.monotonic() - started
            save_state(out, state, recipe, corpus.digest, model, optimizer)
        if progress is not None:
            progress(Progress(step, recipe.steps, loss, rate, held_out, state.seconds))


def window_sampler(works: tuple[Work, ...], length: int) -> Callable[[int], Tensor]:
    """A function that draws ``[count, length]`` windows, none across two works.

    It draws from torch's global random state; every place a window can start is equally likely.
    """
    data = torch.from_numpy(np.frombuffer(b"".join(work.data for work in works), np.uint8).copy())
    first = np.cumsum([0, *(len(work.data) for work in works)])
    places = np.cumsum([len(work.data) - length + 1 for work in works])
    offsets = torch.arange(length)

    def draw(count: int) -> Tensor:
        place: NDArray[np.int64] = torch.randint(int(places[-1]), (count,)).numpy()
        index = np.searchsorted(places, place, side="right")
        within = place - np.concatenate([[0], places])[index]
        starts = torch.from_numpy(first[index] + within)
        return data[starts[:, None] + offsets].long()

    return draw


def _take_step(
    recipe: TrainRecipe,
    model: CausalLM,
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    step: int,
) -> tuple[float, float]:
    """One update; the loss before it and the learning rate of the weights."""
    factor = recipe.learning_rate_factor(step)
    for group in optimizer.param_groups:
        group["lr"] = factor * group["peak_rate"]
    optimizer.zero_grad(set_to_none=True)
    loss = _loss(model, tokens)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip)
    optimizer.step()
    return float(loss.detach()), factor * recipe.learning_rate


def _loss(model: CausalLM, tokens: Tensor) -> Tensor:
    """Mean next-token NLL of ``tokens`` ``[B, T + 1]``, in nats."""
    logits = model(tokens[:, :-1])
    return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


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


def _stated(recipe: TrainRecipe, corpus: Corpus) -> dict[str, object]:
    """What the checkpoint itself says about its making."""
    return {
        **{name: value for name, value in recipe.to_dict().items() if name != "model"},
        "dropout": recipe.model.dropout,
        "corpus_sha256": corpus.digest,
        "held_out": [work.name for work in corpus.held_out],
    }


def _finish(
    recipe: TrainRecipe, corpus: Corpus, out: Path, state: RunState, source: str, command: str
) -> TrainOutcome:
    from safetensors.numpy import load_file

    model = CausalLM.from_tensors(recipe.model, load_file(out / MODEL_NAME))
    loss, predicted = held_out_loss(model, corpus.held_out)
    outcome = TrainOutcome(
        checkpoint=out / MODEL_NAME,
        card=out / "card.json",
        history=tuple(state.history),
        best_step=state.best.step,
        best_held_out_loss=state.best.held_out_loss,
        final_held_out_loss=loss,
        held_out_bytes=predicted,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        minutes=state.seconds / 60,
    )
    write_card(recipe, corpus, outcome, source, command)
    (out / STATE_NAME).unlink(missing_ok=True)
    return outcome
