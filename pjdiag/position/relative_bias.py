"""T5's relative position bias: a table of buckets, half exact and half logarithmic.

``relative`` is the key's position minus the query's, in tokens, so the past is negative. One table
serves all layers, and T5 applies no ``1/sqrt(head_dim)`` to the logits.
"""

from __future__ import annotations

from functools import cache

from pjdiag.position._array import Array, namespace


@cache
def bucket_starts(num_buckets: int, max_distance: int) -> tuple[int, ...]:
    """First distance of each bucket on one side; the last bucket is open-ended.

    With ``e = num_buckets // 2`` the buckets below e hold one distance each; bucket ``e + k``
    starts at the least n with ``n/e >= (max_distance/e)^{k/(num_buckets-e)}``. This is decided in
    whole numbers, so no rounded logarithm moves an edge. Raises ValueError unless
    ``num_buckets >= 2`` and ``max_distance > e``.

    >>> bucket_starts(32, 128)[16:20], bucket_starts(16, 128)[8:]
    ((16, 19, 21, 24), (8, 12, 16, 23, 32, 46, 64, 91))
    """
    exact = num_buckets // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(
            f"{num_buckets} buckets up to distance {max_distance}; expected at least 2 buckets "
            f"and a distance above {exact}"
        )
    spread = num_buckets - exact
    starts = list(range(exact))
    distance = exact
    for k in range(spread):
        while (distance**spread) * exact**k < max_distance**k * exact**spread:
            distance += 1
        starts.append(distance)
    return tuple(starts)


def relative_buckets(
    relative: Array, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> Array:
    """Bucket of each relative position (key minus query), integers of the same shape.

    Bidirectional: half the buckets for each direction, the future in the upper half. Causal: the
    future shares bucket 0.

    >>> import numpy as np
    >>> relative_buckets(np.asarray([-128, -16, -8, 0, 1, 8, 128]), True).tolist()
    [15, 10, 8, 0, 17, 24, 31]
    """
    xp = namespace(relative)
    relative = xp.astype(relative, xp.int64)
    zero = xp.zeros_like(relative)
    if bidirectional:
        num_buckets //= 2
        distance = xp.abs(relative)
        offset = xp.where(relative > 0, zero + num_buckets, zero)
    else:
        distance = xp.where(relative < 0, -relative, zero)
        offset = zero
    starts = xp.asarray(
        bucket_starts(num_buckets, max_distance),
        dtype=xp.int64,
        device=relative.device,
    )
    return offset + xp.searchsorted(starts, distance, side="right") - 1


def bias_by_lag(table: Array, lags: Array, bidirectional: bool, max_distance: int = 128) -> Array:
    """The bias of each head at each lag (query minus key), ``[H, T]`` in logits.

    ``table`` is ``[num_buckets, H]``, ``lags`` ``[T]`` in whole tokens of any dtype; negative lags
    are the future.

    >>> import numpy as np
    >>> bias_by_lag(np.arange(32.0)[:, None], np.asarray([0.0, 16.0, 127.0]), False).tolist()
    [[0.0, 16.0, 31.0]]
    """
    xp = namespace(table, lags)
    relative = -xp.astype(xp.round(lags), xp.int64)
    buckets = relative_buckets(relative, bidirectional, int(table.shape[0]), max_distance)
    return xp.matrix_transpose(xp.take(table, buckets, axis=0))
