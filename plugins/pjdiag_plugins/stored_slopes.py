"""ALiBi slopes that a checkpoint stores, as a list or as a table of the bias."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from pjdiag.adapters import BadTensor, Sourced
from pjdiag.checkpoint import Checkpoint
from pjdiag.position.alibi import SlopeFamily, classify_slopes, slope_of_bias
from pjdiag_plugins.checked import REAL_DTYPES, not_finite

NAME = re.compile(r"(?:[^.]*\.)*+(?:alibi_)?(?:slopes?|alibi|alibi_bias|alibi_mask)")
NUMBERED = re.compile(r"(?:^|\.)\d+\.")
LARGEST_TABLE = 2**26
POSITIONS = 64
"""Positions of a table that are looked at."""
NOT_LINEAR = 0.02
"""Share of a table's range that rounding to bfloat16 explains."""
REVERSED = "the sign of its ALiBi is reversed: far keys are favoured"


@dataclass(frozen=True)
class StoredSlopes:
    """Slopes as stored, in logits per token, positive where near keys are favoured."""

    slopes: Sourced[tuple[float, ...]]
    family: SlopeFamily
    bad: tuple[BadTensor, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about them."""
        return (f"{self.slopes.source}: {REVERSED}",) if self.family is SlopeFamily.REVERSED else ()


class SlopeStore:
    """The slopes of one checkpoint; each tensor is read once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._names = [name for name in checkpoint.headers if NAME.fullmatch(name)]
        self._read: dict[tuple[str, int], StoredSlopes | None] = {}

    def find(self, prefix: str, num_heads: int) -> StoredSlopes | None:
        """The slopes under a layer's ``prefix``, else those for all layers; None where none are.

        A list holds one value per head; a table ends in ``[H, T, T]`` or ``[H, 1, T]`` and is a
        multiple of the lag, up to a constant in each row.
        """
        own = [name for name in self._names if name.startswith(prefix)]
        shared = [name for name in self._names if not NUMBERED.search(name)]
        for name in own or shared:
            key = name, num_heads
            if key not in self._read:
                self._read[key] = _read(self._checkpoint, name, num_heads)
            if (found := self._read[key]) is not None:
                return found
        return None


def family_source(family: SlopeFamily, source: str) -> str:
    """Provenance that names the family first.

    >>> family_source(SlopeFamily.NAIVE, "tensor slopes")
    'naive family, tensor slopes'
    """
    return f"{family.value} family, {source}"


def _read(checkpoint: Checkpoint, name: str, num_heads: int) -> StoredSlopes | None:
    header = checkpoint.headers[name]
    size = math.prod(header.shape)
    if header.dtype not in REAL_DTYPES or size % num_heads or not 0 < size <= LARGEST_TABLE:
        return None
    if size == num_heads:
        values = checkpoint.read(name).astype(np.float64).reshape(num_heads)
    elif len(header.shape) >= 3 and header.shape[-3] == num_heads:
        table = checkpoint.read(name)[..., :POSITIONS, :POSITIONS].astype(np.float64)
        made = _slopes_of_table(table.reshape(-1, *table.shape[-3:])[0])
        if made is None:
            return None
        values = made
    else:
        return None
    bad = tuple(not_finite(name, values[:, None]))
    slopes = tuple(values.tolist())
    family = SlopeFamily.UNKNOWN if bad else classify_slopes(slopes)
    return StoredSlopes(Sourced(slopes, family_source(family, f"tensor {name}")), family, bad)


def _slopes_of_table(table: np.ndarray) -> np.ndarray | None:
    """``[H]`` of a table ``[H, T, T]`` or ``[H, 1, T]``; None where it is no ALiBi."""
    length = table.shape[-1]
    if length < 2 or table.shape[-2] not in (1, length):
        return None
    whole = np.broadcast_to(table, (table.shape[0], length, length))
    past = np.tril(np.ones((length, length), dtype=bool))
    if not np.isfinite(whole[:, past]).all():
        return None
    slopes: np.ndarray = slope_of_bias(np.where(past, whole, 0.0))
    lag = np.arange(length)[:, None] - np.arange(length)[None, :]
    rest = np.where(past, whole + slopes[:, None, None] * lag, 0.0)
    centred = rest - rest.sum(-1, keepdims=True) / past.sum(-1)[:, None]
    spread = np.abs(np.where(past, centred, 0.0)).max()
    return slopes if spread <= NOT_LINEAR * np.abs(slopes).max() * length else None
