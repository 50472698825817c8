"""Bytes of a file through a memory map, as long as the file is the one that was opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pjdiag.checkpoint.text import shown_path
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    import numpy.typing as npt


class Stamp(NamedTuple):
    """What tells whether a file has changed."""

    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a file."""
        return cls(status.st_size, status.st_mtime_ns)

    def check(self, path: Path) -> None:
        """Raises CheckpointError where the file at ``path`` has changed, or cannot be found."""
        try:
            same = Stamp.of(path.stat()) == self
        except OSError as error:
            raise CheckpointError(
                f"{shown_path(path)} cannot be read any more: {error.strerror or error}",
                "load it again",
            ) from error
        if not same:
            raise CheckpointError(
                f"{shown_path(path)} has changed since it was opened", "load it again"
            )


def mapped_bytes(path: Path, stamp: Stamp, begin: int, size: int) -> npt.NDArray[np.uint8]:
    """Bytes ``begin .. begin + size - 1`` of the file, read when they are used.

    Raises CheckpointError where the file has changed since ``stamp`` was taken: a map over a
    file that became shorter would kill the process.
    """
    if size == 0:
        return np.empty(0, np.uint8)
    stamp.check(path)
    try:
        mapped: Any = np.memmap(path, np.uint8, "r", begin, (size,))
        return np.asarray(mapped)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{shown_path(path)} cannot be mapped: {error}", "load it again"
        ) from error
