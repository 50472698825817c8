"""A model's losses over windows of a text, its attention, and the rows that tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.ledger import Ledger
from pjdiag.diagnostics.loss_engines import Engine, Text
from pjdiag.diagnostics.progress import Estimate, Steps
from pjdiag.diagnostics.run_cost import (
    WindowPlan,
    memory_available,
    plans_left,
    require_memory,
    seconds_needed,
)
from pjdiag.diagnostics.scopes import HeadItem, groups
from pjdiag.diagnostics.windows import bootstrap_interval
from pjdiag.results import Row, Skipped
from pjdiag.terms import Bucket, Mechanism, Scope

Spans: TypeAlias = tuple[Bucket, ...]
"""``all`` first."""


@dataclass(frozen=True)
class FoundLoss:
    """Figures of one length."""

    buckets: Spans
    by_window: NDArray[np.float64]
    """``[windows, buckets]``: mean loss."""
    attention: Mapping[int, NDArray[np.float64]] | None
    """Layer -> ``[H, buckets, 3]``: entropy, mean distance, sink mass."""

    def rows(self, reading: Reading, length: int, seed: int) -> list[Row]:
        """The model's rows, and with attention those of every layer and head."""
        intervals = bootstrap_interval(self.by_window, seed, length)
        items = [
            HeadItem(layer.index, head, mechanism, self._head(layer.index, head))
            for layer in reading.layers
            for mechanism in [_mechanism(layer.parts)]
            for head in range(layer.num_heads.value)
        ]
        made = []
        for group in groups(items):
            whole = group.scope == Scope.MODEL
            if not whole and self.attention is None:
                break
            for column, bucket in enumerate(self.buckets):
                low, high = intervals[column] if whole else (None, None)
                windows = len(self.by_window)
                figures = {
                    "eval_length": length,
                    "bucket": bucket.name,
                    "nll": float(self.by_window[:, column].mean()) if whole else None,
                    "ci_low": low,
                    "ci_high": high,
                    "windows": windows,
                    "tokens": windows * (bucket.last - bucket.first + 1),
                }
                made.append(group.row(**figures, **_attention(group.values, column)))
        return made

    def _head(self, layer: int, head: int) -> NDArray[np.float64] | None:
        if self.attention is None or layer not in self.attention:
            return None
        figures: NDArray[np.float64] = self.attention[layer][head]
        return figures


def _mechanism(parts: Sequence[Any]) -> Mechanism | None:
    mechanisms = {part.mechanism for part in parts} or {Mechanism.NONE}
    return mechanisms.pop() if len(mechanisms) == 1 else None


def _attention(heads: Sequence[NDArray[np.float64] | None], column: int) -> dict[str, Any]:
    """Means over the heads; every head and position counts the same."""
    known = [figures[column] for figures in heads if figures is not None]
    names = ("attention_entropy", "mean_distance", "sink_mass")
    if not known:
        return dict.fromkeys((*names, "effective_support"))
    means = dict(zip(names, np.mean(known, axis=0).tolist(), strict=True))
    return {**means, "effective_support": float(np.exp(means["attention_entropy"]))}


class MeasuredLoss:
    """A model that reads windows of a text."""

    def __init__(self, reading: Reading, engine: Engine, text: Text, attention: bool) -> None:
        self._reading, self._engine = reading, engine
        self._rows, self._attention = text.rows, attention

    def bad_weights(self) -> list[Skipped]:
        """Entries that name the tensors with NaN or infinity; empty where there are none."""
        bad = [f"{name} holds {count}" for name, count in self._engine.bad_weights().items()]
        if not bad:
            return []
        return everywhere(self._reading, f"{', '.join(bad[:3])} values that are NaN or infinite")

    def estimate(self, plans: Sequence[WindowPlan]) -> Estimate:
        """Time and memory. Raises UsageError where the memory is not there."""
        available = memory_available()
        most = 0
        for plan in plans:
            needed = self._engine.memory(plan)
            require_memory(needed, plan.length * plan.batch, available)
            most = max(most, needed)
        return Estimate(seconds_needed(self._try, plans), most)

    def measure(
        self,
        plan: WindowPlan,
        starts: NDArray[np.int64],
        spans: Spans,
        ledger: Ledger,
        steps: Steps,
    ) -> None:
        """Every window of one length, ``plan.batch`` at a time; ``starts`` ``[windows, 2]``."""
        for name, batch in _batches(plan, starts):
            ledger.part(name, lambda batch=batch: self._batch(batch, plan.length, spans))  # type: ignore[misc]
            steps.advance(len(batch) * cost(plan.length))

    def found(
        self, plan: WindowPlan, starts: NDArray[np.int64], spans: Spans, ledger: Ledger
    ) -> FoundLoss | None:
        """What the ledger has of one length; None where that is nothing."""
        kept = [
            (len(batch), ledger.figures[name])
            for name, batch in _batches(plan, starts)
            if name in ledger.figures
        ]
        if not kept:
            return None
        windows = sum(size for size, _ in kept)
        attention: dict[int, NDArray[np.float64]] = {}
        for size, figures in kept:
            for layer, means in figures["attention"].items():
                share = np.asarray(means, dtype=np.float64) * (size / windows)
                attention[int(layer)] = attention.get(int(layer), 0.0) + share
        losses = [np.asarray(figures["losses"], dtype=np.float64) for _, figures in kept]
        return FoundLoss(spans, np.concatenate(losses), attention or None)

    def left(
        self,
        plans: Sequence[WindowPlan],
        starts: Mapping[int, NDArray[np.int64]],
        ledger: Ledger,
    ) -> list[WindowPlan]:
        """``plans`` with the windows that the ledger does not have."""
        return plans_left(
            plans,
            {
                plan.length: sum(
                    len(batch)
                    for name, batch in _batches(plan, starts[plan.length])
                    if name in ledger.figures
                )
                for plan in plans
            },
        )

    def _batch(self, starts: NDArray[np.int64], length: int, spans: Spans) -> dict[str, Any]:
        edges = [(span.first, span.last) for span in spans]
        tokens = self._rows[starts[:, :1], starts[:, 1:] + np.arange(length + 1)]
        found = self._engine.evaluate(tokens, edges if self._attention else None)
        means = [found.by_position[:, low : high + 1].mean(axis=1) for low, high in edges]
        attention = found.attention or {}
        return {
            "losses": np.stack(means, axis=1).tolist(),
            "attention": {str(layer): figures.tolist() for layer, figures in attention.items()},
        }

    def _try(self, length: int, windows: int) -> None:
        spans = [(0, length - 1)] if self._attention else None
        rows = np.repeat(self._rows[:1, : length + 1], windows, axis=0)
        self._engine.evaluate(rows, spans)


def spans_of(buckets: Sequence[Bucket], length: int) -> Spans:
    """The whole window, named ``all``, and its buckets."""
    return (Bucket("all", 0, length - 1), *buckets)


def _batches(
    plan: WindowPlan, starts: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    for first in range(0, plan.windows, plan.batch):
        yield f"{plan.length}/{first}", starts[first : first + plan.batch]


def cost(length: int) -> int:
    """Of one window, in units of its own: a part per token and a part per pair of tokens."""
    return length * (length + 2048)


def everywhere(reading: Reading, reason: str) -> list[Skipped]:
    """Every layer left out for bad values."""
    return [Skipped(layer.index, reason, bad_values=True) for layer in reading.layers]
