"""Windows of bytes from a data file, and a bootstrap over them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pjdiag.arguments import require_path
from pjdiag.errors import DataError, UsageError

RESAMPLES = 2000
LEAST_WINDOWS = 4
"""For an interval over windows."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class ByteText:
    """A file as tokens: one byte each, whatever its encoding."""

    path: str
    tokens: NDArray[np.uint8]
    """``[N]``."""

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return f"sha256:{hashlib.sha256(self.tokens.tobytes()).hexdigest()}"

    def longest_window(self) -> int:
        """The largest T of which one window of T + 1 tokens fits."""
        return len(self.tokens) - 1


def read_bytes(path: str | os.PathLike[str]) -> ByteText:
    """The bytes of a file. Raises DataError where it cannot be read or holds less than 3."""
    require_path(path, "data")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"{path} cannot be read: {reason}", "pass a text file") from error
    if len(data) < 3:
        raise DataError(
            f"{path} holds {len(data)} bytes; expected at least 3", "pass a longer text"
        )
    return ByteText(str(path), np.frombuffer(data, dtype=np.uint8))


def window_starts(size: int, length: int, stride: int, limit: int) -> NDArray[np.int64]:
    """First tokens of the windows of ``length + 1`` out of ``size`` tokens, at most ``limit``.

    They start ``stride`` tokens apart at the beginning of the data. Empty where none fits.

    >>> window_starts(100, 32, 32, 8).tolist()
    [0, 32, 64]
    """
    if stride < 1:
        raise UsageError(f"stride is {stride}; expected at least 1", "pass --stride 512")
    if limit < 1:
        raise UsageError(f"the number of windows is {limit}; expected at least 1", "--windows 4")
    fitting = max(0, (size - length - 1) // stride + 1) if size > length else 0
    return np.arange(min(fitting, limit), dtype=np.int64) * stride


def bootstrap_interval(
    by_window: NDArray[np.float64], seed: int, length: int
) -> list[tuple[float | None, float | None]]:
    """95% percentile interval of the mean over windows, for each column of ``[windows, columns]``.

    Windows are drawn with replacement, 2,000 times, for all columns alike; ``seed`` and
    ``length`` make the draw. None of fewer than ``LEAST_WINDOWS``: they are its ends.

    >>> bootstrap_interval(np.ones((4, 1)), 0, 128)
    [(1.0, 1.0)]
    >>> bootstrap_interval(np.ones((3, 1)), 0, 128)
    [(None, None)]
    """
    windows, columns = by_window.shape
    if windows < LEAST_WINDOWS:
        return [(None, None)] * columns
    rng = np.random.default_rng([seed, length])
    drawn = rng.multinomial(windows, np.full(windows, 1 / windows), size=RESAMPLES)
    means = drawn @ by_window / windows
    edge = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [edge, 1 - edge], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))
