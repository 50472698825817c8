"""Windows of tokens that a kernel is measured on, and the same tokens in random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.arguments import require_whole
from pjdiag.diagnostics.token_data import TokenData
from pjdiag.errors import DataError, UsageError


@dataclass(frozen=True)
class Window:
    """One window of tokens."""

    ids: NDArray[np.int64]
    """``[T]``."""
    present: NDArray[np.bool_] | None = None
    """``[T]``, False on padding; None: no padding."""


@dataclass(frozen=True)
class Windows:
    """Windows of one length."""

    length: int
    chosen: tuple[Window, ...]
    warnings: tuple[str, ...]


def windows_of(
    data: TokenData, length: int | None, usual: int, count: int, least: int, unit: str = "token"
) -> Windows:
    """At most ``count`` windows of ``length`` tokens.

    One text ``[N]`` is cut from its beginning, without overlap; ``length`` is by default
    ``usual``, or the whole text where that is shorter. Of sequences ``[N, T]`` the first are
    taken, whole by default, else their first ``length`` places.

    Raises UsageError for a length or a number out of range, DataError where not even one window
    fits, or where tokens are missing inside a sequence or too few: ``least`` are needed.
    """
    require_whole(count, "the number of windows")
    if length is not None:
        require_whole(length, "length")
    if count < 1:
        raise UsageError(f"the number of windows is {count}; expected at least 1", "--windows 2")
    longest = data.ids.shape[-1]
    if length is None:
        length = longest if data.ids.ndim == 2 else min(usual, longest)
    elif length < least:
        raise UsageError(
            f"length is {length}; expected at least {least} {unit}s", f"pass --length {least}"
        )
    if longest < max(length, least):
        raise DataError(
            f"{data.path} holds {longest} {unit}s; one window needs {max(length, least)}",
            f"pass --length {longest}" if longest >= least else "pass a longer text",
        )
    rows = data.ids[:, :length] if data.ids.ndim == 2 else _cut(data.ids, length)
    masks = None if data.present is None else data.present[:, :length]
    chosen = tuple(
        Window(row, None if masks is None else masks[number])
        for number, row in enumerate(rows[:count])
    )
    for number, window in enumerate(chosen):
        span = valid_span(window.present, length, f"sequence {number} of {data.path}")
        if span.stop - span.start < least:
            raise DataError(
                f"sequence {number} of {data.path} holds {span.stop - span.start} {unit}s beside "
                f"padding; expected at least {least}",
                "leave short sequences out",
            )
    few = f"the data hold {len(chosen)} of the {count} windows of {length:,} {unit}s asked for"
    return Windows(length, chosen, (few,) if len(chosen) < count else ())


def valid_span(present: NDArray[np.bool_] | None, length: int, what: str) -> slice:
    """The tokens that are no padding. Raises DataError unless they are in one piece.

    >>> valid_span(np.asarray([False, True, True]), 3, "a")
    slice(1, 3, None)
    """
    if present is None:
        return slice(0, length)
    places = np.flatnonzero(present)
    if not len(places):
        raise DataError(f"{what} is padding throughout", "leave it out")
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 != len(places):
        hole = first + int(np.flatnonzero(~present[first:])[0])
        raise DataError(
            f"{what} has padding at position {hole}, between tokens; lags are not defined there",
            "pad at the beginning or at the end only",
        )
    return slice(first, last + 1)


def shuffled(windows: Sequence[Window], seed: int) -> tuple[Window, ...]:
    """The same windows, the tokens of each in random order; padding stays where it is.

    >>> [sorted(w.ids.tolist()) for w in shuffled([Window(np.arange(4))], 0)]
    [[0, 1, 2, 3]]
    """
    rng: Any = np.random.default_rng(seed)
    made = []
    for window in windows:
        span = valid_span(window.present, len(window.ids), "a window")
        ids = window.ids.copy()
        ids[span] = rng.permutation(ids[span])
        made.append(replace(window, ids=ids))
    return tuple(made)


def _cut(ids: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    whole = len(ids) // length
    return ids[: whole * length].reshape(whole, length)
