"""How much attention goes to the first positions, from a sample of the queries."""

from __future__ import annotations

from dataclasses import dataclass

from pjdiag.position._array import Array, namespace, softmax

MOST_ELEMENTS = 2**24
"""Logits formed at once."""
QUERIES = 256
"""Queries looked at, spread evenly over the window."""
ROWS = 32
"""Queries taken at once: what no one of them sees is left out."""


@dataclass(frozen=True)
class LogitRule:
    """How logits are formed from queries and keys, and which keys a query sees."""

    scale: float = 1.0
    bias_by_lag: Array | None = None
    """``[H, T]`` for keys ``j = i - d``."""
    bias_ahead: Array | None = None
    """``[H, T]`` for keys ``j = i + d``; used where attention is not causal."""
    causal: bool = True
    window: int | None = None
    """Keys seen to the past, the token itself included, and as many to the future."""
    softcap: float | None = None
    """Of the logits before the bias: ``softcap tanh(logit / softcap)``."""


def sink_share(
    queries: Array, keys: Array, first: int, rule: LogitRule, most_queries: int = QUERIES
) -> Array:
    """Mean attention probability on the positions below ``first``, for later queries: ``[H]``.

    ``queries [H, T, D]``, ``keys [H_kv, T, D]`` after the position transform. The queries are
    at most ``most_queries``, spread evenly over ``first .. T-1``. NaN where there is none.

    >>> import numpy as np
    >>> zeros = np.zeros((1, 9, 2))
    >>> float(sink_share(zeros, zeros, 4, LogitRule())[0].round(4))  # mean of 4/5 .. 4/9
    0.5965
    """
    xp = namespace(queries, keys)
    heads, length, _ = queries.shape
    group = heads // keys.shape[0]
    count = min(most_queries, length - first)
    if count < 1:
        return xp.full((heads,), float("nan"), dtype=xp.float64, device=queries.device)
    spread = xp.linspace(first, length - 1, count, dtype=xp.float64, device=queries.device)
    chosen = xp.astype(xp.round(spread), xp.int64)
    wide = xp.result_type(queries.dtype, xp.float32)
    q = rule.scale * xp.astype(xp.take(queries, chosen, axis=1), wide)
    k = xp.astype(keys, wide)
    sums = [xp.zeros((), dtype=xp.float64, device=queries.device) for _ in range(heads)]
    step = max(1, min(ROWS, MOST_ELEMENTS // (length * group)))
    for start in range(0, count, step):
        seen = _Seen(chosen[start : start + step], length, rule)
        if seen.start >= first:
            continue
        for kv_head in range(keys.shape[0]):
            near = k[kv_head, seen.start : seen.stop]
            for head in range(kv_head * group, (kv_head + 1) * group):
                weights = softmax(seen.logits(q[head, start : start + step] @ near.T, head))
                share = xp.sum(weights[:, : first - seen.start])
                sums[head] = sums[head] + xp.astype(share, xp.float64)
    return xp.stack(sums) / count


class _Seen:
    """The keys that some queries see: those from ``start`` to ``stop``, and which of them."""

    def __init__(self, rows: Array, length: int, rule: LogitRule) -> None:
        xp = namespace(rows)
        lowest, highest = int(rows[0]), int(rows[-1])
        reach = length if rule.window is None else rule.window - 1
        self.start = max(0, lowest - reach)
        self.stop = highest + 1 if rule.causal else min(length, highest + reach + 1)
        places = xp.arange(self.start, self.stop, dtype=xp.int64, device=rows.device)
        self._rule = rule
        self._lags = rows[:, None] - places[None, :]
        self._hidden = xp.zeros_like(self._lags, dtype=xp.bool)
        if rule.causal:
            self._hidden = self._lags < 0
        if rule.window is not None:
            self._hidden = self._hidden | (xp.abs(self._lags) >= rule.window)

    def logits(self, products: Array, head: int) -> Array:
        """``[rows, keys]`` of scaled products, minus infinity on the keys that are not seen."""
        xp = namespace(products)
        rule, logits = self._rule, products
        if rule.softcap is not None:
            logits = rule.softcap * xp.tanh(logits / rule.softcap)
        if rule.bias_by_lag is not None:
            logits = logits + self._bias(rule.bias_by_lag[head], self._lags >= 0, logits)
        if rule.bias_ahead is not None and not rule.causal:
            logits = logits + self._bias(rule.bias_ahead[head], self._lags < 0, logits)
        hidden = xp.asarray(-float("inf"), dtype=logits.dtype, device=logits.device)
        return xp.where(self._hidden, hidden, logits)

    def _bias(self, bias: Array, here: Array, like: Array) -> Array:
        xp = namespace(bias)
        distance = xp.reshape(xp.abs(self._lags), (-1,))
        values = xp.reshape(xp.take(bias, distance, axis=0), self._lags.shape)
        return xp.where(here, xp.astype(values, like.dtype), xp.zeros_like(like))
