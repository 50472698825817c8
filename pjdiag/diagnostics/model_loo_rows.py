"""The passes of one length, with and without each part, and the rows that tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.ablation_engines import AblationEngine
from pjdiag.diagnostics.ablation_parts import LayerParts, ModelRemoval
from pjdiag.diagnostics.ablation_targets import Target
from pjdiag.diagnostics.ledger import Ledger
from pjdiag.diagnostics.loss_engines import Text
from pjdiag.diagnostics.measured_loss import cost
from pjdiag.diagnostics.progress import Steps
from pjdiag.diagnostics.run_cost import WindowPlan
from pjdiag.diagnostics.window_plans import window_tokens
from pjdiag.diagnostics.windows import bootstrap_interval
from pjdiag.results import Row
from pjdiag.terms import DIAGNOSTICS

if TYPE_CHECKING:
    from pjdiag.models.ablation import LayerChange
    from pjdiag.models.running import RunningAttention

Floats = NDArray[np.float64]
Ends = tuple[float | None, float | None]

QUERIES = 32
"""Queries of a batch whose attention is compared, at least one a window."""
KEPT = 2**26
"""Bytes of components that are kept between batches."""
REMOVED, CONTROL = "removed", "control"
BLANK: Row = dict.fromkeys(column.name for column in DIAGNOSTICS["loo"])


@dataclass(frozen=True)
class LengthRun:
    """What is measured over windows of one length."""

    plan: WindowPlan
    starts: NDArray[np.int64]
    """``[windows, 2]``: row and first token."""
    parts: Mapping[int, LayerParts]
    """By layer, at this length."""
    targets: Sequence[Target]
    seed: int
    _changes: dict[tuple[str, int], LayerChange] = field(default_factory=dict)
    """What layers lose, by removal and layer, as far as ``KEPT`` goes."""

    def batches(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """The name and the windows of each batch."""
        for first in range(0, self.plan.windows, self.plan.batch):
            yield f"{self.plan.length}/{first}", self.starts[first : first + self.plan.batch]

    def passes_left(self, engine: AblationEngine, ledger: Ledger) -> float:
        """Whole passes over every window that are still to be made, about.

        A part that is exactly 0 takes none, and one that is removed from a layer on a part of one.
        """
        takes = {"whole": 1.0}
        for target in self.targets if engine.predicts else ():
            changes = target.changes(self.plan.length, self._change)
            idle = all(change.nothing for change in changes.values())
            for kind in (REMOVED, CONTROL):
                takes[f"{target.name}/{kind}"] = 0.0 if idle else engine.share(target.first)
        names = [name for name, _ in self.batches()]
        left = [
            passes
            for what, passes in takes.items()
            for name in names
            if f"{name}/{what}" not in ledger.figures
        ]
        return sum(left) / len(names)

    def measure(self, engine: AblationEngine, text: Text, ledger: Ledger, steps: Steps) -> None:
        """Every pass of every batch, part by part."""
        for name, starts in self.batches():
            tokens = window_tokens(text, starts, self.plan.length)
            weight = len(starts) * cost(self.plan.length)
            ledger.part(f"{name}/whole", partial(self._whole, engine, tokens, name))
            steps.advance(weight)
            for target in self.targets if engine.predicts else ():
                for kind in (REMOVED, CONTROL):
                    whole = ledger.figures[f"{name}/whole"]["losses"]
                    without = partial(self._without, engine, tokens, target, kind, whole)
                    ledger.part(f"{name}/{target.name}/{kind}", without)
                    steps.advance(weight)

    def _change(self, removal: ModelRemoval, index: int) -> LayerChange:
        """What all heads of a layer lose; the batches share it."""
        key = (removal.name, index)
        if key in self._changes:
            return self._changes[key]
        parts = self.parts[index]
        made = removal.change(parts, self.plan.length)
        size = 4 * parts.layer.num_heads.value * self.plan.length
        if (len(self._changes) + 1) * size < KEPT:
            self._changes[key] = made
        return made

    def _whole(
        self, engine: AblationEngine, tokens: NDArray[np.integer], name: str
    ) -> dict[str, Any]:
        """Losses of the windows, and what each removal does to each head's attention."""
        from pjdiag.models.ablated_kl import attention_kl, sampled_queries

        chosen = list(dict.fromkeys(target.removal for target in self.targets))
        length = self.plan.length
        first = int(name.partition("/")[2])
        queries = sampled_queries(len(tokens), length, QUERIES, [self.seed, length, first])
        moved: dict[str, dict[str, list[float]]] = {removal.name: {} for removal in chosen}

        def observe(index: int, seen: RunningAttention) -> None:
            parts = self.parts.get(index)
            here = [r for r in chosen if parts is not None and r.touches(parts)]
            if parts is None or not here or engine.sinks:
                return
            found = attention_kl(seen, [self._change(r, index) for r in here], queries)
            for removal, by_head in zip(here, found, strict=True):
                moved[removal.name][str(index)] = by_head.tolist()

        losses = engine.whole(tokens, observe)
        return {"losses": None if losses is None else losses.mean(axis=1).tolist(), "kl": moved}

    def _without(
        self,
        engine: AblationEngine,
        tokens: NDArray[np.integer],
        target: Target,
        kind: str,
        whole: list[float],
    ) -> list[float] | None:
        seed = self.seed if kind == CONTROL else None
        changes = target.changes(self.plan.length, self._change, seed)
        if not changes:
            return None
        if all(change.nothing for change in changes.values()):
            return whole  # a pass would give the same numbers
        by_window: list[float] = engine.without(tokens, changes).mean(axis=1).tolist()
        return by_window


@dataclass(frozen=True)
class LengthRows:
    """What one length has to tell."""

    rows: list[Row]
    warnings: list[str]
    overflow: bool = False
    """Whether the whole model's losses are not finite."""


def length_rows(run: LengthRun, ledger: Ledger) -> LengthRows:
    """The rows of all that the ledger has of ``run``."""
    rows: list[Row] = []
    warnings: list[str] = []
    finished = _finished(run, ledger)
    losses = [ledger.figures[f"{name}/whole"]["losses"] for name, _ in finished]
    if not all(np.isfinite(_array(found)).all() for found in losses if found is not None):
        return LengthRows([], [], overflow=True)
    windows = sum(len(starts) for _, starts in finished)
    by_target = {target.name: _deltas(run, ledger, target) for target in run.targets}
    for name, deltas in by_target.items():
        if deltas is not None and not np.isfinite(deltas).all():
            at = f"at {run.plan.length} tokens"
            warnings.append(f"without {name} or under its control the model overflows {at}")
            by_target[name] = None
    intervals = _intervals(run, by_target)
    for target in run.targets:
        changed, moved = by_target[target.name], _attention(run, ledger, target)
        if changed is None and moved is None:
            continue  # nothing of it is finished
        figures: dict[str, Any] = {"attention_kl": moved, "windows": windows}
        if changed is not None:
            figures |= _loss_figures(changed, intervals[target.name])
        tokens = figures["windows"] * run.plan.length
        shared = {"removed": target.removal.name, "eval_length": run.plan.length, "tokens": tokens}
        rows.append(target.group.row(**{**BLANK, **shared, **figures}))
    return LengthRows(rows, warnings)


def whole_loss(run: LengthRun, ledger: Ledger) -> float | None:
    """Mean loss of the model as it is over the finished windows; None where there is none."""
    found = [ledger.figures[f"{name}/whole"]["losses"] for name, _ in _finished(run, ledger)]
    known = [_array(losses) for losses in found if losses is not None]
    return float(np.concatenate(known).mean()) if known else None


def _finished(run: LengthRun, ledger: Ledger) -> list[tuple[str, NDArray[np.int64]]]:
    return [(n, starts) for n, starts in run.batches() if f"{n}/whole" in ledger.figures]


def _deltas(run: LengthRun, ledger: Ledger, target: Target) -> Floats | None:
    """``[windows, 2]``: loss without the part, and with the control, less that of the model."""
    found = []
    for name, _ in _finished(run, ledger):
        names = [f"{name}/{target.name}/{kind}" for kind in (REMOVED, CONTROL)]
        figures = [ledger.figures.get(each) for each in names]
        if None in figures:
            continue
        whole = _array(ledger.figures[f"{name}/whole"]["losses"])
        found.append(np.stack([_array(each) - whole for each in figures], axis=1))
    return np.concatenate(found) if found else None


def _attention(run: LengthRun, ledger: Ledger, target: Target) -> float | None:
    """Mean over windows, queries and the heads that lose the part."""
    total, windows = 0.0, 0
    for name, starts in _finished(run, ledger):
        by_layer = ledger.figures[f"{name}/whole"]["kl"].get(target.removal.name, {})
        heads = [
            divergence
            for index in target.layers
            for head, divergence in enumerate(by_layer.get(str(index), ()))
            if target.group.head in (None, head)
        ]
        if heads:
            total += len(starts) * float(np.mean(heads))
            windows += len(starts)
    return total / windows if windows else None


def _intervals(run: LengthRun, by_target: Mapping[str, Floats | None]) -> dict[str, list[Ends]]:
    """Intervals of both columns of each target; those over as many windows share their draw."""
    found: dict[str, list[Ends]] = {}
    known = {name: deltas for name, deltas in by_target.items() if deltas is not None}
    for size in {len(deltas) for deltas in known.values()}:
        names = [name for name, deltas in known.items() if len(deltas) == size]
        columns = np.concatenate([known[name] for name in names], axis=1)
        ends = bootstrap_interval(columns, run.seed, run.plan.length)
        found |= {name: ends[2 * n : 2 * n + 2] for n, name in enumerate(names)}
    return found


def _loss_figures(deltas: Floats, intervals: Sequence[Ends]) -> dict[str, Any]:
    (low, high), (control_low, control_high) = intervals
    removed, control = deltas.mean(axis=0).tolist()
    return {
        "loo_delta_nll": removed,
        "ci_low": low,
        "ci_high": high,
        "control_delta_nll": control,
        "control_low": control_low,
        "control_high": control_high,
        "windows": len(deltas),
    }


def _array(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)
