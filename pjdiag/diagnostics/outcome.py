"""A Result with the provenance that every diagnostic states."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

from pjdiag.adapters.protocol import Reading
from pjdiag.checkpoint.source import own_source
from pjdiag.errors import UsageError
from pjdiag.results import Result, Row, Skipped


@cache
def tool_version() -> str:
    """The installed version of pjdiag."""
    return version("pjdiag")


def outcome(
    reading: Reading,
    diagnostic: str,
    rows: Iterable[Row],
    skipped: Iterable[Skipped],
    warnings: Iterable[str] = (),
    **settings: Any,
) -> Result:
    """The rows of ``diagnostic`` with the checkpoint, the coverage and the settings used."""
    checkpoint = reading.checkpoint
    left_out = tuple(skipped)
    return Result(
        diagnostic=diagnostic,
        checkpoint={
            "path": str(checkpoint.path),
            "files": [str(path) for path in checkpoint.files],
            "format": checkpoint.format,
            "digest": checkpoint.digest(),
            "dtype": checkpoint.dtype(),
            "adapter": reading.adapter,
            "adapter_reason": reading.match.reason,
            "train_length": reading.train_length.value,
            "train_length_source": own_source(reading.train_length.source, checkpoint),
        },
        provenance={
            "tool": "pjdiag",
            "tool_version": tool_version(),
            "command": None,
            "layers": len(reading.layers),
            "layers_skipped": len(reading.skipped),
            "heads": _heads(reading),
            "heads_excluded": len({(e.layer, e.head) for e in left_out if e.head is not None}),
            "coverage": reading.coverage,
            **settings,
        },
        rows=tuple(rows),
        skipped=left_out,
        warnings=(*reading.warnings, *warnings),
    )


def table_outcome(
    diagnostic: str, rows: Iterable[Row], train_length: int, **settings: Any
) -> Result:
    """The rows of a table that speaks of no checkpoint."""
    return Result(
        diagnostic=diagnostic,
        checkpoint={"path": None, "train_length": train_length},
        provenance={
            "tool": "pjdiag",
            "tool_version": tool_version(),
            "command": None,
            **settings,
        },
        rows=tuple(rows),
    )


def check_train_length(train_length: int) -> None:
    """Raises UsageError below 2 tokens."""
    if train_length < 2:
        raise UsageError(
            f"train length is {train_length}; expected at least 2 tokens",
            "pass --train-length 1024",
        )


def require_train_length(reading: Reading) -> int:
    """L in tokens. Raises UsageError where the checkpoint does not say."""
    length = reading.train_length.value
    if length is None:
        raise UsageError(
            "the checkpoint does not state its training length, and this figure needs it",
            "pass --train-length",
        )
    return length


def _heads(reading: Reading) -> int | None:
    """Query heads of all layers; None where a layer does not tell its own."""
    counts: list[int | None] = [layer.num_heads.value for layer in reading.layers]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
