"""Tables of absolute positions, recognised by their names."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from pjdiag.adapters import AbsolutePositions, Sourced
from pjdiag.checkpoint import Checkpoint
from pjdiag.terms import Mechanism
from pjdiag_plugins.checked import REAL_DTYPES

NAME = re.compile(
    r"(?:.*\.)?(?:pos|position|positional|wpe|pe|embed_positions)"
    r"(?:_?(?:emb|embed|embedding|embeddings|encoding|encodings|encoder|table))?"
    r"(?:\.(?:weight|pe|emb\.weight))?"
)
SINUSOIDAL = "a sinusoidal table, stored and not learned"


@dataclass(frozen=True)
class PositionTable:
    """A table of one vector per position."""

    name: str
    positions: int
    width: int

    def part(self, note: str = "") -> AbsolutePositions:
        """The table as a part of a layer."""
        source = f"tensor {self.name}" + (f": {note}" if note else "")
        return AbsolutePositions(Mechanism.LEARNED_ABSOLUTE, Sourced(self.positions, source))


def position_table(checkpoint: Checkpoint, width: int, scope: str = "") -> PositionTable | None:
    """The first table of vectors of ``width`` whose name starts with ``scope``.

    Axes of size 1 do not count; rows that are reserved are not known and counted in.
    """
    for name, header in checkpoint.headers.items():
        if not name.startswith(scope) or not NAME.fullmatch(name):
            continue
        shape = [size for size in header.shape if size != 1]
        if header.dtype in REAL_DTYPES and len(shape) == 2 and shape[1] == width:
            return PositionTable(name, shape[0], width)
    return None


def is_sinusoidal(checkpoint: Checkpoint, table: PositionTable) -> bool:
    """Whether the table holds sines and cosines of its positions, base 10000.

    Decided by its second row: sin and cos of the frequencies, in turn or in two halves.
    """
    if checkpoint.headers[table.name].shape[0] == 1:
        rows = checkpoint.read(table.name).reshape(table.positions, table.width)
    else:
        rows = checkpoint.read_rows(table.name, 0, 2).reshape(-1, table.width)
    if rows.shape[0] < 2 or table.width % 2:
        return False
    frequencies = np.exp(-np.arange(0, table.width, 2) * math.log(10000.0) / table.width)
    sin, cos = np.sin(frequencies), np.cos(frequencies)
    in_turn = np.stack([sin, cos], axis=-1).reshape(-1)
    wanted = (in_turn, np.concatenate([sin, cos]))
    return any(np.allclose(rows[1], row, atol=1e-2) for row in wanted)
