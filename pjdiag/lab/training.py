"""Training a small byte-level language model, seeded and resumable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from pjdiag.lab.card import LANGUAGE, write_card
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.recipe import ProgressCallback, TrainOutcome, TrainRecipe
from pjdiag.lab.run_state import STATE_NAME, RunState
from pjdiag.lab.task import MODEL_NAME, Task, run_task
from pjdiag.models.causal_lm import CausalLM

_EVAL_BATCH = 64


def train(
    recipe: TrainRecipe,
    corpus: Corpus,
    out: Path,
    progress: ProgressCallback | None = None,
    source: str = "",
    command: str = "",
    kind: str = LANGUAGE,
) -> TrainOutcome:
    """Train, and leave ``model.safetensors``, ``card.json`` and ``README.md`` in ``out``.

    The checkpoint holds the weights of the evaluation with the lowest held-out loss. A run that
    was interrupted goes on from its last evaluation when it is started again with the same
    recipe, corpus and folder, and ends with the same weights. ``source`` says in words where the
    text comes from, ``command`` what to type to train again, ``kind`` what the model is; they go
    on the card. torch's global random state is left as it was.

    Raises DataError for a work that is shorter than a window, UsageError where ``out`` holds
    something else than this run, OutputError where it cannot be written.
    """
    corpus.require_windows(recipe.model.train_length + 1)
    state = run_task(recipe, _language(recipe, corpus), out, progress)
    return _finish(recipe, corpus, out, state, source, command, kind)


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


def _language(recipe: TrainRecipe, corpus: Corpus) -> Task:
    def held_out(model: CausalLM) -> float:
        return held_out_loss(model, corpus.held_out, recipe.eval_windows)[0]

    draw = window_sampler(corpus.train, recipe.model.train_length + 1)
    return Task(corpus.digest, draw, _loss, held_out, _stated(recipe, corpus))


def _loss(model: CausalLM, tokens: Tensor) -> Tensor:
    """Mean next-token NLL of ``tokens`` ``[B, T + 1]``, in nats."""
    logits = model(tokens[:, :-1])
    return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _stated(recipe: TrainRecipe, corpus: Corpus) -> dict[str, object]:
    """What the checkpoint itself says about its making."""
    return {
        **{name: value for name, value in recipe.to_dict().items() if name != "model"},
        "dropout": recipe.model.dropout,
        "corpus_sha256": corpus.digest,
        "held_out": [work.name for work in corpus.held_out],
    }


def _finish(
    recipe: TrainRecipe,
    corpus: Corpus,
    out: Path,
    state: RunState,
    source: str,
    command: str,
    kind: str,
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
    write_card(recipe, corpus, outcome, source, command, kind)
    (out / STATE_NAME).unlink(missing_ok=True)
    return outcome
