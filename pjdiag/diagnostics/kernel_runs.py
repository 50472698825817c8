"""One reading of the windows after the other: the model's, and those of its controls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Layer
from pjdiag.diagnostics.compact_shapes import LEAST_LAGS
from pjdiag.diagnostics.heads import layers_in_words
from pjdiag.diagnostics.kernel_fits import Figures, Fitter, Key, candidates
from pjdiag.diagnostics.kernel_rows import kernel_rows
from pjdiag.diagnostics.kernel_sums import KernelSums, MeasuredKernel
from pjdiag.diagnostics.kernel_terms import Control, Side
from pjdiag.diagnostics.kernel_windows import Window, Windows
from pjdiag.diagnostics.progress import Steps
from pjdiag.diagnostics.runner import Runner, missed_layers
from pjdiag.diagnostics.scopes import HeadItem
from pjdiag.results import Row, Skipped
from pjdiag.terms import Mechanism

WORST_RESIDUAL = 1e-8
"""Of the equations; beyond it a warning says so."""


@dataclass(frozen=True)
class KernelRun:
    """The windows that one run reads, and what reads them."""

    control: Control | None
    model: Runner
    windows: Sequence[Window]

    @property
    def name(self) -> str:
        """The same in every run of the command."""
        return "model" if self.control is None else self.control.value


@dataclass(frozen=True)
class Measuring:
    """What all runs have in common."""

    layers: dict[int, Layer]
    train_length: int | None
    skip_first: int
    causal: bool | None
    steps: Steps

    def figures(self, run: KernelRun, soon: Callable[[float], None]) -> dict[str, Any]:
        """All that one run finds, as JSON values: its rows, and what ``Told`` hears of it.

        ``soon`` is told, once a layer is fitted, of the seconds that the run takes.
        """
        started = time.perf_counter()
        sums = self._sums(run)
        found = sums.measured()
        fitter = Fitter(
            self.train_length,
            {
                one.layer: candidates(self.layers.get(one.layer), one.kernel.shape[0])
                for one in found
            },
        )
        fitting = time.perf_counter()
        fits, skipped = [], list[Skipped]()
        for one in found:
            fits.append(list(_fitted(fitter, one, run, skipped)))
            self.steps.advance(1)
            if len(fits) == 1:
                one_layer = time.perf_counter() - fitting
                soon(fitting - started + one_layer * len(found))
        rows = list[Row]()
        for side in Side:
            items = [
                HeadItem(one.layer, head, _mechanism(self.layers.get(one.layer)), figures)
                for one, fitted in zip(found, fits, strict=True)
                if one.side == side
                for head, figures in fitted
            ]
            rows += kernel_rows(items, side, run.control)
        residuals = [one.residual for one in found if np.isfinite(one.residual)]
        return {
            "rows": rows,
            "skipped": [asdict(entry) for entry in skipped],
            "missed": _by_name(missed_layers(run.model)),
            "chosen": sorted(fitter.chosen),
            "reduced": sorted(fitter.reduced),
            "softcapped": sorted(sums.softcapped),
            "windowed": _by_name(sums.windowed),
            "layers": sorted({one.layer for one in found}),
            "steps": max((one.steps for one in found), default=0),
            "residual": max(residuals, default=0.0),
        }

    def _sums(self, run: KernelRun) -> KernelSums:
        requirement = requirement_of(self.layers, self.causal)
        sums = KernelSums(self.skip_first, lambda layer: requirement.get(layer, requirement[ANY]))
        for window in run.windows:
            present = None if window.present is None else window.present[None]
            run.model.run(window.ids[None], present, sums.observe)
            self.steps.advance(1)
        return sums


def _by_name(by_layer: Mapping[int, Any]) -> dict[str, Any]:
    return {str(layer): value for layer, value in by_layer.items()}


ANY = -1
"""Stands for a layer that the reading does not know."""


def requirement_of(layers: dict[int, Layer], causal: bool | None) -> dict[int, str]:
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
    fitter: Fitter, one: MeasuredKernel, run: KernelRun, skipped: list[Skipped]
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


class Told:
    """What the runs said beside figures."""

    def __init__(self, windows: Windows) -> None:
        """Starts with what the windows say."""
        self.first = list(windows.warnings)
        self._softcapped: set[int] = set()
        self._chosen: set[int] = set()
        self._reduced: set[int] = set()
        self.layers: set[int] = set()
        self.windowed: dict[int, int] = {}
        self.missed: dict[int, str] = {}
        self.steps = 0
        self.residual = 0.0

    def hear(self, run: KernelRun, figures: dict[str, Any]) -> None:
        """Keeps what the figures of a run say."""
        self._chosen |= set(figures["chosen"])
        self._reduced |= set(figures["reduced"])
        self.missed |= {int(layer): why for layer, why in figures["missed"].items()}
        self.steps = max(self.steps, figures["steps"])
        self.residual = max(self.residual, figures["residual"])
        if run.control is None:
            self._softcapped |= set(figures["softcapped"])
            self.windowed |= {int(layer): size for layer, size in figures["windowed"].items()}
            self.layers |= set(figures["layers"])

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
