"""Position codes of heads, layers and the model against all candidate lags, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pjdiag.diagnostics.lags import lag_chunks
from pjdiag.diagnostics.nearest import Search, column_scale, quantise, query_lags
from pjdiag.diagnostics.progress import Steps
from pjdiag.terms import Bucket, Mechanism, Scope

CANDIDATES = 8192
"""Candidate lags taken at a time."""
MANY_QUERIES = 1024
"""With more queries than these fewer candidates are taken: an allocator gives larger products
back to the system, and clearing their memory again and again costs as much as the search."""
PRODUCTS = 2**21
"""Products of queries and candidates at a time, with many queries."""

Unit = tuple[int, int | None]
"""A layer and a head; None for the whole layer, layer -1 for the model."""
MODEL: Unit = (-1, None)

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Dot products ``[Q, n]``, squared norms of the queries ``[Q]`` and of the candidates ``[n]``."""


@dataclass(frozen=True)
class LayerCodes:
    """The position codes of one layer's heads, as a function of the lags."""

    layer: int
    mechanism: Mechanism | None
    heads: tuple[int, ...]
    codes: Callable[[np.ndarray], np.ndarray]
    """``[T] -> [H, T, F]`` in the dtype of the lags."""


@dataclass(frozen=True)
class Plan:
    """What is searched: queries in these buckets among the lags 1..T-1."""

    window: int
    """T in tokens."""
    buckets: tuple[Bucket, ...]
    precisions: tuple[str, ...]
    dtype: type
    queries: int
    """Most queries in a bucket."""
    scopes: Collection[Scope] = tuple(Scope)
    """Whose codes are searched."""


def search(
    layers: Sequence[LayerCodes], plan: Plan, progress: Steps
) -> dict[tuple[Unit, str], Search]:
    """The nearest candidates of every query, for each unit of the plan's scopes and precision.

    Codes are made chunk by chunk; memory grows with the queries, not with the window.
    """
    lags = np.concatenate([query_lags(b.first, b.last, plan.queries) for b in plan.buckets])
    steps = {
        (layer.layer, precision): column_scale(largest, precision)
        for layer in layers
        for largest in [largest_codes(layer, plan)]
        for precision in plan.precisions
    }
    asked = {
        (layer.layer, precision): quantise(made, steps[layer.layer, precision])
        for layer in layers
        for made in [layer.codes(lags.astype(plan.dtype))]
        for precision in plan.precisions
    }
    searches: dict[tuple[Unit, str], Search] = {}
    size = CANDIDATES if len(lags) <= MANY_QUERIES else max(1, PRODUCTS // len(lags))
    for chunk in lag_chunks(1, plan.window - 1, plan.dtype, size=size):
        for unit, precision, parts in _products(layers, chunk, steps, asked, plan):
            products, query_square, candidate_square = parts
            key = (unit, precision)
            if key not in searches:
                searches[key] = Search(lags, np.sqrt(query_square))
            searches[key].update(products, np.sqrt(candidate_square), int(chunk[0]))
        progress.advance(chunk.shape[0])
    return searches


def largest_codes(layer: LayerCodes, plan: Plan) -> np.ndarray:
    """Largest absolute code of each column over all candidates, ``[H, 1, F]``."""
    largest: np.ndarray = np.max(
        [
            np.abs(layer.codes(chunk)).max(axis=1, keepdims=True)
            for chunk in lag_chunks(1, plan.window - 1, plan.dtype)
        ],
        axis=0,
    )
    return largest


def _products(
    layers: Sequence[LayerCodes],
    chunk: np.ndarray,
    steps: dict[tuple[int, str], np.ndarray | None],
    asked: dict[tuple[int, str], np.ndarray],
    plan: Plan,
) -> Iterator[tuple[Unit, str, Parts]]:
    """One chunk's products and norms for each unit and precision.

    A concatenated code's dot product is the sum of its heads', so no wide code is ever built.
    """
    model: dict[str, Parts] = {}
    for layer in layers:
        raw = layer.codes(chunk)
        for precision in plan.precisions:
            candidates = quantise(raw, steps[layer.layer, precision])
            wanted = asked[layer.layer, precision]
            whole: Parts | None = None
            for position, head in enumerate(layer.heads):
                parts = _head_parts(wanted[position], candidates[position])
                if Scope.HEAD in plan.scopes:
                    yield (layer.layer, head), precision, parts
                whole = _sum(whole, parts)
            if whole is None:
                continue
            if Scope.LAYER in plan.scopes:
                yield (layer.layer, None), precision, whole
            model[precision] = _sum(model.get(precision), whole)
    if Scope.MODEL in plan.scopes:
        for precision, sums in model.items():
            yield MODEL, precision, sums


def _head_parts(queries: np.ndarray, candidates: np.ndarray) -> Parts:
    return (
        queries @ candidates.T,
        (queries**2).sum(axis=1),
        (candidates**2).sum(axis=1),
    )


def _sum(total: Parts | None, part: Parts) -> Parts:
    """``total`` with ``part`` added to its own arrays."""
    if total is None:
        return part[0].copy(), part[1].copy(), part[2].copy()
    for array, addition in zip(total, part, strict=True):
        array += addition
    return total
