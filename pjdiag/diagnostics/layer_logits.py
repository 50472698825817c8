"""A layer's attention logits as our reading makes them, from lags."""

from __future__ import annotations

from typing import Any

import numpy as np

from pjdiag.adapters.protocol import AdditiveKernel, Layer, Projections, TabulatedKernel
from pjdiag.diagnostics.own_transforms import layer_transform
from pjdiag.errors import AdapterError
from pjdiag.position.kernel import bias
from pjdiag.position.relative_bias import bias_by_lag

BLOCK = 32
"""Keys that are turned together."""


def layer_logits(layer: Layer, x: Any, key_input: Any = None) -> Any:
    """Logits ``[H, T, T]``, query by key, of the attention's input ``x`` ``[T, E]``.

    ``key_input`` is the input of the layer whose keys this one reads in place of its own.

    A block of keys stands at positions 0, 1 .., and the queries at their lags behind its first:
    the logits depend on positions through the lag alone. Keys that come later are NaN where the
    layer is causal. The soft cap is applied, windows and padding are not. Raises AdapterError
    where the adapter states no projections or no transform.
    """
    if layer.projections is None:
        raise AdapterError(f"layer {layer.index}: its adapter brings no projections")
    transform = layer_transform(layer)
    if transform is None:
        raise AdapterError(f"layer {layer.index}: its adapter states no position transform")
    made: Projections = layer.projections().value
    queries, keys = made.queries(x), made.keys(x if key_input is None else key_input)
    keys = np.repeat(keys, queries.shape[0] // keys.shape[0], axis=0)
    length, causal = x.shape[0], layer.causal.value
    logits = np.full((queries.shape[0], length, length), np.nan)
    for start in range(0, length, BLOCK):
        stop = min(start + BLOCK, length)
        first = start if causal else 0
        near = transform.key(keys[:, start:stop], np.arange(stop - start, dtype=np.float64))
        lags = np.arange(first - start, length - start, dtype=np.float64)
        turned = transform.query(queries[:, first:], lags)
        logits[:, first:, start:stop] = layer.scale.value * (turned @ np.swapaxes(near, 1, 2))
    if causal:
        logits[:, ~np.tri(length, dtype=bool)] = np.nan
    logits += _bias(layer, length)
    if layer.softcap.value is not None:
        logits = layer.softcap.value * np.tanh(logits / layer.softcap.value)
    return logits


def _bias(layer: Layer, length: int) -> Any:
    """``[H, T, T]`` or 0."""
    total: Any = 0.0
    lags = np.arange(1 - length, length)
    position = np.arange(length)
    index = position[:, None] - position[None, :] + length - 1
    for part in layer.parts:
        if isinstance(part, AdditiveKernel):
            # A bidirectional bias is the same function of the distance on both sides.
            total = total + bias(part.kernel, np.abs(lags).astype(np.float64))[:, index]
        elif isinstance(part, TabulatedKernel):
            by_lag = bias_by_lag(
                np.asarray(part.loaded.value, dtype=np.float64),
                lags.astype(np.float64),
                not layer.causal.value,
                part.max_distance.value,
            )
            total = total + by_lag[:, index]
    return total
