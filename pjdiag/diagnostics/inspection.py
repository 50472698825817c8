"""What each layer is made of, from configuration and tensor headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pjdiag.adapters.protocol import (
    AbsolutePositions,
    AdditiveKernel,
    Layer,
    MultiplicativeSpectrum,
    Reading,
    Sourced,
    TabulatedKernel,
)
from pjdiag.checkpoint.source import own_source
from pjdiag.diagnostics.outcome import outcome
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import DIAGNOSTICS, Mechanism, Scope, Sector

_ROTARY_FIELDS = (
    "inv_freq",
    "rotary_dim",
    "rope_layout",
    "rope_theta",
    "rope_type",
    "attention_factor",
)
_LAYER_FIELDS = (
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "scale",
    "window",
    "causal",
    "softcap",
    "qk_norm",
    "sinks",
    "shared_kv_layer",
)


def inspect(reading: Reading) -> Result:
    """Mechanism, head counts, frequencies and their provenance, one row per layer and part.

    Headers and configuration only: no tensor is read. A layer without a position mechanism has
    the mechanism ``none``. Frequencies are in rad per token at the stated length.
    """
    rows = [_in_own_terms(row, reading) for layer in reading.layers for row in _layer_rows(layer)]
    skipped = [Skipped(entry.index, entry.reason) for entry in reading.skipped]
    return outcome(reading, "inspect", rows, skipped, eval_length=reading.eval_length)


def _in_own_terms(row: Row, reading: Reading) -> Row:
    """The row with its sources as the file itself names them."""
    sources = {name: value for name, value in row.items() if name.endswith("_source") and value}
    return row | {n: own_source(value, reading.checkpoint) for n, value in sources.items()}


def _layer_rows(layer: Layer) -> Iterator[Row]:
    if not layer.parts:
        yield _row(layer, Mechanism.NONE)
    for part in layer.parts:
        if isinstance(part, AdditiveKernel):
            yield _row(
                layer,
                part.mechanism,
                sectors=[sector.value for sector in part.sectors],
                max_order=part.max_order,
                **_sourced("slopes", part.slopes),
            )
        elif isinstance(part, TabulatedKernel):
            yield _row(
                layer,
                part.mechanism,
                **_sourced("num_buckets", part.num_buckets),
                **_sourced("max_distance", part.max_distance),
            )
        elif isinstance(part, AbsolutePositions):
            yield _row(layer, part.mechanism, **_sourced("max_positions", part.max_positions))
        else:
            yield _rotary_row(layer, part)


def _rotary_row(layer: Layer, part: MultiplicativeSpectrum) -> Row:
    fields: dict[str, Any] = {}
    for name in _ROTARY_FIELDS:
        fields.update(_sourced(name, getattr(part, name)))
    return _row(
        layer,
        part.mechanism,
        **_sectors(part),
        **fields,
    )


def _sectors(part: MultiplicativeSpectrum) -> dict[str, Any]:
    """A mechanism that is not known claims no sector."""
    if part.mechanism == Mechanism.UNKNOWN:
        return {}
    return {"sectors": [Sector.FJ.value], "max_order": part.max_order}


def _row(layer: Layer, mechanism: Mechanism, **figures: Any) -> Row:
    row: Row = {
        "layer": layer.index,
        "head": None,
        "scope": Scope.LAYER.value,
        "mechanism": mechanism.value,
        **dict.fromkeys(column.name for column in DIAGNOSTICS["inspect"]),
    }
    for name in _LAYER_FIELDS:
        row.update(_sourced(name, getattr(layer, name)))
    return {**row, **figures}


def _sourced(name: str, found: Sourced[Any]) -> dict[str, Any]:
    value = list(found.value) if isinstance(found.value, tuple) else found.value
    return {name: value, f"{name}_source": found.source}
