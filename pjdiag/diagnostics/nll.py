"""Next-token loss by context length and by position in the window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.learned_positions import learned_positions
from pjdiag.diagnostics.ledger import Ledger, identity_of
from pjdiag.diagnostics.loss_engines import engine
from pjdiag.diagnostics.measured_loss import MeasuredLoss, cost, everywhere, spans_of
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
from pjdiag.results import Result, Row
from pjdiag.terms import position_buckets


def nll(
    reading: Reading,
    data: Data,
    lengths: Sequence[int] | None = None,
    *,
    attention: bool = False,
    stride: int | None = None,
    windows: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Result:
    """Mean negative log-likelihood in nats per token of ``data``.

    Tokens are bytes for native and PJ-RoPE research checkpoints. A Hugging Face folder's own
    tokenizer reads the text, whole and without special tokens; or ``data`` is a ``.npy`` file of
    ids, ``[N]`` or ``[N, T]`` with a text in each row. For each T of ``lengths`` (default L, 4 L,
    16 L and 64 L, as far as ``data`` and learned positions reach and no further than 32,768),
    windows of T + 1 tokens are read from their first position on; the token after position t is
    predicted from t + 1 tokens. They start ``stride`` tokens apart (default T: none shares
    context), at most ``windows`` (default: about 131,072 predicted tokens, at least 1 window).
    Buckets are positions relative to the train length: ``train = 0..L-1``, ``x1_4 = L..4L-1`` ...
    Intervals are the bootstrap's over windows, drawn from ``seed``. With ``attention``, rows also
    carry means over windows, positions and heads of each query's entropy, mean distance and sink
    mass; ``effective_support`` is e^(mean entropy). ``batch`` windows are read at once (default:
    up to 16,384 tokens). ``announce`` is told what the run will take, before it starts.
    ``ledger`` keeps the figures of each batch.

    Raises DataError for data that cannot be read or hold no window, UsageError for an argument
    out of range or a memory estimate beyond what is available, AdapterError for a checkpoint of
    which no model can be built, Interrupted, with the result of the finished batches, where a
    KeyboardInterrupt ends the run.
    """
    model = engine(reading, allow_pickle=allow_pickle)
    train_length = require_train_length(reading)
    text = model.text(data)
    chosen, warnings = chosen_lengths(lengths, train_length, text, learned_positions(reading))
    starts = {length: text_windows(text, length, stride, windows) for length in chosen}
    weights = number_of_weights(reading)
    plans = [window_plan(length, len(starts[length]), batch, weights) for length in chosen]
    if stride is not None and stride < max(chosen):
        warnings.append(OVERLAP)
    measured = MeasuredLoss(reading, model, text, attention)
    skipped = measured.bad_weights()
    spans = {length: spans_of(position_buckets(train_length, length), length) for length in chosen}
    settings = {
        **window_settings(text, plans, stride),
        "attention": attention,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": seed,
        "precision": model.precision,
    }
    kept = Ledger() if ledger is None else ledger
    kept.begin(
        {"checkpoint": identity_of(reading.checkpoint), "train_length": train_length, **settings},
        sum(-(-plan.windows // plan.batch) for plan in plans),
    )
    if not skipped:
        left = measured.left(plans, starts, kept)
        if left:
            announce(measured.estimate(left))
        steps = Steps(progress, sum(plan.windows * cost(plan.length) for plan in plans))
        with kept.stoppable():
            for plan in plans:
                measured.measure(plan, starts[plan.length], spans[plan.length], kept, steps)
    rows: list[Row] = []
    for plan in plans:
        found = measured.found(plan, starts[plan.length], spans[plan.length], kept)
        if found is None:
            continue
        if np.isfinite(found.by_window).all():
            rows += found.rows(reading, plan.length, seed)
        else:
            skipped += everywhere(reading, f"the model overflows at {plan.length} tokens")
    return kept.finish(outcome(reading, "nll", rows, skipped, warnings, **settings))
