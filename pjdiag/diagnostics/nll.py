"""Next-token loss by context length and by position in the window."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.learned_positions import learned_positions, require_positions
from pjdiag.diagnostics.ledger import Ledger
from pjdiag.diagnostics.loss_engines import Text, engine
from pjdiag.diagnostics.measured_loss import MeasuredLoss, cost, everywhere, spans_of
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.progress import Announce, Progress, Steps, no_announcement, no_progress
from pjdiag.diagnostics.run_cost import BATCH_TOKENS, WindowPlan
from pjdiag.diagnostics.windows import CONFIDENCE, RESAMPLES, window_starts
from pjdiag.errors import DataError, UsageError
from pjdiag.results import Result, Row
from pjdiag.terms import position_buckets

LONGEST_DEFAULT = 32768
DEFAULT_LENGTHS = 4
TOKENS_PER_LENGTH = 131_072
"""Predicted tokens of each length where the number of windows is not given."""
OVERLAP = "windows overlap: tokens count more than once, and the intervals are too narrow"


def nll(
    reading: Reading,
    data: str | os.PathLike[str],
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
    about 16,384 tokens). ``announce`` is told what the run will take, before it starts.
    ``ledger`` keeps the figures of each batch.

    Raises DataError for data that cannot be read or hold no window, UsageError for an argument
    out of range or a memory estimate beyond what is available, AdapterError for a checkpoint of
    which no model can be built, Interrupted, with the result of the finished batches, where a
    KeyboardInterrupt ends the run.
    """
    model = engine(reading, allow_pickle=allow_pickle)
    train_length = require_train_length(reading)
    text = model.text(data)
    chosen, warnings = _lengths(lengths, train_length, text, learned_positions(reading))
    starts = {length: _starts(text, length, stride, windows) for length in chosen}
    plans = [_plan(length, len(starts[length]), batch) for length in chosen]
    if stride is not None and stride < max(chosen):
        warnings.append(OVERLAP)
    measured = MeasuredLoss(reading, model, text, attention)
    skipped = measured.bad_weights()
    spans = {length: spans_of(position_buckets(train_length, length), length) for length in chosen}
    settings = {
        "data": text.path,
        "data_bytes": text.size,
        "data_tokens": int(text.rows.size),
        "data_digest": text.digest,
        "unit": text.unit,
        "bytes_per_token": text.bytes_per_token,
        "lengths": list(chosen),
        "windows": {str(plan.length): plan.windows for plan in plans},
        "stride": {str(length): length if stride is None else stride for length in chosen},
        "batch": {str(plan.length): plan.batch for plan in plans},
        "attention": attention,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": seed,
        "precision": "float32",
    }
    kept = Ledger() if ledger is None else ledger
    kept.begin(
        {"checkpoint": reading.checkpoint.digest(), "train_length": train_length, **settings},
        sum(-(-plan.windows // plan.batch) for plan in plans),
    )
    if not skipped:
        announce(measured.estimate(plans))
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


def _starts(text: Text, length: int, stride: int | None, windows: int | None) -> np.ndarray:
    """Row and first token of every window, ``[windows, 2]``: row after row, from its beginning."""
    most = max(1, TOKENS_PER_LENGTH // length) if windows is None else windows
    rows, size = text.rows.shape
    within = window_starts(size, length, length if stride is None else stride, most)
    needed = -(-most // max(1, len(within)))
    row, start = np.meshgrid(np.arange(min(rows, needed)), within, indexing="ij")
    return np.stack([row.ravel(), start.ravel()], axis=1)[:most]


def _lengths(
    asked: Sequence[int] | None, train_length: int, text: Text, positions: int | None
) -> tuple[tuple[int, ...], list[str]]:
    """The lengths to measure, and what had to be left out of the default ones."""
    fits = text.longest_window()
    count = f"{text.path} holds {fits + 1} {text.unit}s" + (" a row" if len(text.rows) > 1 else "")
    hint = f"pass --length {fits} or shorter, or a longer text"
    if asked is not None:
        lengths = check_lengths(asked)
        if lengths[-1] > fits:
            raise DataError(f"{count}; one window of {lengths[-1]} needs {lengths[-1] + 1}", hint)
        require_positions(lengths[-1], positions)
        return lengths, []
    wanted = [train_length]
    while len(wanted) < DEFAULT_LENGTHS and 4 * wanted[-1] <= LONGEST_DEFAULT:
        wanted.append(4 * wanted[-1])
    if positions is not None:
        wanted = [length for length in wanted if length <= positions] or [positions]
    kept = [length for length in wanted if length <= fits]
    if not kept:
        raise DataError(
            f"{count}; one window of the train length {train_length} needs {train_length + 1}",
            hint,
        )
    left = [f"{length:,}" for length in wanted if length > fits]
    message = f"the data hold no window of {', '.join(left)} tokens: left out"
    return tuple(kept), [message] if left else []


def _plan(length: int, windows: int, batch: int | None) -> WindowPlan:
    if batch is not None and batch < 1:
        raise UsageError(f"batch is {batch}; expected at least 1", "pass --batch 1")
    most = max(1, BATCH_TOKENS // length) if batch is None else batch
    return WindowPlan(length, windows, min(windows, most))
