"""How much attention goes to the first positions, from a sample of the queries."""

from __future__ import annotations

from dataclasses import dataclass

from pjdiag.position._array import Array, namespace, softmax

MOST_ELEMENTS = 2**24
"""Logits formed at once."""
QUERIES = 256
"""Queries looked at, spread evenly over the window."""


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
    count = min(most_queries, length - first)
    if count < 1:
        return xp.full((heads,), float("nan"), dtype=xp.float64, device=queries.device)
    spread = xp.linspace(first, length - 1, count, dtype=xp.float64, device=queries.device)
    chosen = xp.astype(xp.round(spread), xp.int64)
    step = max(1, MOST_ELEMENTS // length)
    group = heads // keys.shape[0]
    found = []
    for head in range(heads):
        k, q = keys[head // group], queries[head]
        parts = []
        for start in range(0, count, step):
            rows = chosen[start : start + step]
            logits = _logits(xp.take(q, rows, axis=0), k, rows, head, rule)
            parts.append(xp.sum(softmax(logits)[:, :first], axis=-1))
        found.append(xp.mean(xp.astype(xp.concat(parts), xp.float64)))
    return xp.stack(found)


def _logits(q: Array, k: Array, rows: Array, head: int, rule: LogitRule) -> Array:
    """``[rows, T]``, minus infinity on the keys that are not seen."""
    xp = namespace(q)
    lags = rows[:, None] - xp.arange(k.shape[0], dtype=xp.int64, device=q.device)[None, :]
    distance = xp.abs(lags)
    logits = rule.scale * xp.astype(q @ k.T, xp.float64)
    if rule.softcap is not None:
        logits = rule.softcap * xp.tanh(logits / rule.softcap)
    if rule.bias_by_lag is not None:
        logits = logits + _where_lag(rule.bias_by_lag[head], distance, lags >= 0)
    if rule.bias_ahead is not None and not rule.causal:
        logits = logits + _where_lag(rule.bias_ahead[head], distance, lags < 0)
    unseen = lags < 0 if rule.causal else xp.zeros_like(lags, dtype=xp.bool)
    if rule.window is not None:
        unseen = unseen | (distance >= rule.window)
    return xp.where(unseen, xp.full_like(logits, -float("inf")), logits)


def _where_lag(bias: Array, distance: Array, here: Array) -> Array:
    xp = namespace(bias)
    values = xp.reshape(xp.take(bias, xp.reshape(distance, (-1,)), axis=0), distance.shape)
    return xp.where(here, xp.astype(values, xp.float64), xp.zeros_like(values, dtype=xp.float64))
