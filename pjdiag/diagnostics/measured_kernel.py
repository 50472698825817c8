"""The kernel that any attention really has on data: what it does with the lag."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pjdiag.adapters.protocol import Layer, Reading
from pjdiag.adapters.reading import at_length
from pjdiag.diagnostics.compact_shapes import LEAST_LAGS
from pjdiag.diagnostics.heads import layers_in_words
from pjdiag.diagnostics.kernel_fits import Figures, Fitter, Key, candidates
from pjdiag.diagnostics.kernel_rows import kernel_rows
from pjdiag.diagnostics.kernel_sums import KernelSums, MeasuredKernel
from pjdiag.diagnostics.kernel_terms import Control, Side
from pjdiag.diagnostics.kernel_windows import Window, Windows, shuffled, windows_of
from pjdiag.diagnostics.learned_positions import learned_positions, require_positions
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.progress import (
    Announce,
    Estimate,
    Progress,
    Steps,
    no_announcement,
    no_progress,
)
from pjdiag.diagnostics.runner import Runner, missed_layers, runner
from pjdiag.diagnostics.scopes import HeadItem
from pjdiag.diagnostics.sector_fit import RCOND
from pjdiag.diagnostics.token_data import TokenData, array_ids
from pjdiag.errors import AdapterError, UsageError
from pjdiag.position.sink_share import QUERIES
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Mechanism

Data: TypeAlias = str | os.PathLike[str] | ArrayLike
"""A file, or token ids."""
LONGEST_DEFAULT = 2048
"""Tokens of a window where the length is not given."""
SKIP_FIRST = 4
NO_TRAIN_LENGTH = (
    "the training length is not known: no sector fit, no light-cone character, and the amplitudes "
    "of jets are those of (d/N)^r, N the lags; pass --train-length"
)
WORST_RESIDUAL = 1e-8
"""Of the equations; beyond it a warning says so."""


@dataclass(frozen=True)
class _Run:
    """The windows that one run reads, and what reads them."""

    control: Control | None
    model: Runner
    windows: Sequence[Window]


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
    Rows of a layer are medians over its heads; those of the model 10th, 50th and 90th percentiles.

    Raises DataError for data that do not fit, UsageError for an argument out of range, a window
    longer than the learned positions, or attention that is not causal where that is claimed: by
    ``causal``, or, where it is None, by the checkpoint; AdapterError where no model can be run.
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
    told = _Told(chosen)
    if train_length is None:
        told.first.append(NO_TRAIN_LENGTH)
    runs = [_Run(None, model, chosen.chosen)]
    if controls:
        runs += _controls(model, chosen.chosen, seed, told)
    steps = Steps(progress, len(runs) * (len(chosen.chosen) + len(layers)))
    rows: list[Row] = []
    skipped = [Skipped(entry.index, entry.reason) for entry in reading.skipped]
    missed: dict[int, str] = {}
    for run in runs:
        started = time.perf_counter()
        sums = _measure(run, skip_first, _requirement(layers, causal), steps)
        missed |= missed_layers(run.model)
        found = sums.measured()
        fitter = Fitter(
            train_length,
            {one.layer: candidates(layers.get(one.layer), one.kernel.shape[0]) for one in found},
        )
        fitting = time.perf_counter()
        fits = []
        for one in found:
            fits.append(list(_fitted(fitter, one, run, skipped)))
            steps.advance(1)
            if run is runs[0] and len(fits) == 1:
                one_layer = time.perf_counter() - fitting
                announce(Estimate(len(runs) * (fitting - started + one_layer * len(found)), None))
        for side in Side:
            items = [
                HeadItem(one.layer, head, _mechanism(layers.get(one.layer)), figures)
                for one, fitted in zip(found, fits, strict=True)
                if one.side == side
                for head, figures in fitted
            ]
            rows += kernel_rows(items, side, run.control)
        told.hear(run, sums, found, fitter)
    seen = told.layers
    skipped += [
        Skipped(index, missed.get(index, "its attention was not observed"))
        for index in layers
        if index not in seen and all(entry.layer != index for entry in skipped)
    ]
    return outcome(
        reading,
        "kernel",
        rows,
        skipped,
        told.warnings(skip_first, layers),
        data=text.path,
        data_digest=text.digest,
        unit=model.unit,
        length=chosen.length,
        windows=len(chosen.chosen),
        skip_first=skip_first,
        sink_queries=QUERIES,
        controls=controls,
        seed=seed,
        sliding_windows={str(layer): size for layer, size in sorted(told.windowed.items())},
        solver_steps=told.steps,
        solver_residual=told.residual,
        rcond=RCOND,
    )


def _tokens(model: Runner, data: Data) -> TokenData:
    if isinstance(data, str | os.PathLike):
        return model.tokens(data)
    return array_ids(data, model.vocabulary)


def _controls(model: Runner, windows: Sequence[Window], seed: int, told: _Told) -> list[_Run]:
    found = [_Run(Control.SHUFFLED, model, shuffled(windows, seed))]
    try:
        found.append(_Run(Control.FRESH, model.fresh(seed), windows))
    except AdapterError as error:
        told.first.append(f"no control with fresh weights: {error.message}; {error.hint}")
    return found


def _measure(run: _Run, skip_first: int, requirement: dict[int, str], steps: Steps) -> KernelSums:
    sums = KernelSums(skip_first, lambda layer: requirement.get(layer, requirement[ANY]))
    for window in run.windows:
        present = None if window.present is None else window.present[None]
        run.model.run(window.ids[None], present, sums.observe)
        steps.advance(1)
    return sums


ANY = -1
"""Stands for a layer that the reading does not know."""


def _requirement(layers: dict[int, Layer], causal: bool | None) -> dict[int, str]:
    """Why each layer's attention must be causal; empty where it need not be."""
    if causal is not None:
        return {ANY: "--causal asks for causal attention" if causal else ""}
    claims = {
        index: f"the checkpoint claims that it is ({layer.causal.source})"
        for index, layer in layers.items()
        if layer.causal.value
    }
    return {ANY: "", **claims}


def _fitted(
    fitter: Fitter, one: MeasuredKernel, run: _Run, skipped: list[Skipped]
) -> Iterator[tuple[int, dict[Key, Figures]]]:
    """Figures of each head; those that are not finite, or have too few lags, are left out."""
    what = "" if run.control is None else f" ({run.control.value})"
    if len(one.pairs) < LEAST_LAGS:
        reason = f"its window has {len(one.pairs)} lags; a kernel needs {LEAST_LAGS}"
        if run.control is None and one.side == Side.PAST:
            skipped.append(Skipped(one.layer, reason))
        return
    skipped += [
        Skipped(one.layer, f"its logits are not finite{what}", head=head, bad_values=True)
        for head in np.flatnonzero(~np.isfinite(one.kernel).all(axis=1)).tolist()
    ]
    yield from fitter.figures(one, curve=run.control is None)


def _mechanism(layer: Layer | None) -> Mechanism | None:
    """The mechanism of a layer's one part; None where it has several."""
    if layer is None:
        return Mechanism.UNKNOWN
    found = {part.mechanism for part in layer.parts} or {Mechanism.NONE}
    return found.pop() if len(found) == 1 else None


class _Told:
    """What the runs said beside figures."""

    def __init__(self, windows: Windows) -> None:
        self.first = list(windows.warnings)
        self._softcapped: set[int] = set()
        self._chosen: set[int] = set()
        self._reduced: set[int] = set()
        self.layers: set[int] = set()
        self.windowed: dict[int, int] = {}
        self.steps = 0
        self.residual = 0.0

    def hear(
        self, run: _Run, sums: KernelSums, found: Sequence[MeasuredKernel], fitter: Fitter
    ) -> None:
        """Keeps what a run says."""
        self._chosen |= fitter.chosen
        self._reduced |= fitter.reduced
        for one in found:
            self.steps = max(self.steps, one.steps)
            if np.isfinite(one.residual):
                self.residual = max(self.residual, one.residual)
        if run.control is None:
            self._softcapped |= sums.softcapped
            self.windowed |= sums.windowed
            self.layers |= {one.layer for one in found}

    def warnings(self, skip_first: int, layers: dict[int, Layer]) -> list[str]:
        """In the order in which a reader needs them."""
        found = list(self.first)
        if self._softcapped:
            found.append(
                f"the logits of {_named(self._softcapped)} are soft-capped: K is of the logits "
                "before the cap"
            )
        sinks = {index for index, layer in layers.items() if layer.sinks.value}
        if sinks and skip_first:
            found.append(f"sink_share leaves the learned sinks of {_named(sinks)} out")
        if self._chosen:
            found.append(
                f"{_named(self._chosen)}: no frequencies stated; the sector fit chose its own by "
                "matching pursuit"
            )
        if self._reduced:
            found.append(
                f"{_named(self._reduced)}: more frequencies than so few lags can tell apart; the "
                "sector fit uses those that explain most"
            )
        if self.residual > WORST_RESIDUAL:
            found.append(f"the equations are solved to {self.residual:.0e} only")
        return found


def _named(layers: set[int]) -> str:
    return layers_in_words(sorted(layers))
