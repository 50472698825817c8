"""Which windows of a text are read: lengths, first tokens, and how many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.learned_positions import require_positions
from pjdiag.diagnostics.loss_engines import Text
from pjdiag.diagnostics.run_cost import WindowPlan, usual_batch
from pjdiag.diagnostics.windows import window_starts
from pjdiag.errors import DataError, UsageError

LONGEST_DEFAULT = 32768
DEFAULT_LENGTHS = 4
TOKENS_PER_LENGTH = 131_072
"""Predicted tokens of each length where the number of windows is not given."""
OVERLAP = "windows overlap: tokens count more than once, and the intervals are too narrow"


def text_windows(text: Text, length: int, stride: int | None, windows: int | None) -> np.ndarray:
    """Row and first token of every window, ``[windows, 2]``: row after row, from its beginning."""
    most = max(1, TOKENS_PER_LENGTH // length) if windows is None else windows
    rows, size = text.rows.shape
    within = window_starts(size, length, length if stride is None else stride, most)
    needed = -(-most // max(1, len(within)))
    row, start = np.meshgrid(np.arange(min(rows, needed)), within, indexing="ij")
    return np.stack([row.ravel(), start.ravel()], axis=1)[:most]


def chosen_lengths(
    asked: Sequence[int] | None, train_length: int, text: Text, positions: int | None
) -> tuple[tuple[int, ...], list[str]]:
    """The lengths to measure, and a warning that names default ones that had to be left out.

    Raises DataError where the data hold no window, UsageError beyond the learned positions.
    """
    fits = text.longest_window()
    count = f"{text.path} holds {fits + 1} {text.unit}s" + (" a row" if len(text.rows) > 1 else "")
    hint = f"pass --length {fits} or shorter, or a longer text"
    if asked is not None:
        lengths = check_lengths(asked)
        if lengths[-1] > fits:
            raise DataError(f"{count}; one window of {lengths[-1]} needs {lengths[-1] + 1}", hint)
        require_positions(lengths[-1], positions)
        return lengths, []
    wanted = [train_length]
    while len(wanted) < DEFAULT_LENGTHS and 4 * wanted[-1] <= LONGEST_DEFAULT:
        wanted.append(4 * wanted[-1])
    if positions is not None:
        wanted = [length for length in wanted if length <= positions] or [positions]
    kept = [length for length in wanted if length <= fits]
    if not kept:
        raise DataError(
            f"{count}; one window of the train length {train_length} needs {train_length + 1}",
            hint,
        )
    left = [f"{length:,}" for length in wanted if length > fits]
    message = f"the data hold no window of {', '.join(left)} tokens: left out"
    return tuple(kept), [message] if left else []


def window_plan(length: int, windows: int, batch: int | None, weights: int) -> WindowPlan:
    """How many windows are read, and how many at once by a model of so many ``weights``.

    Raises UsageError for a batch below 1.
    """
    if batch is not None and batch < 1:
        raise UsageError(f"batch is {batch}; expected at least 1", "pass --batch 1")
    most = usual_batch(length, weights) if batch is None else batch
    return WindowPlan(length, windows, min(windows, most))


def window_settings(text: Text, plans: Sequence[WindowPlan], stride: int | None) -> dict[str, Any]:
    """What the provenance of a result says of its text and windows."""
    return {
        "data": text.path,
        "data_bytes": text.size,
        "data_tokens": int(text.rows.size),
        "data_digest": text.digest,
        "unit": text.unit,
        "bytes_per_token": text.bytes_per_token,
        "lengths": [plan.length for plan in plans],
        "windows": {str(plan.length): plan.windows for plan in plans},
        "stride": {str(plan.length): plan.length if stride is None else stride for plan in plans},
        "batch": {str(plan.length): plan.batch for plan in plans},
    }


def window_tokens(text: Text, starts: np.ndarray, length: int) -> np.ndarray:
    """The windows ``[B, length + 1]`` that begin at ``starts`` ``[B, 2]``: row and token."""
    found: np.ndarray = text.rows[starts[:, :1], starts[:, 1:] + np.arange(length + 1)]
    return found
