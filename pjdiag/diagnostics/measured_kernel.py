"""The kernel that any attention really has on data: what it does with the lag."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from numpy.typing import ArrayLike

from pjdiag.adapters.protocol import Reading
from pjdiag.adapters.reading import at_length
from pjdiag.diagnostics.compact_shapes import LEAST_LAGS
from pjdiag.diagnostics.kernel_runs import KernelRun, Measuring, Told
from pjdiag.diagnostics.kernel_terms import Control
from pjdiag.diagnostics.kernel_windows import Window, shuffled, windows_of
from pjdiag.diagnostics.learned_positions import learned_positions, require_positions
from pjdiag.diagnostics.ledger import Ledger, identity_of
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.progress import (
    Announce,
    Estimate,
    Progress,
    Steps,
    no_announcement,
    no_progress,
)
from pjdiag.diagnostics.runner import Runner, runner
from pjdiag.diagnostics.sector_fit import RCOND
from pjdiag.diagnostics.token_data import TokenData, array_ids
from pjdiag.errors import AdapterError, UsageError
from pjdiag.position.sink_share import QUERIES
from pjdiag.results import Result, Row, Skipped

Data: TypeAlias = str | os.PathLike[str] | ArrayLike
"""A file, or token ids."""
LONGEST_DEFAULT = 2048
"""Tokens of a window where the length is not given."""
SKIP_FIRST = 4
NO_TRAIN_LENGTH = (
    "the training length is not known: no sector fit, no light-cone character, and the amplitudes "
    "of jets are those of (d/N)^r, N the lags; pass --train-length"
)


def kernel(
    reading: Reading,
    data: Data,
    length: int | None = None,
    *,
    windows: int = 2,
    skip_first: int = SKIP_FIRST,
    controls: bool = True,
    causal: bool | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Result:
    """The lag effect K of every head's logits on ``data``, its shape and its sectors.

    K is that of the least squares ``s_ij = a_i + K(i - j)`` over all pairs of each window, s the
    logits after rotation with their bias and before any soft cap; it is defined up to a
    constant, and ``K(d) - K(0)`` is reported. The first ``skip_first`` positions are left out as
    queries and as keys. ``data`` is a text, or token ids ``[N]`` or ``[N, T]`` with -1 for
    padding, as a ``.npy`` file or an array; the first ``windows`` of ``length`` tokens (default:
    L, at most 2,048 and no more than the learned positions) are read. Attention that is not
    causal has a side ``past`` and a side ``future``. ``controls`` measures the same model on the
    same tokens shuffled, and the same architecture freshly initialised from ``seed``. Where a
    model cannot be made anew, or the train length is not known, a warning says what is left out.
    ``announce`` is told what the run will take, once the first layer is through.
    ``ledger`` keeps what the model and each control have given, each once it is through.
    Rows of a layer are medians over its heads; those of the model 10th, 50th and 90th percentiles.

    Raises DataError for data that do not fit, UsageError for an argument out of range, a window
    longer than the learned positions, or attention that is not causal where that is claimed: by
    ``causal``, or, where it is None, by the checkpoint; AdapterError where no model can be run;
    Interrupted, with the result of what is through, where a KeyboardInterrupt ends the run.
    """
    if skip_first < 0:
        raise UsageError(f"skip_first is {skip_first}; expected at least 0", "pass --skip-first 4")
    train_length = reading.train_length.value
    model = runner(reading, allow_pickle=allow_pickle)
    text = _tokens(model, data)
    positions = learned_positions(reading)
    usual = min(train_length or LONGEST_DEFAULT, LONGEST_DEFAULT, positions or LONGEST_DEFAULT)
    least = skip_first + LEAST_LAGS
    chosen = windows_of(text, length, max(usual, least), windows, least, model.unit)
    require_positions(chosen.length, positions)
    layers = {layer.index: layer for layer in at_length(reading, chosen.length).layers}
    told = Told(chosen)
    if train_length is None:
        told.first.append(NO_TRAIN_LENGTH)
    runs = [KernelRun(None, model, chosen.chosen)]
    if controls:
        runs += _controls(model, chosen.chosen, seed, told)
    settings = {
        "data": text.path,
        "data_digest": text.digest,
        "unit": model.unit,
        "length": chosen.length,
        "windows": len(chosen.chosen),
        "skip_first": skip_first,
        "sink_queries": QUERIES,
        "controls": controls,
        "seed": seed,
    }
    kept = Ledger() if ledger is None else ledger
    kept.begin(
        {
            "checkpoint": identity_of(reading.checkpoint),
            "train_length": train_length,
            "causal": causal,
            **settings,
        },
        len(runs),
    )
    steps = Steps(progress, len(runs) * (len(chosen.chosen) + len(layers)))
    measuring = Measuring(layers, train_length, skip_first, causal, steps)
    with kept.stoppable():
        _measure(measuring, runs, kept, announce)
    rows: list[Row] = []
    skipped = [Skipped(entry.index, entry.reason) for entry in reading.skipped]
    for run in runs:
        figures = kept.figures.get(run.name)
        if figures is not None:
            rows += figures["rows"]
            skipped += [Skipped(**entry) for entry in figures["skipped"]]
            told.hear(run, figures)
    skipped += [
        Skipped(index, told.missed.get(index, "its attention was not observed"))
        for index in layers
        if runs[0].name in kept.figures
        and index not in told.layers
        and all(entry.layer != index for entry in skipped)
    ]
    found = outcome(
        reading,
        "kernel",
        rows,
        skipped,
        told.warnings(skip_first, layers),
        **settings,
        sliding_windows={str(layer): size for layer, size in sorted(told.windowed.items())},
        solver_steps=told.steps,
        solver_residual=told.residual,
        rcond=RCOND,
    )
    return kept.finish(found)


def _measure(
    measuring: Measuring, runs: Sequence[KernelRun], ledger: Ledger, announce: Announce
) -> None:
    """Every run that the ledger does not have; the first of them tells how long all will take."""
    left = [run for run in runs if run.name not in ledger.figures]

    def soon(seconds: float) -> None:
        announce(Estimate(len(left) * seconds, None))

    def later(_: float) -> None:
        pass

    for run in runs:
        if run.name in ledger.figures:
            measuring.steps.advance(len(run.windows) + len(measuring.layers))
            continue
        ledger.part(run.name, partial(measuring.figures, run, soon if run is left[0] else later))


def _tokens(model: Runner, data: Data) -> TokenData:
    if isinstance(data, str | os.PathLike):
        return model.tokens(data)
    return array_ids(data, model.vocabulary)


def _controls(model: Runner, windows: Sequence[Window], seed: int, told: Told) -> list[KernelRun]:
    found = [KernelRun(Control.SHUFFLED, model, shuffled(windows, seed))]
    try:
        found.append(KernelRun(Control.FRESH, model.fresh(seed), windows))
    except AdapterError as error:
        told.first.append(f"no control with fresh weights: {error.message}; {error.hint}")
    return found
