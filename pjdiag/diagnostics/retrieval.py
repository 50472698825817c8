"""Can position codes still tell one lag from another?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.adapters.reading import at_length
from pjdiag.diagnostics.code_search import MODEL, LayerCodes, Plan, Unit, search
from pjdiag.diagnostics.hard_negative import FEWEST_LAGS, MAX_COLUMNS, Codes, hard_negative_decision
from pjdiag.diagnostics.heads import sound_heads, unwarned_overflow, without_tables
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.nearest import Search
from pjdiag.diagnostics.outcome import (
    check_train_length,
    outcome,
    require_train_length,
    table_outcome,
)
from pjdiag.diagnostics.position_codes import families, model_codes
from pjdiag.diagnostics.progress import Progress, Steps, no_progress
from pjdiag.diagnostics.rotary_only import without_code
from pjdiag.diagnostics.scopes import HeadItem, groups, model_row
from pjdiag.errors import MissingDependencyError, UsageError
from pjdiag.position import variants
from pjdiag.position.variants import VARIANTS, Variant, variant_codes
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import DEFAULT_PRECISIONS, PRECISIONS, Family, Scope, lag_buckets

DEFAULT_LENGTH = 32768
QUERIES = 128
VARIANT_CYCLES = (5, 17, 61)
"""Turns of the variants' carriers within the train length."""

Decision = dict[str, dict[str, float]]
"""Bucket to the trained decision's figures."""
UNDECIDED: tuple[Decision, str] = ({}, "")


@unwarned_overflow
def probe(
    reading: Reading,
    lengths: Sequence[int] | None = None,
    *,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    with_affine: bool = False,
    queries: int = QUERIES,
    decision: bool = True,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Result:
    """Nearest neighbour of each query lag among the lags 1..T-1, by cosine of position codes.

    Codes are ``position.codes.kernel_codes`` per head (``spectrum_codes`` for RoPE-like heads,
    in their own family); layer and model codes concatenate their heads'. Codes are computed in
    float32 (``fp32``, and ``int8`` / ``int4`` symmetric per column) or float64 (``fp64``).
    Queries: up to ``queries`` lags evenly spaced in each bucket. ``top1``, ``within_1/8/64``
    are shares of queries; ``margin`` the mean cosine of the lag itself less the best other;
    ``ties`` the mean number of candidates within 1e-6 of it, itself included. ``lengths`` in
    tokens, default 32,768; length-dependent frequencies are those at each length. With
    ``decision``, the model rows of unquantised codes also carry the trained decision of
    ``hard_negative.hard_negative_decision`` (it needs torch; without it a warning says so), seeded
    by ``seed``. ``progress`` is told the share of the work that is done. Raises UsageError for a
    length below 2 or an unknown precision.
    """
    train_length = require_train_length(reading)
    windows = _checked(lengths, precisions)
    rows: list[Row] = []
    warnings: list[str] = []
    left_out: list[Skipped] = []
    plans = _plans(windows, train_length, precisions, queries, tuple(Scope))
    steps = Steps(progress, sum(plan.window for plan in plans))
    for plan in plans:
        sound = sound_heads(at_length(reading, plan.window))
        by_family, skipped = families(sound, plan.window, with_affine)
        tables = without_tables(sound, "has no position codes: the lags of a bucket are one")
        unread = [without_code(reading, entry) for entry in sound.skipped]
        left_out += [e for e in (*unread, *skipped, *tables) if e not in left_out]
        for family, layers in by_family.items():
            searches = search(layers, plan, steps)
            codes = partial(model_codes, layers)
            figures, warning = _decision(codes, train_length, plan, seed) if decision else UNDECIDED
            warnings += [warning] if warning and warning not in warnings else []
            rows += _rows(layers, searches, plan, family, figures)
    return outcome(
        reading,
        "probe",
        rows,
        left_out,
        warnings,
        lengths=list(windows),
        queries_per_bucket=queries,
        with_affine=with_affine,
        precisions=list(precisions),
        seed=seed,
    )


def probe_variants(
    lengths: Sequence[int] | None = None,
    *,
    train_length: int = variants.TRAIN_LENGTH,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    decision: bool = True,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Result:
    """The same probe for the eight coordinates of ``position.variants``; no checkpoint needed.

    Frequencies ``2 pi {5, 17, 61} / L``, jet orders 0..3, damping 0.1. ``lengths`` in tokens,
    default 32,768. Arguments and errors as for ``probe``.
    """
    windows = _checked(lengths, precisions)
    check_train_length(train_length)
    omegas = [2 * math.pi * cycles / train_length for cycles in VARIANT_CYCLES]
    plans = _plans(windows, train_length, precisions, QUERIES, (Scope.MODEL,))
    steps = Steps(progress, len(VARIANTS) * sum(plan.window for plan in plans))
    rows: list[Row] = []
    warnings: list[str] = []
    for plan in plans:
        for variant in VARIANTS.values():
            codes = partial(_variant_codes, variant, train_length, omegas)
            layer = LayerCodes(0, None, (0,), partial(_as_one_head, codes))
            searches = search([layer], plan, steps)
            figures, warning = _decision(codes, train_length, plan, seed) if decision else UNDECIDED
            warnings += [warning] if warning and warning not in warnings else []
            for precision in plan.precisions:
                rows += [
                    model_row(variant=variant.name, family=None, **row)
                    for row in _search_rows(searches[MODEL, precision], plan, precision, figures)
                ]
    result = table_outcome(
        "probe",
        rows,
        train_length,
        lengths=list(windows),
        queries_per_bucket=QUERIES,
        precisions=list(precisions),
        omegas=omegas,
        max_order=variants.MAX_ORDER,
        damping=variants.DAMPING,
        seed=seed,
    )
    return replace(result, warnings=tuple(warnings))


def _checked(lengths: Sequence[int] | None, precisions: Sequence[str]) -> tuple[int, ...]:
    for precision in precisions:
        if precision not in PRECISIONS:
            raise UsageError(
                f"unknown precision {precision!r}; expected {', '.join(PRECISIONS)}",
                "pass one of them, such as --precision fp32 or precisions=['fp32']",
            )
    return check_lengths(lengths if lengths is not None else [DEFAULT_LENGTH])


def _variant_codes(
    variant: Variant, train_length: int, omegas: Sequence[float], lags: np.ndarray
) -> np.ndarray:
    codes: np.ndarray = variant_codes(
        variant, lags, train_length, variants.MAX_ORDER, omegas, variants.DAMPING
    )
    return codes


def _as_one_head(codes: Codes, lags: np.ndarray) -> np.ndarray:
    return codes(lags)[None]


def _plans(
    windows: Sequence[int],
    train_length: int,
    precisions: Sequence[str],
    queries: int,
    scopes: tuple[Scope, ...],
) -> list[Plan]:
    return [
        Plan(window, lag_buckets(train_length, window), tuple(chosen), dtype, queries, scopes)
        for window in windows
        for dtype, chosen in _by_dtype(precisions).items()
    ]


def _decision(codes: Codes, train_length: int, plan: Plan, seed: int) -> tuple[Decision, str]:
    """The trained decision's figures by bucket, or none and why."""
    if train_length < FEWEST_LAGS:
        return {}, f"no trained decision: a train length of {train_length} leaves too few lags"
    columns = codes(np.ones(1, dtype=plan.dtype)).shape[1]
    if columns > MAX_COLUMNS:
        return {}, f"no trained decision: the code has {columns} columns, more than {MAX_COLUMNS}"
    try:
        figures = hard_negative_decision(
            codes, train_length, plan.buckets, seed=seed, dtype=plan.dtype
        )
    except MissingDependencyError as error:
        return {}, f"no trained decision: {error.message}"
    return figures, ""


def _by_dtype(precisions: Sequence[str]) -> dict[type, list[str]]:
    chosen: dict[type, list[str]] = {}
    for precision in precisions:
        chosen.setdefault(np.float64 if precision == "fp64" else np.float32, []).append(precision)
    return chosen


def _rows(
    layers: Sequence[LayerCodes],
    searches: dict[tuple[Unit, str], Search],
    plan: Plan,
    family: Family,
    figures: Decision,
) -> Iterator[Row]:
    items = [
        HeadItem(layer.layer, head, layer.mechanism, None)
        for layer in layers
        for head in layer.heads
    ]
    for group in groups(items):
        unit = MODEL if group.layer is None else (group.layer, group.head)
        decided = figures if unit == MODEL else {}
        for precision in plan.precisions:
            for row in _search_rows(searches[unit, precision], plan, precision, decided):
                yield group.row(variant="checkpoint", family=family.value, **row)


def _search_rows(
    found: Search, plan: Plan, precision: str, figures: Decision
) -> Iterator[dict[str, Any]]:
    """The probe's figures in each bucket of a search."""
    near = found.query_norm[found.queries <= plan.buckets[0].last].mean()
    for bucket in plan.buckets:
        inside = (found.queries >= bucket.first) & (found.queries <= bucket.last)
        decided = figures.get(bucket.name, {}) if precision.startswith("fp") else {}
        yield {
            "precision": precision,
            "eval_length": plan.window,
            "bucket": bucket.name,
            **found.figures(np.flatnonzero(inside)),
            "norm_growth": float(found.query_norm[inside].mean() / near) if near > 0 else None,
            "hard_pair_accuracy": decided.get("hard_pair_accuracy"),
            "random_pair_accuracy": decided.get("random_pair_accuracy"),
            "chance": 1 / (plan.window - 1),
        }
