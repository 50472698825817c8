"""Can a checkpoint's own position codes still tell one lag from another?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.heads import LayerKernel, LayerSpectrum, sound_heads
from pjdiag.diagnostics.lags import check_lengths, lag_chunks
from pjdiag.diagnostics.nearest import Search, column_scale, quantise, query_lags
from pjdiag.diagnostics.outcome import outcome, require_train_length
from pjdiag.diagnostics.progress import Progress, Steps, no_progress
from pjdiag.diagnostics.scopes import HeadItem, groups
from pjdiag.errors import UsageError
from pjdiag.position.codes import kernel_codes, spectrum_codes
from pjdiag.position.kernel import jet_sectors, mass
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import Bucket, Family, Mechanism, lag_buckets

PRECISIONS = ("fp32", "fp64", "int8", "int4")
DEFAULT_PRECISIONS = ("fp32", "int8", "int4")
QUERIES = 128

Unit = tuple[int, int | None]
"""A layer and a head; None for the whole layer, layer -1 for the model."""
MODEL: Unit = (-1, None)


@dataclass(frozen=True)
class LayerCodes:
    """The position codes of one layer's heads, as a function of the lags."""

    layer: int
    mechanism: Mechanism
    heads: tuple[int, ...]
    codes: Callable[[np.ndarray], np.ndarray]
    """``[T] -> [H, T, F]`` in the dtype of the lags."""


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
                searches = _search(layers, window, buckets, chosen, dtype, queries, steps)
                rows += _rows(layers, searches, window, buckets, chosen, family)
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


def _search(
    layers: Sequence[LayerCodes],
    window: int,
    buckets: Sequence[Bucket],
    precisions: Sequence[str],
    dtype: type,
    queries: int,
    progress: Steps,
) -> dict[tuple[Unit, str], Search]:
    """Every head, every layer and the model against all candidates, in one pass over them."""
    lags = np.concatenate([query_lags(b.first, b.last, queries) for b in buckets])
    steps = _steps(layers, window, precisions, dtype)
    asked = {
        (layer.layer, precision): quantise(layer.codes(lags.astype(dtype)), step)
        for layer in layers
        for precision in precisions
        for step in [steps[layer.layer, precision]]
    }
    searches: dict[tuple[Unit, str], Search] = {}
    for chunk in lag_chunks(1, window - 1, dtype, size=8192):
        for unit, precision, products, norms in _products(layers, chunk, steps, asked, precisions):
            query_norm, candidate_norm = np.sqrt(norms[0]), np.sqrt(norms[1])
            key = (unit, precision)
            if key not in searches:
                searches[key] = Search(lags, query_norm)
            searches[key].update(products, candidate_norm, int(chunk[0]))
        progress.advance(chunk.shape[0])
    return searches


def _steps(
    layers: Sequence[LayerCodes], window: int, precisions: Sequence[str], dtype: type
) -> dict[tuple[int, str], np.ndarray | None]:
    """Quantiser steps ``[H, 1, F]`` from the largest code of each column over all candidates."""
    steps: dict[tuple[int, str], np.ndarray | None] = {}
    for layer in layers:
        largest: np.ndarray = np.max(
            [
                np.abs(layer.codes(chunk)).max(axis=1, keepdims=True)
                for chunk in lag_chunks(1, window - 1, dtype)
            ],
            axis=0,
        )
        for precision in precisions:
            steps[layer.layer, precision] = column_scale(largest, precision)
    return steps


def _products(
    layers: Sequence[LayerCodes],
    chunk: np.ndarray,
    steps: dict[tuple[int, str], np.ndarray | None],
    asked: dict[tuple[int, str], np.ndarray],
    precisions: Sequence[str],
) -> Iterator[tuple[Unit, str, np.ndarray, tuple[np.ndarray, np.ndarray]]]:
    """Dot products ``[Q, n]`` and squared norms of one chunk for each unit and precision.

    A concatenated code's dot product is the sum of its heads', so no wide code is ever built.
    """
    model: dict[str, list[np.ndarray]] = {}
    for layer in layers:
        raw = layer.codes(chunk)
        for precision in precisions:
            candidates = quantise(raw, steps[layer.layer, precision])
            wanted = asked[layer.layer, precision]
            whole: list[np.ndarray] = []
            for position, head in enumerate(layer.heads):
                found = [
                    wanted[position] @ candidates[position].T,
                    (wanted[position] ** 2).sum(axis=1),
                    (candidates[position] ** 2).sum(axis=1),
                ]
                _accumulate(whole, found)
                yield (layer.layer, head), precision, found[0], (found[1], found[2])
            _accumulate(model.setdefault(precision, []), whole)
            yield (layer.layer, None), precision, whole[0], (whole[1], whole[2])
    for precision, sums in model.items():
        yield MODEL, precision, sums[0], (sums[1], sums[2])


def _accumulate(total: list[np.ndarray], part: Sequence[np.ndarray]) -> None:
    if not total:
        total += [array.copy() for array in part]
        return
    for array, addition in zip(total, part, strict=True):
        array += addition


def _rows(
    layers: Sequence[LayerCodes],
    searches: dict[tuple[Unit, str], Search],
    window: int,
    buckets: Sequence[Bucket],
    precisions: Sequence[str],
    family: Family,
) -> Iterator[Row]:
    items = [
        HeadItem(layer.layer, head, layer.mechanism, None)
        for layer in layers
        for head in layer.heads
    ]
    for group in groups(items):
        unit = MODEL if group.layer is None else (group.layer, group.head)
        for precision in precisions:
            search = searches[unit, precision]
            for bucket in buckets:
                inside = (search.queries >= bucket.first) & (search.queries <= bucket.last)
                figures: dict[str, Any] = search.figures(np.flatnonzero(inside))
                yield group.row(
                    variant="checkpoint",
                    family=family.value,
                    precision=precision,
                    eval_length=window,
                    bucket=bucket.name,
                    **figures,
                    chance=1 / (window - 1),
                )
