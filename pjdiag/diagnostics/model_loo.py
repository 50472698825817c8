"""Leave a part of the positions out of the running model: what its predictions lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from pjdiag.adapters.protocol import Reading
from pjdiag.adapters.reading import at_length
from pjdiag.arguments import require_choice
from pjdiag.diagnostics.ablation_engines import ablation_engine, estimated
from pjdiag.diagnostics.ablation_parts import ABSOLUTE, LayerParts, layer_parts, removals
from pjdiag.diagnostics.ablation_targets import targets
from pjdiag.diagnostics.heads import layers_in_words
from pjdiag.diagnostics.learned_positions import learned_positions
from pjdiag.diagnostics.ledger import Ledger
from pjdiag.diagnostics.loss_engines import engine
from pjdiag.diagnostics.measured_loss import MeasuredLoss, cost, everywhere
from pjdiag.diagnostics.model_loo_rows import QUERIES, LengthRun, length_rows
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.progress import Announce, Progress, Steps, no_announcement, no_progress
from pjdiag.diagnostics.run_cost import number_of_weights
from pjdiag.diagnostics.token_data import Data
from pjdiag.diagnostics.window_plans import (
    OVERLAP,
    chosen_lengths,
    text_windows,
    window_plan,
    window_settings,
)
from pjdiag.diagnostics.windows import CONFIDENCE, RESAMPLES
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Scope

LONGEST_DEFAULT = 2048
"""Tokens of a window where the length is not given."""
NO_LOSS = "the model predicts no next token: its attention is measured, and no loss"
SINKS = (
    "attention_kl is left out: the attention of this model has sinks, logits without a key, and "
    "what is left of it is no distribution over tokens"
)


class InModel(TypedDict, total=False):
    """Arguments of ``model_leave_one_out`` that the kernel alone has no use for."""

    remove: Sequence[str] | None
    scope: Scope
    layer: int | None
    head: int | None
    stride: int | None
    windows: int | None
    batch: int | None
    seed: int
    announce: Announce
    ledger: Ledger | None


def model_leave_one_out(
    reading: Reading,
    data: Data,
    *,
    order: int | None = None,
    remove: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    scope: Scope = Scope.MODEL,
    layer: int | None = None,
    head: int | None = None,
    stride: int | None = None,
    windows: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Result:
    """What the next-token loss over ``data`` gains where a part of the positions is removed.

    Removals: ``order:r``, ``fj:r``, ``lc:r``, ``sector:s`` of a PJ-bias, whose gate is not
    renormalised; ``alibi`` and ``t5_bias``, the whole bias; ``band:b`` of rotary channels, b as
    in ``spectrum``: their products of queries and keys are left out of the logits, content
    included. ``remove`` names them, several at once joined by ``+``; with ``order`` those of that
    order; without either each one that the model has. A model's row is without the part in every
    layer and head that has it, a layer's without it in that layer alone, a head's in that head
    alone; the two finer ones down to ``scope``. ``layer`` and ``head`` restrict both.

    ``loo_delta_nll`` is the mean over windows of the loss without the part less the loss with it,
    in nats per token; the interval is the paired bootstrap's over windows, drawn from ``seed``.
    ``control_delta_nll`` is the same for the part with random signs, a sign for each lag and head
    of a bias, and for each key and head of a band, so that each of its entries keeps its size.
    ``attention_kl`` is the mean over sampled queries of KL(attention || attention without the
    part), given the queries and keys of the whole model; over the heads that lose it.

    ``data``, ``lengths`` (default: L, at most 2,048), ``stride``, ``windows``, ``batch``,
    ``announce`` and ``ledger`` as for ``nll.nll``. Raises what it raises, and UsageError for a
    removal that the model does not have.
    """
    require_choice(scope, Scope, "scope")
    scope = Scope(scope)
    parts = layer_parts(reading)
    chosen = removals(parts, order, remove)
    wanted = targets(parts, chosen, scope, layer, head)
    model = engine(reading, allow_pickle=allow_pickle)
    text = model.text(data)
    asked = lengths or [min(require_train_length(reading), LONGEST_DEFAULT)]
    spans, _ = chosen_lengths(asked, max(asked), text, learned_positions(reading))
    starts = {length: text_windows(text, length, stride, windows) for length in spans}
    weights = number_of_weights(reading)
    plans = [window_plan(length, len(starts[length]), batch, weights) for length in spans]
    warnings = [OVERLAP] if stride is not None and stride < max(spans) else []
    skipped = [
        *(Skipped(entry.index, entry.reason) for entry in reading.skipped),
        *(Skipped(each.layer.index, each.why) for each in parts if not each.mechanisms),
    ]
    settings = {
        **window_settings(text, plans, stride),
        "removals": [removal.name for removal in chosen],
        "scope": scope.value,
        "layer": layer,
        "head": head,
        "queries": QUERIES,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": seed,
        "precision": "float32",
    }
    kept = Ledger() if ledger is None else ledger
    running = ablation_engine(model, {target.first for target in wanted})
    passes = 1 + (2 * len(wanted) if running.predicts else 0)
    kept.begin(
        {
            "checkpoint": reading.checkpoint.digest(),
            "train_length": reading.train_length.value,
            **settings,
        },
        passes * sum(-(-plan.windows // plan.batch) for plan in plans),
    )
    warnings += _bands_left_out(parts)
    if not running.predicts:
        warnings.append(NO_LOSS)
    if running.sinks:
        warnings.append(SINKS)
    bad = MeasuredLoss(reading, model, text, attention=False).bad_weights()
    runs = []
    if wanted and not bad:
        announce(estimated(running, text, plans, passes))
        steps = Steps(progress, passes * sum(plan.windows * cost(plan.length) for plan in plans))
        runs = [
            LengthRun(plan, starts[plan.length], _at(reading, plan.length), wanted, seed)
            for plan in plans
        ]
        with kept.stoppable():
            for run in runs:
                run.measure(running, text, kept, steps)
    rows: list[Row] = []
    for run in runs:
        found = length_rows(run, kept)
        if found.overflow:
            skipped += everywhere(reading, f"the model overflows at {run.plan.length} tokens")
        rows += found.rows
        warnings += found.warnings
    return kept.finish(outcome(reading, "loo", rows, [*skipped, *bad], warnings, **settings))


def _at(reading: Reading, length: int) -> dict[int, LayerParts]:
    """The layers' parts at the frequencies of this length."""
    return {each.layer.index: each for each in layer_parts(at_length(reading, length))}


def _bands_left_out(parts: Sequence[LayerParts]) -> list[str]:
    """Of layers that have something else to remove."""
    found: dict[str, list[int]] = {}
    for each in parts:
        if each.mechanisms and each.why and each.why != ABSOLUTE:
            found.setdefault(each.why, []).append(each.layer.index)
    return [f"no band is removed in {layers_in_words(at)}: {why}" for why, at in found.items()]
