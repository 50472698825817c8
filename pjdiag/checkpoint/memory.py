"""Whether a tensor fits into memory, asked before it is read: a sparse file is easily written."""

from __future__ import annotations

import math
from pathlib import Path

from pjdiag.checkpoint.text import shown
from pjdiag.errors import CheckpointError

INFORMATION = Path("/proc/meminfo")
SMALL = 2**28
"""Bytes below which nobody asks."""
BYTES = 4
"""Of a value, at least: floats below 32 bits become float32."""


def require_memory(name: str, shape: tuple[int, ...]) -> None:
    """Raises CheckpointError where a tensor of this shape needs more memory than there is.

    >>> require_memory("w", (4096, 4096))
    """
    needed = BYTES * math.prod(shape)
    if needed < SMALL:
        return
    available = _available()
    if available is not None and needed > available:
        raise CheckpointError(
            f"tensor {shown(name)} of shape {list(shape)} needs {needed / 1e9:.1f} GB of memory, "
            f"and {available / 1e9:.1f} GB are available",
            "check that the file is what it should be, or read it where there is more memory",
        )


def _available() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = INFORMATION.read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
