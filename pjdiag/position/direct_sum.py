"""Two position transforms side by side: each acts on channels of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pjdiag.position._array import Array, namespace
from pjdiag.position.transforms import PositionTransform


@dataclass(frozen=True)
class DirectSumTransform(PositionTransform):
    """``first`` on the leading channels and ``second`` on the rest.

    >>> import numpy as np
    >>> from pjdiag.position.transforms import RotaryTransform
    >>> turn = RotaryTransform(2, np.asarray([np.pi]), "half")
    >>> both = DirectSumTransform(4, turn, PositionTransform(2))
    >>> both.key(np.asarray([[1.0, 0.0, 5.0, 6.0]]), np.asarray([1.0])).round(6).tolist()
    [[-1.0, 0.0, 5.0, 6.0]]
    """

    first: PositionTransform
    """``first.head_dim`` channels."""
    second: PositionTransform
    """``head_dim - first.head_dim`` channels."""

    @property
    def rate(self) -> float:
        """The faster of the two."""
        return max(self.first.rate, self.second.rate)

    @property
    def linear(self) -> bool:
        """Whether both act as matrices."""
        return self.first.linear and self.second.linear

    @property
    def order(self) -> int:
        """The larger of the two."""
        return max(self.first.order, self.second.order)

    @property
    def num_heads(self) -> int:
        """H where either has parameters per head."""
        return max(self.first.num_heads, self.second.num_heads)

    @property
    def clamp_start(self) -> float | None:
        """The earlier of the two."""
        starts = [part.clamp_start for part in (self.first, self.second)]
        return min((start for start in starts if start is not None), default=None)

    @property
    def shear_bound(self) -> float | None:
        """The smaller of the two."""
        bounds = [part.shear_bound for part in (self.first, self.second)]
        return min((bound for bound in bounds if bound is not None), default=None)

    def query(self, x: Array, positions: Array) -> Array:
        """Both parts' queries, side by side."""
        left, right = self._split(x)
        parts = [self.first.query(left, positions), self.second.query(right, positions)]
        return namespace(x).concat(parts, axis=-1)

    def key(self, x: Array, positions: Array) -> Array:
        """Both parts' keys, side by side."""
        left, right = self._split(x)
        parts = [self.first.key(left, positions), self.second.key(right, positions)]
        return namespace(x).concat(parts, axis=-1)

    def take(self, heads: Sequence[int]) -> DirectSumTransform:
        """Both parts of these heads."""
        return replace(self, first=self.first.take(heads), second=self.second.take(heads))

    def _split(self, x: Array) -> tuple[Array, Array]:
        width = self.first.head_dim
        return x[..., :width], x[..., width:]
