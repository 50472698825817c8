"""The lag effect of attention logits: least squares over all pairs, without a table of pairs.

The logits of a head over T tokens are ``s_ij = scale q_i . k_j + b(i - j)``, ``j <= i``, and with a
window of W tokens only ``i - j < W``. The fit is ``s_ij = a_i + K(i - j)``: a row effect, which
softmax ignores, and a kernel, which is defined up to a constant. With n_i keys in row i and
``c(d)`` pairs at lag d, eliminating the row effects leaves

    c(d) K(d) - sum_{i: n_i > d} mean_{d' < n_i} K(d') = sum_{i: n_i > d} (s_{i,i-d} - mean_j s_ij)

that is ``A K = excess``. Everything here needs O(T log T) per channel. NumPy arrays and torch
tensors, computed in float64; the squares of float32 logits are formed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from pjdiag.position._array import Array, namespace
from pjdiag.position.fourier import fft_length, spectrum_of

BLOCK = 128
"""Rows of the blocks in which squares are summed."""
TOLERANCE = 1e-12
MOST_STEPS = 64


@dataclass(frozen=True)
class LagSums:
    """What the least squares need of the logits. Sums over windows are added."""

    excess: Array
    """``[H, N]``: sum over the rows that reach lag d of ``s_{i,i-d}`` minus the row's mean."""
    rows: Array
    """``[N]``: how many rows have exactly n keys, n = 1..N; the same for all heads."""
    squares: Array
    """``[H]``: sum over the pairs of the squared logit minus its row's mean."""

    def __add__(self, other: LagSums) -> LagSums:
        """The sums of both; the shorter one has no rows with more keys."""
        size = max(self.rows.shape[0], other.rows.shape[0])
        return LagSums(
            _padded(self.excess, size) + _padded(other.excess, size),
            _padded(self.rows, size) + _padded(other.rows, size),
            self.squares + other.squares,
        )


@dataclass(frozen=True)
class LagEffect:
    """The kernel of the fit and how well the equations are solved."""

    kernel: Array
    """``[H, N]``: ``K(d) - K(0)`` in logits."""
    steps: int
    """Steps of conjugate gradients."""
    residual: Array
    """``[H]``: of the equations, relative to their right side, in the preconditioner's norm."""


def row_counts(length: int, window: int | None, like: Array) -> Array:
    """How many rows have n keys, n = 1..min(T, W), for T tokens; float64, where ``like`` lies.

    >>> import numpy as np
    >>> row_counts(6, 4, np.zeros(1)).tolist()
    [1.0, 1.0, 1.0, 3.0]
    """
    xp = namespace(like)
    most = length if window is None else min(length, window)
    rows = xp.ones(most, dtype=xp.float64, device=like.device)
    rows[-1] = length - most + 1
    return rows


def pair_counts(rows: Array) -> Array:
    """``c(d)``: pairs at each lag d = 0..N-1.

    >>> import numpy as np
    >>> pair_counts(np.asarray([1.0, 1.0, 1.0, 3.0])).tolist()
    [6.0, 5.0, 4.0, 3.0]
    """
    return _from_here_on(rows)


def lag_sums(
    queries: Array,
    keys: Array,
    scale: float = 1.0,
    *,
    window: int | None = None,
    bias_by_lag: Array | None = None,
) -> LagSums:
    """Sums of the logits of one window.

    ``queries [H, T, D]`` and ``keys [H_kv, T, D]`` after the position transform; query head h
    reads key head ``h // (H / H_kv)``. ``window`` counts the keys a query sees, itself included.
    ``bias_by_lag [H, >= N]`` in logits is added to the logit at each lag.

    Raises ValueError for shapes that do not fit, fewer than 2 tokens or a window below 1.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sums = lag_sums(rng.normal(size=(4, 50, 8)), rng.normal(size=(2, 50, 8)), 0.35)
    >>> sums.excess.shape, sums.rows.shape, float(abs(sums.excess.sum(axis=-1)).max() < 1e-9)
    ((4, 50), (50,), 1.0)
    """
    _check(queries, keys, window)
    xp = namespace(queries, keys)
    length = queries.shape[1]
    rows = row_counts(length, window, queries)
    size = rows.shape[0]
    counts = _keys_of_rows(length, size, like=rows)
    group = queries.shape[0] // keys.shape[0]
    excess, squares = [], []
    wide = xp.result_type(queries.dtype, xp.float32)
    for kv_head in range(keys.shape[0]):
        k = xp.astype(keys[kv_head], xp.float64)
        k = k - xp.mean(k, axis=0, keepdims=True)  # a row effect: q_i . mean is the same for all j
        q = scale * xp.astype(queries[kv_head * group : (kv_head + 1) * group], xp.float64)
        means = _row_sums(q, k, size) / counts
        spectrum = 1.0 * xp.conj(spectrum_of(k))  # torch would conjugate it for every head
        for head in range(group):
            product = xp.sum(spectrum_of(q[head]) * spectrum, axis=0)
            by_lag = xp.fft.irfft(product, n=fft_length(2 * length))[:size]
            # rows that reach lag d are the queries d, d + 1 ..
            excess.append(by_lag - _from_here_on(means[head])[:size])
        q, k = xp.astype(q, wide), xp.astype(k, wide)  # enough for a sum of squares
        squares.append(_squares(q, k, size) - xp.sum(counts * means**2, axis=-1))
    found = LagSums(xp.stack(excess), rows, xp.concat(squares))
    return found if bias_by_lag is None else _with_bias(found, bias_by_lag)


def lag_effect(
    sums: LagSums, tolerance: float = TOLERANCE, most_steps: int = MOST_STEPS
) -> LagEffect:
    """Solves ``A K = excess`` for all heads by conjugate gradients, preconditioned with 1/c(d).

    Stops where every head's residual is below ``tolerance`` of its right side, or after
    ``most_steps``: the caller looks at ``residual``.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.normal(size=(2, 1, 64, 8))
    >>> slope = -0.1 * np.arange(64.0)[None]
    >>> plain, biased = (lag_effect(lag_sums(q, k, bias_by_lag=b)) for b in (None, slope))
    >>> float(abs(biased.kernel - plain.kernel - slope).max() < 1e-10), plain.steps < 12
    (1.0, True)
    """
    xp = namespace(sums.excess)
    counts = pair_counts(sums.rows)
    solution = xp.zeros_like(sums.excess)
    residual = _solvable(sums.excess, counts)
    scaled = residual / counts
    direction = scaled
    size = xp.sum(residual * scaled, axis=-1)
    start, steps = size, 0
    while steps < most_steps and bool(xp.any(size > tolerance**2 * start)):
        image = _apply(sums.rows, direction)
        alpha = _ratio(size, xp.sum(direction * image, axis=-1))
        solution = solution + alpha[:, None] * direction
        residual = _solvable(residual - alpha[:, None] * image, counts)
        scaled = residual / counts
        new = xp.sum(residual * scaled, axis=-1)
        direction = scaled + _ratio(new, size)[:, None] * direction
        size, steps = new, steps + 1
    return LagEffect(solution - solution[:, :1], steps, xp.sqrt(_ratio(size, start)))


def lag_share(sums: LagSums, kernel: Array) -> Array:
    """Variance of K over the pairs, over the variance of ``s_ij - a_i``; ``[H]``, 0 to 1.

    ``a_i`` is the fitted row effect, so the two differ by the variance of the fit's residual.
    NaN where the logits do not vary within rows.

    >>> import numpy as np
    >>> ones = np.ones((1, 40, 1))
    >>> sums = lag_sums(ones, ones, bias_by_lag=-np.arange(40.0)[None])
    >>> float(lag_share(sums, lag_effect(sums).kernel)[0].round(9))
    1.0
    """
    xp = namespace(kernel)
    counts = pair_counts(sums.rows)
    pairs = xp.sum(counts)
    mean = xp.sum(counts * kernel, axis=-1, keepdims=True) / pairs
    explained = xp.sum(counts * (kernel - mean) ** 2, axis=-1)
    left = sums.squares - xp.sum(kernel * sums.excess, axis=-1)
    left = xp.where(left > 0, left, xp.zeros_like(left))  # below rounding of the squares
    whole = explained + left
    nan = xp.full_like(whole, float("nan"))
    return xp.where(whole > 0, explained / xp.where(whole > 0, whole, nan), nan)


def _solvable(values: Array, counts: Array) -> Array:
    """``values`` without what rounding leaves of their sum: ``A K`` sums to 0 for every K."""
    xp = namespace(values)
    return values - counts * (xp.sum(values, axis=-1, keepdims=True) / xp.sum(counts))


def _apply(rows: Array, kernel: Array) -> Array:
    """``A K`` for K ``[H, N]``."""
    xp = namespace(kernel)
    means = xp.cumulative_sum(kernel, axis=-1) / _counting(rows.shape[0], like=rows)
    return pair_counts(rows) * kernel - _from_here_on(rows * means)


def _with_bias(sums: LagSums, bias_by_lag: Array) -> LagSums:
    """The sums of the logits with a bias added: a function of the lag adds to K exactly."""
    xp = namespace(sums.excess)
    size = sums.rows.shape[0]
    heads = sums.excess.shape[0]
    if bias_by_lag.shape[0] != heads or bias_by_lag.shape[1] < size:
        raise ValueError(f"bias has shape {tuple(bias_by_lag.shape)}; expected [{heads}, {size}]")
    bias = xp.astype(bias_by_lag[:, :size], xp.float64)
    image = _apply(sums.rows, bias)
    added = xp.sum(bias * (2 * sums.excess + image), axis=-1)
    return LagSums(sums.excess + image, sums.rows, sums.squares + added)


def _check(queries: Array, keys: Array, window: int | None) -> None:
    heads, length, channels = queries.shape
    kv_heads = keys.shape[0]
    if tuple(keys.shape[1:]) != (length, channels) or kv_heads < 1 or heads % kv_heads:
        raise ValueError(
            f"keys have shape {tuple(keys.shape)}; expected [H_kv, {length}, {channels}], "
            f"H_kv a divisor of {heads}"
        )
    if length < 2:
        raise ValueError(f"the window holds {length} tokens; expected at least 2")
    if window is not None and window < 1:
        raise ValueError(f"the sliding window is {window}; expected at least 1")


def _row_sums(q: Array, k: Array, size: int) -> Array:
    """Sum of the logits of each row over its keys, at most ``size``: ``[G, T]``.

    Here and below ``q`` is ``[G, T, D]`` of the heads that read one key head, ``k`` ``[T, D]``.
    """
    xp = namespace(q)
    sums = xp.cumulative_sum(k, axis=0)
    if size < k.shape[0]:
        sums = xp.concat([sums[:size], sums[size:] - sums[:-size]], axis=0)
    return xp.sum(q * sums, axis=-1)


def _squares(q: Array, k: Array, size: int) -> Array:
    """Sum of the squared logits over the pairs of lags below ``size``: ``[G]``."""
    total = _causal_squares(q, k)
    if size < k.shape[0]:
        total = total - _causal_squares(q[:, size:], k[:-size])
    return total


def _causal_squares(q: Array, k: Array) -> Array:
    """``sum_{j <= i} (q_i . k_j)^2`` from running second moments of k and blocks of rows."""
    xp = namespace(q)
    moment = xp.zeros((k.shape[1], k.shape[1]), dtype=k.dtype, device=k.device)
    total = xp.zeros(q.shape[0], dtype=xp.float64, device=k.device)
    for start in range(0, k.shape[0], BLOCK):
        rows, near = q[:, start : start + BLOCK], k[start : start + BLOCK]
        far = xp.sum((rows @ moment) * rows, axis=(1, 2))
        here = xp.sum(xp.tril(rows @ near.T) ** 2, axis=(1, 2))
        total = total + xp.astype(far, xp.float64) + xp.astype(here, xp.float64)
        moment = moment + near.T @ near
    return total


def _from_here_on(values: Array) -> Array:
    """Sums of ``values`` from each place of the last axis to its end."""
    xp = namespace(values)
    return xp.flip(xp.cumulative_sum(xp.flip(values, axis=-1), axis=-1), axis=-1)


def _counting(size: int, like: Array) -> Array:
    """1, 2 .. ``size``."""
    xp = namespace(like)
    return xp.arange(1, size + 1, dtype=xp.float64, device=like.device)


def _keys_of_rows(length: int, size: int, like: Array) -> Array:
    """Keys that each of ``length`` rows sees: 1, 2 .. ``size``, ``size`` .."""
    xp = namespace(like)
    counts = _counting(length, like)
    return xp.where(counts < size, counts, xp.full_like(counts, size))


def _padded(values: Array, size: int) -> Array:
    xp = namespace(values)
    more = (*values.shape[:-1], size - values.shape[-1])
    zeros = xp.zeros(more, dtype=values.dtype, device=values.device)
    return xp.concat([values, zeros], axis=-1)


def _ratio(top: Array, bottom: Array) -> Array:
    """``top / bottom``, 0 where ``bottom`` is: a head whose equations are solved."""
    xp = namespace(bottom)
    positive = bottom > 0
    one = xp.ones_like(bottom)
    return xp.where(positive, top, 0 * one) / xp.where(positive, bottom, one)
