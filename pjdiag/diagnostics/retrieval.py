"""Can a checkpoint's own position codes still tell one lag from another?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.code_search import MODEL, LayerCodes, Plan, Unit, search
from pjdiag.diagnostics.heads import LayerKernel, LayerSpectrum, sound_heads
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.nearest import Search
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.progress import Progress, Steps, no_progress
from pjdiag.diagnostics.scopes import HeadItem, groups
from pjdiag.errors import UsageError
from pjdiag.position.codes import kernel_codes, spectrum_codes
from pjdiag.position.kernel import jet_sectors, mass
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Family, lag_buckets

PRECISIONS = ("fp32", "fp64", "int8", "int4")
DEFAULT_PRECISIONS = ("fp32", "int8", "int4")
QUERIES = 128


def probe(
    reading: Reading,
    lengths: Sequence[int] | None = None,
    *,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    with_affine: bool = False,
    queries: int = QUERIES,
    progress: Progress = no_progress,
) -> Result:
    """Nearest neighbour of each query lag among the lags 1..T-1, by cosine of position codes.

    Codes are ``position.codes.kernel_codes`` per head (``spectrum_codes`` for RoPE-like heads,
    in their own family); layer and model codes concatenate their heads'. Codes are computed in
    float32 (``fp32``, and ``int8`` / ``int4`` symmetric per column) or float64 (``fp64``).
    Queries: up to ``queries`` lags evenly spaced in each bucket. ``top1``, ``within_1/8/64``
    are shares of queries; ``margin`` the mean cosine of the lag itself less the best other;
    ``ties`` the mean number of candidates within 1e-6 of it, itself included. ``lengths`` in
    tokens, default 32,768. ``progress`` is told the share of the work that is done. Raises
    UsageError for a length below 2 or an unknown precision.
    """
    train_length = require_train_length(reading)
    windows = check_lengths(lengths if lengths is not None else [32768])
    for precision in precisions:
        if precision not in PRECISIONS:
            raise UsageError(
                f"unknown precision {precision!r}; expected {', '.join(PRECISIONS)}",
                "pass --precision fp32",
            )
    sound = sound_heads(reading)
    families, skipped = _families(sound.kernels, sound.spectra, with_affine)
    rows: list[Row] = []
    by_dtype = _by_dtype(precisions)
    steps = Steps(progress, len(families) * len(by_dtype) * sum(windows))
    for window in windows:
        buckets = lag_buckets(train_length, window)
        for family, layers in families.items():
            for dtype, chosen in by_dtype.items():
                plan = Plan(window, buckets, tuple(chosen), dtype, queries)
                searches = search(layers, plan, steps)
                rows += _rows(layers, searches, plan, family)
    return outcome(
        reading,
        "probe",
        rows,
        (*sound.skipped, *skipped),
        lengths=list(windows),
        queries_per_bucket=queries,
        with_affine=with_affine,
        precisions=list(precisions),
    )


def _families(
    kernels: Sequence[LayerKernel], spectra: Sequence[LayerSpectrum], with_affine: bool
) -> tuple[dict[Family, list[LayerCodes]], list[Skipped]]:
    found: dict[Family, list[LayerCodes]] = {Family.ADDITIVE: [], Family.MULTIPLICATIVE: []}
    skipped: list[Skipped] = []
    for layer in kernels:
        codes, left_out = _kernel_layer(layer, with_affine)
        skipped += left_out
        if codes is not None:
            found[Family.ADDITIVE].append(codes)
    for spectrum in spectra:
        if spectrum.spectrum.amplitude.shape[2] > 1:
            reason = "jet orders of a rotary mechanism have no position code from weights alone"
            skipped.append(Skipped(spectrum.layer, reason))
            continue
        found[Family.MULTIPLICATIVE].append(
            LayerCodes(
                spectrum.layer,
                spectrum.mechanism,
                spectrum.heads,
                partial(_spectrum_layer, spectrum),
            )
        )
    return {family: layers for family, layers in found.items() if layers}, skipped


def _kernel_layer(layer: LayerKernel, with_affine: bool) -> tuple[LayerCodes | None, list[Skipped]]:
    jets = jet_sectors(layer.kernel)
    if not jets:
        reason = "the affine sector alone has no position code; it only orders lags"
        return None, [Skipped(layer.layer, reason)]
    sizes = np.sum([mass(layer.kernel, sector).sum(axis=1) for sector in jets], axis=0)
    alive = np.flatnonzero(sizes > 0)
    skipped = [
        Skipped(layer.layer, "every jet amplitude is zero: no position code", head=head)
        for head, size in zip(layer.heads, sizes, strict=True)
        if not size > 0
    ]
    if not alive.size:
        return None, skipped
    kernel = layer.kernel.map(lambda array: array[alive])

    def codes(lags: np.ndarray) -> np.ndarray:
        cast = kernel.map(lambda array: array.astype(lags.dtype))
        made: np.ndarray = kernel_codes(cast, lags, with_affine=with_affine)
        return made

    heads = tuple(layer.heads[position] for position in alive)
    return LayerCodes(layer.layer, layer.mechanism, heads, codes), skipped


def _spectrum_layer(layer: LayerSpectrum, lags: np.ndarray) -> np.ndarray:
    codes: np.ndarray = spectrum_codes(
        np.asarray(layer.spectrum.inv_freq).astype(lags.dtype),
        layer.spectrum.amplitude[:, :, 0].astype(lags.dtype),
        lags,
    )
    return codes


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
) -> Iterator[Row]:
    items = [
        HeadItem(layer.layer, head, layer.mechanism, None)
        for layer in layers
        for head in layer.heads
    ]
    for group in groups(items):
        unit = MODEL if group.layer is None else (group.layer, group.head)
        for precision in plan.precisions:
            for row in search_rows(searches[unit, precision], plan, precision):
                yield group.row(variant="checkpoint", family=family.value, **row)


def search_rows(found: Search, plan: Plan, precision: str) -> Iterator[dict[str, Any]]:
    """The probe's figures in each bucket of a search."""
    for bucket in plan.buckets:
        inside = (found.queries >= bucket.first) & (found.queries <= bucket.last)
        yield {
            "precision": precision,
            "eval_length": plan.window,
            "bucket": bucket.name,
            **found.figures(np.flatnonzero(inside)),
            "chance": 1 / (plan.window - 1),
        }
