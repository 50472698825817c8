"""The laws of a position transform, measured at chosen positions in a chosen precision.

For keys ``K(j) k`` and queries ``Q(i) q``: the group law ``K(a) K(b) = K(a + b)``; the
relative-score law, that ``Q(i) q . K(j) k`` is a function of ``i - j``; and how the norms grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pjdiag.position.kernel import PositionKernel, bias
from pjdiag.position.transforms import PositionTransform

SAMPLES = 4
"""Random queries and keys per head."""
EXACT = 1e-10
"""What float64 must reach, over |q||k|."""
LOST = 1e-2
"""Rounding above this share of |q||k| has drowned the law, however well it is explained."""
RATIO = 1.75
"""Of neighbouring positions on the grid."""


@dataclass(frozen=True)
class Figure:
    """The largest error of several comparisons; where any fails, the largest of those."""

    error: float
    tolerance: float
    lost: bool = False
    """Whether the law fails by what rounding explains, and by nothing else."""

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance. An error that is not a number is not."""
        return bool(self.error <= self.tolerance)


def position_grid(last: int) -> np.ndarray:
    """Positions 0, 1 and ``last / RATIO^n``: a geometric grid, and hardly a power of two on it.

    Phases of powers of two do not round, so that they would tell nothing of float32.

    >>> position_grid(100).tolist()
    [0, 1, 2, 3, 6, 11, 19, 33, 57, 100]
    """
    steps = range(int(math.log(last, RATIO)) + 1 if last else 0)
    return np.asarray(sorted({0, min(1, last), *(round(last / RATIO**n) for n in steps)}))


def lag_pairs(last: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs ``(i, j)`` up to position ``last`` with lags and keys on the grid, ``[P]`` each.

    For every lag the first key is at 0 and the last query at ``last``.

    >>> i, j = lag_pairs(2)
    >>> i.tolist(), j.tolist()
    ([0, 1, 2, 1, 2, 2], [0, 1, 2, 0, 1, 0])
    """
    grid = position_grid(last)
    pairs = [
        (lag + key, key)
        for lag in grid.tolist()
        for key in sorted({*grid[grid <= last - lag].tolist(), last - lag})
    ]
    return np.asarray([i for i, _ in pairs]), np.asarray([j for _, j in pairs])


def group_law(transform: PositionTransform, last: int, dtype: type) -> Figure:
    """``|K(a) K(b) e - K(a+b) e| / |K(a+b) e|`` over the unit vectors e, for ``a + b <= last``.

    A constant factor on the vectors (YaRN's on cos and sin) is divided out. Raises ValueError
    for a transform that is no matrix.
    """
    if not transform.linear:
        raise ValueError("the transform is not linear: it is not a group action")
    ends, first = lag_pairs(last)  # a + b and b
    total: np.ndarray = ends.astype(dtype)
    b: np.ndarray = first.astype(dtype)
    a = total - b
    units = _placed(transform, np.eye(transform.head_dim, dtype=dtype), total)  # [D, H, P, D]
    with np.errstate(over="ignore", invalid="ignore"):
        twice = transform.key(transform.key(units, b), a) / transform.factor
        once = transform.key(units, total)
        size = _norm(once)
        error = _norm(twice.astype(np.float64) - once) / size
    rounding = _epsilon(dtype) * (2 * transform.rate * ends + _width(transform))
    return _judged(error, np.broadcast_to(_floored(rounding, 1.0, dtype), error.shape))


def relative_score(transform: PositionTransform, last: int, dtype: type, seed: int) -> Figure:
    """Difference of the score at ``(i, j)`` from that at ``(i - j, 0)``, over ``|q||k|``.

    ``|q||k|`` is the content's size, at position 0. The tolerance is what rounding explains:
    ``eps (rate (i + j) + width) |Q(i) q||K(j) k| / |q||k|``, the same of the reference added,
    with at least ``EXACT`` in place of ``eps (...)`` in float64, and at most ``LOST`` in all.
    """
    queries, keys = lag_pairs(last)
    lags = queries - keys
    starts = np.searchsorted(lags, lags)  # lags rise; the first of each has its key at 0
    q, k = _contents(transform, dtype, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        turned_q, turned_k = _turned(transform, q, k, queries, keys)  # [N, H, P, D] each
        scores = np.sum(turned_q * turned_k, axis=-1).astype(np.float64)
        whole = _norm(turned_q[..., :1, :]) * _norm(turned_k[..., :1, :])  # the pair (0, 0)
        error = np.abs(scores - scores[..., starts]) / whole
        size = _norm(turned_q) * _norm(turned_k) / whole
    rounding = _epsilon(dtype) * (transform.rate * (queries + keys) + _width(transform))
    allowed = _floored(rounding, size, dtype)
    return _judged(error, allowed + allowed[..., starts])


def growth(transform: PositionTransform, last: int, dtype: type, seed: int) -> tuple[float, float]:
    """Norms of queries and of keys at ``last`` over those at 0: the largest over samples."""
    ends = np.asarray([0, last])
    q, k = _contents(transform, dtype, seed)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = [_norm(turned) for turned in _turned(transform, q, k, ends, ends)]
        of_queries, of_keys = (float(np.max(norm[..., 1] / norm[..., 0])) for norm in norms)
    return of_queries, of_keys


def lag_kernel(kernel: PositionKernel, last: int, dtype: type) -> Figure:
    """The same for a bias: its value at ``i - j`` against that at the lag, over its largest.

    A bias is a function of the lag; what can fail is the difference of two positions.
    """
    queries, keys = lag_pairs(last)
    narrow = kernel.map(lambda array: array.astype(dtype))
    at = bias(narrow, queries.astype(dtype) - keys.astype(dtype)).astype(np.float64)
    wanted = bias(narrow, (queries - keys).astype(dtype)).astype(np.float64)
    largest = float(np.max(np.abs(wanted)))
    error = float(np.max(np.abs(at - wanted)))
    return Figure(error / largest if error else 0.0, _epsilon(dtype))


def _contents(transform: PositionTransform, dtype: type, seed: int) -> tuple[Any, Any]:
    """Random queries and keys ``[N, D]``, the same at every position and in every head."""
    shape = (2, SAMPLES, transform.head_dim)
    q, k = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return q, k


def _turned(
    transform: PositionTransform, q: Any, k: Any, queries: np.ndarray, keys: np.ndarray
) -> tuple[Any, Any]:
    """Queries and keys ``[N, D]`` at positions ``[P]``: ``[N, H, P, D]`` each."""
    i, j = queries.astype(q.dtype), keys.astype(k.dtype)
    return (
        transform.query(_placed(transform, q, i), i),
        transform.key(_placed(transform, k, j), j),
    )


def _placed(transform: PositionTransform, x: Any, positions: np.ndarray) -> Any:
    """The rows of ``x`` ``[N, D]`` at every position of every head, ``[N, H, P, D]``."""
    shape = (x.shape[0], transform.num_heads, positions.shape[0], x.shape[1])
    return np.broadcast_to(x[:, None, None, :], shape)


def _norm(x: Any) -> Any:
    return np.linalg.norm(x.astype(np.float64), axis=-1)


def _epsilon(dtype: type) -> float:
    return float(np.finfo(dtype).eps)


def _width(transform: PositionTransform) -> float:
    """Roundings of one score beside its phases: a sum over channels, the jets of a block."""
    return transform.head_dim + 4.0 * transform.order


def _floored(rounding: Any, size: Any, dtype: type) -> Any:
    least = EXACT if dtype is np.float64 else 0.0
    return np.maximum(rounding, least) * size


def _judged(error: Any, rounding: Any) -> Figure:
    """The figure of these comparisons; ``error`` and what rounding explains have one shape."""
    error = np.where(np.isnan(error), np.inf, error).ravel()
    rounding = np.where(np.isnan(rounding), np.inf, rounding).ravel()
    tolerance = np.minimum(rounding, LOST)
    failed = error > tolerance
    worst = int(np.argmax(np.where(failed, error, -1.0) if failed.any() else error))
    lost = bool(failed.any() and np.all(error[failed] <= rounding[failed]))
    return Figure(
        float(error[worst]), float(tolerance[worst]), lost and math.isfinite(error[worst])
    )
