"""Checks that adapters share: shapes and types of tensors, and values that are not finite."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pjdiag.adapters import BadTensor, Loaded
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError

REAL_DTYPES = ("F64", "F32", "F16", "BF16")


def not_finite(name: str, by_head: np.ndarray) -> list[BadTensor]:
    """The heads, along the first axis, in which ``name`` holds NaN or infinity.

    >>> not_finite("w", np.asarray([[1.0, 2.0], [np.nan, np.inf]]))
    [BadTensor(tensor='w', count=2, heads=(1,))]
    """
    counts = np.logical_not(np.isfinite(by_head)).reshape(by_head.shape[0], -1).sum(axis=1)
    return [
        BadTensor(name, int(count), (head,)) for head, count in enumerate(counts.tolist()) if count
    ]


def check_shapes(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises CheckpointError where a tensor is missing, not real, or of another shape."""
    for name, expected in shapes.items():
        header = checkpoint.headers.get(name)
        if header is None:
            raise CheckpointError(
                f"tensor {name} is missing; the method in the configuration needs it",
                "write the checkpoint again, complete",
            )
        if header.dtype not in REAL_DTYPES:
            raise CheckpointError(
                f"tensor {name} holds {header.dtype} values; expected {', '.join(REAL_DTYPES)}",
                "convert it, or dequantise it with its scales",
            )
        if header.shape != expected:
            raise CheckpointError(
                f"tensor {name} has shape {list(header.shape)}; expected {list(expected)}",
                "check num_heads, max_order and embed_dim in the configuration",
            )


def read_by_head(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> Loaded:
    """A tensor whose first axis is the heads, in float64, and its heads with bad values."""
    check_shapes(checkpoint, {name: shape})
    values = checkpoint.read(name).astype(np.float64)
    return Loaded(values, tuple(not_finite(name, values)))
