"""Lag grids, taken in chunks so that memory does not grow with the length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pjdiag.arguments import require_lengths
from pjdiag.errors import UsageError

CHUNK = 65536
MAX_LENGTH = 2**24
"""Longest window in tokens; one head's components then take some gigabytes."""


def lag_chunks(
    first: int, last: int, dtype: type = np.float64, size: int = CHUNK
) -> Iterator[np.ndarray]:
    """Lags ``first .. last``, both included, in pieces of at most ``size``.

    >>> [len(piece) for piece in lag_chunks(0, 100_000)]
    [65536, 34465]
    """
    for start in range(first, last + 1, size):
        yield np.arange(start, min(start + size, last + 1), dtype=dtype)


def check_lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths in rising order, each once.

    Raises UsageError for what is no list of whole numbers, below 2 tokens and above
    ``MAX_LENGTH``.

    >>> check_lengths([4096, 128, 128])
    (128, 4096)
    """
    require_lengths(lengths)
    for length in lengths:
        if length < 2:
            raise UsageError(
                f"length is {length}; expected at least 2 tokens",
                "pass one that holds some lags, such as --length 512 or lengths=[512]",
            )
        if length > MAX_LENGTH:
            raise UsageError(
                f"length is {length}; expected at most {MAX_LENGTH} tokens",
                "pass a shorter one, such as --length 32768 or lengths=[32768]",
            )
    if not lengths:
        raise UsageError("no length was given", "pass one, such as --length 512 or lengths=[512]")
    return tuple(sorted(set(lengths)))
