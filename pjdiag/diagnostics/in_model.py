"""Does a model retrieve a value by its key, at each length and depth?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.in_model_contexts import (
    Context,
    RetrievalTask,
    draw_context,
    require_room,
)
from pjdiag.diagnostics.in_model_cost import bad_weights, estimated
from pjdiag.diagnostics.in_model_rows import CONFIDENCE, Outcomes, ranked, rows_of
from pjdiag.diagnostics.in_model_tokens import TokenSource, token_source
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.learned_positions import learned_positions, require_positions
from pjdiag.diagnostics.ledger import Ledger, identity_of
from pjdiag.diagnostics.measured_loss import cost, everywhere
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.progress import Announce, Progress, Steps, no_announcement, no_progress
from pjdiag.diagnostics.run_cost import WindowPlan, number_of_weights, plans_left, usual_batch
from pjdiag.diagnostics.runner import Runner, runner
from pjdiag.diagnostics.token_data import Data
from pjdiag.errors import UsageError
from pjdiag.results import Result

DEFAULT_LENGTHS = (512, 2048)
"""Where the train length is unknown or longer; no default length exceeds the last."""
DEPTH_STEPS = 10**9
"""A depth enters the seed of a trial in parts of this size."""

CONTEXTS = 2
"""Of each trial: with the key asked for, and with another at the end."""


def in_model(
    reading: Reading,
    task: RetrievalTask,
    lengths: Sequence[int] | None = None,
    data: Data | None = None,
    *,
    batch: int | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Result:
    """Key-value retrieval with hard negatives by the running model; no tokenizer is needed.

    A context of T tokens holds a key of K tokens and its value at a chosen depth, pairs with
    other values whose keys differ from it in exactly one token, and ends with the key. The
    candidates are the values of these C pairs, ranked by the log-probability of the token after
    the context; equal ones share their ranks. ``top1`` is the share of trials in which the right
    value is first, ``mean_rank`` its mean rank; chance is 1/C and (C + 1)/2. Intervals are
    Wilson's at 95%. A model may favour a place, such as the end, whatever it is asked: every
    context is read once more with the key of a negative at its end, and ``other_key_top1`` is the
    share in which the same value, now wrong, is first. ``retrieved``: ``top1`` exceeds chance
    (exact binomial tail) and ``other_key_top1`` (sign test over the trials), each at 5% over the
    number of rows (Bonferroni). A row whose depth is null is of all depths together.

    Tokens are drawn from the vocabulary without the special ones that the configuration names;
    with ``data``, filler is a passage of it, and keys and values are of its tokens. ``lengths``:
    default L and 4 L, none above 2,048 tokens. A trial depends on ``seed``, its length, depth
    and number alone. ``batch`` contexts are read at once (default: up to 16,384 tokens).
    ``announce`` is told what the run will take, before it starts.

    Raises UsageError for an argument out of range, a length that learned positions do not reach
    or a memory estimate beyond what is available, DataError for data that cannot be read,
    AdapterError for a checkpoint of which no model can be built or that predicts no next token.
    """
    positions = learned_positions(reading)
    chosen = _lengths(lengths, reading.train_length.value, positions, task)
    model = runner(reading, allow_pickle=allow_pickle)
    source = token_source(model, reading.checkpoint.config, data)
    for length in chosen:
        require_positions(length, positions)
        require_room(task, length, source.ids)
        source.require_filler(length - task.occupied)
    asked = Questions(model, task, source, seed)
    asked.contexts(Part(chosen[-1], task.depths[0], range(1)))  # whether keys are told from filler
    weights = number_of_weights(reading)
    plans = [_plan(length, task, batch, weights) for length in chosen]
    settings = _settings(task, source, plans, seed, model.unit)
    settings["run_precision"] = model.precision
    parts = list(_parts(plans, task))
    kept = Ledger() if ledger is None else ledger
    kept.begin({"checkpoint": identity_of(reading.checkpoint), **settings}, parts=len(parts))
    found: dict[tuple[int, float], Outcomes] = {}
    skipped = bad_weights(reading, model)
    if not skipped:
        finished = Counter[int]()
        for part in parts:
            finished[part.length] += CONTEXTS * len(part.trials) * (part.name in kept.figures)
        left = plans_left(plans, finished)
        if left:
            announce(estimated(reading, model, source.ids, left))
        steps = Steps(progress, sum(plan.windows * cost(plan.length) for plan in plans))
        with kept.stoppable():
            for part in parts:
                outcomes = kept.part(part.name, lambda part=part: asked.of(part))  # type: ignore[misc]
                found.setdefault((part.length, part.depth), []).extend(outcomes)
                steps.advance(CONTEXTS * len(part.trials) * cost(part.length))
    for length in sorted({length for (length, _), trials in found.items() if None in trials}):
        skipped += everywhere(reading, f"the model overflows at {length} tokens")
        found = {key: trials for key, trials in found.items() if key[0] != length}
    rows = rows_of(task, {key: np.asarray(trials) for key, trials in found.items()})
    return kept.finish(outcome(reading, "probe", rows, skipped, **settings))


@dataclass(frozen=True)
class Part:
    """Contexts of one length and depth that are read at once."""

    length: int
    depth: float
    trials: range

    @property
    def name(self) -> str:
        """In a ledger."""
        return f"{self.length}/{self.depth}/{self.trials.start}"


@dataclass(frozen=True)
class Questions:
    """A model, and what it is asked."""

    model: Runner
    task: RetrievalTask
    source: TokenSource
    seed: int

    def contexts(self, part: Part) -> list[Context]:
        """The contexts of a part, each from a seed of its own."""
        depth = round(part.depth * DEPTH_STEPS)
        return [
            draw_context(
                self.task,
                part.length,
                part.depth,
                self.source.ids,
                self.source.filler,
                np.random.default_rng([self.seed, part.length, depth, trial]),
            )
            for trial in part.trials
        ]

    def of(self, part: Part) -> Outcomes:
        """What comes of each trial of a part."""
        drawn = self.contexts(part)
        candidates = np.stack([context.candidates for context in drawn])
        asked, other = (
            ranked(self.model.next_log_probabilities(np.stack(ids), candidates))
            for ids in ([each.ids for each in drawn], [each.other for each in drawn])
        )
        return [
            None if own is None or control is None else [*own, control[1]]
            for own, control in zip(asked, other, strict=True)
        ]


def _parts(plans: Sequence[WindowPlan], task: RetrievalTask) -> Iterator[Part]:
    for plan in plans:
        for depth in task.depths:
            for first in range(0, task.trials, plan.batch):
                yield Part(plan.length, depth, range(first, min(first + plan.batch, task.trials)))


def _plan(length: int, task: RetrievalTask, batch: int | None, weights: int) -> WindowPlan:
    if batch is not None and batch < 1:
        raise UsageError(f"batch is {batch}; expected at least 1", "pass --batch 1")
    most = usual_batch(length, weights) if batch is None else batch
    windows = CONTEXTS * task.trials * len(task.depths)
    return WindowPlan(length, windows, min(task.trials, most))


def _lengths(
    asked: Sequence[int] | None,
    train_length: int | None,
    positions: int | None,
    task: RetrievalTask,
) -> tuple[int, ...]:
    if asked is not None:
        return check_lengths(asked)
    most = min(DEFAULT_LENGTHS[-1], positions or DEFAULT_LENGTHS[-1])
    wanted = DEFAULT_LENGTHS if train_length is None else (train_length, 4 * train_length)
    fitting = [length for length in wanted if task.shortest <= length <= most]
    fitting = fitting or [length for length in DEFAULT_LENGTHS if length <= most]
    return check_lengths(fitting or [most])


def _settings(
    task: RetrievalTask, source: TokenSource, plans: Sequence[WindowPlan], seed: int, unit: str
) -> dict[str, Any]:
    return {
        "in_model": True,
        "lengths": [plan.length for plan in plans],
        "depths": list(task.depths),
        "pairs": task.pairs,
        "negatives": task.negatives,
        "trials": task.trials,
        "key_length": task.key_length,
        "candidates": task.candidates,
        "mean_rank_of_chance": task.mean_rank_of_chance,
        "data": source.path,
        "data_digest": source.digest,
        "unit": unit,
        "batch": {str(plan.length): plan.batch for plan in plans},
        "confidence": CONFIDENCE,
        "seed": seed,
    }
