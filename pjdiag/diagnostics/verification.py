"""Exactness of the transforms, and parity of our reading with the model's own attention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.adapters.reading import at_length
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.law_figures import Figures, kernel_figures, transform_figures
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.own_transforms import own_parts
from pjdiag.diagnostics.parity import parity
from pjdiag.diagnostics.progress import Progress, Steps, no_progress
from pjdiag.diagnostics.scopes import Group
from pjdiag.diagnostics.standard_transforms import PARAMETERS, standard_transforms
from pjdiag.position.kernel import PositionKernel
from pjdiag.position.transforms import PositionTransform
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Mechanism, Scope

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
OWN, STANDARD = "checkpoint", "standard"


def verify(
    reading: Reading,
    lengths: Sequence[int] | None = None,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Result:
    """Group law, relative-score law and growth of the norms; parity with the model's logits.

    The laws are measured at positions ``0 .. T-1`` for T in ``lengths`` (tokens, default 1,024 to
    32,768), in float32 and float64, with contents drawn from ``seed``: for every layer's own
    transform and bias (subject ``checkpoint``) and for transforms with stated parameters
    (subject ``standard``). ``laws`` has the formulas and tolerances. Parity needs torch and a
    model that this version can run; where it cannot be had, an entry says why. Model rows are
    the worst of the layers. ``progress`` is told the share of the work that is done.

    Raises UsageError for a length below 2, CheckpointError where the tensors are not those of
    the model that the checkpoint states.
    """
    windows = check_lengths(LENGTHS if lengths is None else lengths)
    measured = _Measured(seed)
    steps = Steps(progress, len(windows) + 1)
    own: list[Row] = []
    standard: list[Row] = []
    skipped: list[Skipped] = []
    for length in windows:
        parts, problems = own_parts(at_length(reading, length))
        skipped += [entry for entry in problems if entry not in skipped]
        for part in parts:
            figures = measured.of(part.part, length)
            own += _rows(OWN, part.mechanism.value, part.mechanism, part.layer, figures)
        for entry in standard_transforms(length):
            figures = measured.of(entry.transform, length)
            standard += _rows(STANDARD, entry.name, entry.mechanism, None, figures)
        steps.advance(1)
    compared, problems = parity(reading, seed)
    for layer, figures in compared:
        own += _rows(OWN, layer.transform, layer.mechanism, layer.index, figures)
    skipped += [entry for entry in problems if entry not in skipped]
    steps.advance(1)
    return outcome(
        reading,
        "verify",
        (*_worst_of_layers(own), *own, *standard),
        skipped,
        lengths=list(windows),
        seed=seed,
        standard_parameters=PARAMETERS,
    )


def violated(result: Result) -> bool:
    """Whether a law or the parity of the checkpoint's own does not hold."""
    return any(row["subject"] == OWN and row["passed"] is False for row in result.rows)


def unmeasured(result: Result) -> bool:
    """Whether nothing of the checkpoint's own could be measured."""
    return not any(row["subject"] == OWN for row in result.rows)


class _Measured:
    """Figures by transform and length: layers that are alike are measured once."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[Any, ...], list[Figures]] = {}

    def of(self, part: PositionTransform | PositionKernel, length: int) -> list[Figures]:
        """The figures of a transform or a bias."""
        if isinstance(part, PositionKernel):
            return kernel_figures(part, length)
        key = (length, _value(part))
        if key not in self._known:
            self._known[key] = transform_figures(part, length, self._seed)
        return self._known[key]


def _value(parameter: Any) -> Any:
    if isinstance(parameter, np.ndarray):
        return parameter.shape, parameter.tobytes()
    if isinstance(parameter, PositionTransform):
        return (type(parameter), *(_value(getattr(parameter, f.name)) for f in fields(parameter)))
    return parameter


def _rows(
    subject: str,
    transform: str,
    mechanism: Mechanism | None,
    layer: int | None,
    figures: Iterable[Figures],
) -> list[Row]:
    scope = Scope.MODEL if layer is None else Scope.LAYER
    group: Group[Any] = Group(scope, layer, None, mechanism, ())
    return [group.row(subject=subject, transform=transform, **figure) for figure in figures]


def _worst_of_layers(rows: Sequence[Row]) -> list[Row]:
    """For every law, the row of the layer that keeps it worst, as a row of the model."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        whole = row["last_position"] == row["eval_length"] - 1
        names = ("transform", "law", "precision", "eval_length")
        key = (*(row[name] for name in names), whole)
        if key not in found or _badness(row) > _badness(found[key]):
            found[key] = row
    several = len({row["layer"] for row in rows}) > 1
    worst = []
    for row in found.values():
        reason = row["reason"]
        if several and row["passed"] is False:
            reason = f"layer {row['layer']}: {reason}"
        scope = {"layer": None, "scope": Scope.MODEL.value, "reason": reason}
        worst.append({**row, **scope})
    return worst


def _badness(row: Row) -> float:
    """Error over tolerance, or the growth; what fails without a figure is worst."""
    if row["error"] is not None:
        error, tolerance = float(row["error"]), float(row["tolerance"])
        return error / tolerance if tolerance else math.inf if error else 0.0
    return math.inf if row["passed"] is False else float(row["growth"] or 0.0)
