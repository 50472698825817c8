"""From a checkpoint to its layers in effective values."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pjdiag.adapters.protocol import Adapter, Layer, Match, Reading, SkippedLayer, Sourced
from pjdiag.adapters.registry import WRITE_A_MAP, detect, registrations
from pjdiag.arguments import require_number, require_whole
from pjdiag.errors import InconclusiveError, UsageError

if TYPE_CHECKING:
    from pjdiag.checkpoint import Checkpoint


def read(
    checkpoint: Checkpoint,
    *,
    train_length: int | None = None,
    eval_length: int | None = None,
    strict: bool = False,
    min_coverage: float = 0.0,
) -> Reading:
    """The checkpoint's layers as its best adapter sees them.

    ``train_length`` (tokens) replaces what the checkpoint says. ``eval_length`` (tokens) is the
    length at which length-dependent frequencies are asked for. Raises AdapterError where no
    adapter fits, UsageError for a length below 2, InconclusiveError where a layer is skipped
    under ``strict`` or the share of layers read is below ``min_coverage``.
    """
    for name, length in (("train length", train_length), ("length", eval_length)):
        if length is not None:
            require_whole(length, name)
        if length is not None and length < 2:
            raise UsageError(f"{name} is {length}; expected at least 2 tokens", "pass a larger one")
    require_number(min_coverage, "min_coverage")
    known = registrations()
    adapter, match = _of_modules(checkpoint) or detect(checkpoint, known)
    stated = (
        adapter.train_length(checkpoint)
        if train_length is None
        else Sourced(train_length, "--train-length")
    )
    found = tuple(adapter.layers(checkpoint, stated.value, eval_length))
    reading = Reading(
        checkpoint=checkpoint,
        adapter=adapter.name,
        match=match,
        train_length=stated,
        eval_length=eval_length,
        layers=tuple(layer for layer in found if isinstance(layer, Layer)),
        skipped=tuple(layer for layer in found if isinstance(layer, SkippedLayer)),
        warnings=(
            *checkpoint.warnings,
            *dict.fromkeys(text for layer in found for text in getattr(layer, "warnings", ())),
            *(
                f"plugin {entry.name} ({entry.origin}) is not used: {entry.problem}"
                for entry in known
                if entry.problem and not entry.problem.startswith("disabled")
            ),
        ),
    )
    _check_coverage(reading, strict, min_coverage)
    return reading


def _of_modules(checkpoint: Checkpoint) -> tuple[Adapter, Match] | None:
    if checkpoint.files:
        return None
    from pjdiag.adapters.live_modules import live_modules  # files need none of it

    return live_modules(checkpoint)


def at_length(reading: Reading, eval_length: int) -> Reading:
    """The same checkpoint read at another length: frequencies may depend on it."""
    if reading.eval_length == eval_length:
        return reading
    found = read(
        reading.checkpoint, train_length=reading.train_length.value, eval_length=eval_length
    )
    return replace(found, train_length=reading.train_length)  # with where it comes from


def _check_coverage(reading: Reading, strict: bool, min_coverage: float) -> None:
    reasons = _reasons(reading.skipped)
    total = len(reading.layers) + len(reading.skipped)
    if strict and reading.skipped:
        raise UsageError(
            f"{len(reading.skipped)} layers are skipped and --strict forbids it ({reasons})",
            "leave --strict out to see the other layers",
        )
    if not reading.layers:
        raise InconclusiveError(
            f"none of the {total} layers could be read" + (f" ({reasons})" if reasons else ""),
            WRITE_A_MAP,
        )
    if reading.coverage < min_coverage:
        raise InconclusiveError(
            f"{len(reading.layers)} of {total} layers could be read, a coverage of "
            f"{reading.coverage:.0%}; expected at least {min_coverage:.0%} ({reasons})",
            "lower --min-coverage, or see `pjdiag plugins`",
        )


def _reasons(skipped: tuple[SkippedLayer, ...], shown: int = 3) -> str:
    """Why layers were skipped; a reason that several share is said once, for the first of them.

    >>> _reasons(tuple(SkippedLayer(index, f"no layers.{index}.q_proj") for index in range(4)))
    'all for one reason, such as layer 0: no layers.0.q_proj'
    >>> _reasons((SkippedLayer(0, "no q_proj"), *(SkippedLayer(i, "linear") for i in (3, 4))))
    'layer 0: no q_proj; layer 3 and 1 other: linear'
    """
    alike: dict[str, list[SkippedLayer]] = {}
    for entry in skipped:
        pattern = re.sub(rf"(?<=\.){entry.index}(?=\.)", "*", entry.reason)
        alike.setdefault(pattern, []).append(entry)
    if len(alike) == 1 and len(skipped) > 1:
        return f"all for one reason, such as layer {skipped[0].index}: {skipped[0].reason}"
    found = []
    for first, *others in list(alike.values())[:shown]:
        more = f" and {len(others)} other{'s' * (len(others) > 1)}" if others else ""
        found.append(f"layer {first.index}{more}: {first.reason}")
    rest = len(alike) - len(found)
    return "; ".join([*found, *([f"and {rest} more reasons"] if rest else [])])
