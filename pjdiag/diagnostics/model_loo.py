"""Leave a part of the positions out of the running model: what its predictions lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from pjdiag.adapters.protocol import Reading
from pjdiag.adapters.reading import at_length
from pjdiag.arguments import require_choice
from pjdiag.diagnostics.ablation_engines import ablation_engine, estimated
from pjdiag.diagnostics.ablation_parts import ABSOLUTE, LayerParts, layer_parts, removals
from pjdiag.diagnostics.ablation_targets import targets
from pjdiag.diagnostics.heads import layers_in_words
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.learned_positions import learned_positions
from pjdiag.diagnostics.ledger import Ledger, identity_of
from pjdiag.diagnostics.loss_engines import engine
from pjdiag.diagnostics.measured_loss import MeasuredLoss, cost, everywhere
from pjdiag.diagnostics.model_loo_rows import QUERIES, LengthRun, length_rows, whole_loss
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
    asked = _asked(reading, lengths)
    by_length = _by_length(reading, asked)
    chosen = removals(_all(by_length), order, remove)
    wanted = {
        length: targets(parts, chosen, scope, layer, head) for length, parts in by_length.items()
    }
    model = engine(reading, allow_pickle=allow_pickle)
    text = model.text(data)
    spans, _ = chosen_lengths(asked, asked[-1], text, learned_positions(reading))
    starts = {length: text_windows(text, length, stride, windows) for length in spans}
    weights = number_of_weights(reading)
    plans = [window_plan(length, len(starts[length]), batch, weights) for length in spans]
    parts = _richest(by_length)
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
        "precision": model.precision,
    }
    kept = Ledger() if ledger is None else ledger
    running = ablation_engine(model, {each.first for found in wanted.values() for each in found})
    passes = {
        length: 1 + (2 * len(found) if running.predicts else 0) for length, found in wanted.items()
    }
    used = [plan for plan in plans if wanted[plan.length]]
    kept.begin(
        {
            "checkpoint": identity_of(reading.checkpoint),
            "train_length": reading.train_length.value,
            **settings,
        },
        sum(passes[plan.length] * -(-plan.windows // plan.batch) for plan in used),
    )
    warnings += _bands_left_out(parts)
    if not running.predicts:
        warnings.append(NO_LOSS)
    if running.sinks:
        warnings.append(SINKS)
    bad = MeasuredLoss(reading, model, text, attention=False).bad_weights()
    runs = []
    if used and not bad:
        weight = sum(passes[plan.length] * plan.windows * cost(plan.length) for plan in used)
        steps = Steps(progress, weight)
        runs = [
            LengthRun(
                plan,
                starts[plan.length],
                {each.layer.index: each for each in by_length[plan.length]},
                wanted[plan.length],
                seed,
            )
            for plan in used
        ]
        left = {run.plan.length: run.passes_left(running, kept) for run in runs}
        if any(left.values()):
            announce(estimated(running, text, used, left))
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
    whole = {str(run.plan.length): whole_loss(run, kept) for run in runs}
    return kept.finish(
        outcome(reading, "loo", rows, [*skipped, *bad], warnings, **settings, whole_nll=whole)
    )


def known_removals(reading: Reading, lengths: Sequence[int] | None = None) -> list[str]:
    """Names of all single removals that ``model_leave_one_out`` has at ``lengths``.

    Raises UsageError for lengths that are none.
    """
    if lengths or reading.train_length.value is not None:
        parts = _all(_by_length(reading, _asked(reading, lengths)))
    else:
        parts = layer_parts(reading)
    return [removal.name for removal in removals(parts, None, None)]


def _asked(reading: Reading, lengths: Sequence[int] | None) -> tuple[int, ...]:
    if lengths:
        return check_lengths(lengths)
    return (min(require_train_length(reading), LONGEST_DEFAULT),)


def _by_length(reading: Reading, lengths: Sequence[int]) -> dict[int, list[LayerParts]]:
    """What each layer has at each length, whose frequencies may be in other bands."""
    return {length: layer_parts(at_length(reading, length)) for length in lengths}


def _all(by_length: Mapping[int, Sequence[LayerParts]]) -> list[LayerParts]:
    return [each for parts in by_length.values() for each in parts]


def _richest(by_length: Mapping[int, Sequence[LayerParts]]) -> list[LayerParts]:
    """Each layer at the first length at which it has something to remove, or the first of all."""
    found: dict[int, LayerParts] = {}
    for each in _all(by_length):
        earlier = found.setdefault(each.layer.index, each)
        if not earlier.mechanisms:
            found[each.layer.index] = each if each.mechanisms else earlier
    return list(found.values())


def _bands_left_out(parts: Sequence[LayerParts]) -> list[str]:
    """Of layers that have something else to remove."""
    found: dict[str, list[int]] = {}
    for each in parts:
        if each.mechanisms and each.why and each.why != ABSOLUTE:
            found.setdefault(each.why, []).append(each.layer.index)
    return [f"no band is removed in {layers_in_words(at)}: {why}" for why, at in found.items()]
