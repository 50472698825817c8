"""Parity: the attention logits that our reading predicts, against those of the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pjdiag.adapters.protocol import AdditiveKernel, Layer, Reading
from pjdiag.adapters.reading import at_length
from pjdiag.checkpoint import Checkpoint
from pjdiag.checkpoint.native import is_native, is_research, load_model, model_config
from pjdiag.diagnostics.law_figures import Figures, figures_of
from pjdiag.diagnostics.laws import Figure
from pjdiag.diagnostics.own_transforms import layer_transform
from pjdiag.position._array import softmax
from pjdiag.position.kernel import PositionKernel, bias, gated_components
from pjdiag.position.transforms import PositionTransform
from pjdiag.results import Skipped
from pjdiag.terms import Mechanism

if TYPE_CHECKING:
    from pjdiag.models.capture import CapturedAttention

LONGEST = 256
"""Tokens that the model reads, or twice the train length if that is less."""
LOGITS, OUTPUT = "attention_logits", "attention_output"
NO_TORCH = "parity needs torch, which is not installed"
NO_MODEL = "parity needs a model that this version can run: native, or PJ-RoPE research code"
KERNEL_ROUNDINGS = 16
"""Of a bias beside its phases: powers, envelope, gate, and the sum over orders and sectors."""
LOOSEST = 1e-3
"""Of the largest figure. A worst case of rounding beyond this would let a wrong reading pass."""
NOT_REPRODUCED = "our reading does not give the model's own figures"


@dataclass(frozen=True)
class ComparedLayer:
    """The layer that a comparison speaks of."""

    index: int
    transform: str
    """Mechanisms of its parts, joined by ``+``."""
    mechanism: Mechanism | None
    """None where it has several parts."""


Comparison = tuple[ComparedLayer, list[Figures]]


def parity(reading: Reading, seed: int) -> tuple[list[Comparison], list[Skipped]]:
    """Each layer's logits and output from our reading, against the model's own.

    The model reads random tokens from ``seed``. From its queries and keys before the position
    transform, our reading (transform, scale, bias; in float64) rebuilds the logits, and with the
    model's values the output of the attention. Errors are the largest difference over the
    largest figure. The tolerance is what float32 rounding of the phases and sums explains.
    """
    try:
        captured, length = _captured(reading.checkpoint, seed)
    except _NotRunError as error:
        return [], [Skipped(layer.index, str(error)) for layer in reading.layers]
    bad = _bad_values(reading.checkpoint, captured)
    if bad:
        return [], [Skipped(layer.index, bad, bad_values=True) for layer in reading.layers]
    compared: list[Comparison] = []
    skipped: list[Skipped] = []
    for layer in at_length(reading, length).layers:
        transform = layer_transform(layer)
        if transform is None:
            skipped.append(Skipped(layer.index, "parity: the transform of q and k is not stated"))
            continue
        compared.append((_name(layer), _figures(layer, transform, captured[layer.index])))
    return compared, skipped


class _NotRunError(Exception):
    """Why there is no model to compare with."""


def _captured(checkpoint: Checkpoint, seed: int) -> tuple[list[CapturedAttention], int]:
    if not (is_native(checkpoint) or is_research(checkpoint)):
        raise _NotRunError(NO_MODEL)
    try:
        from pjdiag.models.capture import captured_attention  # the laws need no torch
    except ImportError as error:
        raise _NotRunError(NO_TORCH) from error
    config = model_config(checkpoint)
    length = min(2 * config.train_length, LONGEST)
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, length)
    return captured_attention(load_model(checkpoint), tokens), length


def _bad_values(checkpoint: Checkpoint, captured: list[CapturedAttention]) -> str:
    """Why the model's figures are not finite; empty where they are."""
    if all(np.isfinite(layer.mixed).all() for layer in captured):
        return ""
    counts = {
        name: int(np.count_nonzero(~np.isfinite(checkpoint.read(name))))
        for name in checkpoint.headers
    }
    bad = [f"{name} holds {count}" for name, count in counts.items() if count]
    if not bad:
        return "parity: the model overflows float32"
    return f"parity: {', '.join(bad[:3])} values that are NaN or infinite"


def _name(layer: Layer) -> ComparedLayer:
    mechanisms = [part.mechanism for part in layer.parts] or [Mechanism.NONE]
    single = mechanisms[0] if len(mechanisms) == 1 else None
    return ComparedLayer(layer.index, "+".join(mechanisms), single)


def _figures(layer: Layer, transform: PositionTransform, found: CapturedAttention) -> list[Figures]:
    length = found.logits.shape[-1]
    positions = np.arange(length, dtype=np.float64)
    queries = transform.query(found.queries.astype(np.float64), positions)
    keys = transform.key(found.keys.astype(np.float64), positions)
    logits = layer.scale.value * queries @ keys.swapaxes(-1, -2)  # [H, T, T]
    size = layer.scale.value * _largest_norm(queries) * _largest_norm(keys)
    rounding: float = size * (
        2 * transform.rate * length + transform.head_dim + 4 * transform.order
    )
    for part in layer.parts:
        if isinstance(part, AdditiveKernel):
            by_lag, size = _bias(part.kernel, positions)
            lags = np.maximum(np.subtract.outer(np.arange(length), np.arange(length)), 0)
            logits = logits + by_lag[:, lags]
            fastest = float(np.abs(part.kernel.omega).max())
            rounding += size * (fastest * length + KERNEL_ROUNDINGS)
    causal = np.tri(length, dtype=bool)
    values = found.values.astype(np.float64)
    mixed = softmax(np.where(causal, logits, -np.inf)) @ values
    # An error e of the logits changes the weights by at most 2 e of their size.
    drift = (2 * rounding + length) * float(np.abs(values).max())
    return [
        _figure(LOGITS, length, logits[:, causal], found.logits[:, causal], rounding),
        _figure(OUTPUT, length, mixed, found.mixed, drift),
    ]


def _bias(kernel: PositionKernel, lags: np.ndarray) -> tuple[np.ndarray, float]:
    """The bias ``[H, T]``, and the largest sum of its components' sizes."""
    parts = [gated_components(kernel, sector, lags) for sector in kernel.sectors]
    sizes = [np.abs(part).sum(axis=1) for part in parts]
    return bias(kernel, lags), float(np.max(np.sum(sizes, axis=0)))


def _largest_norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x, axis=-1).max())


def _figure(law: str, length: int, ours: np.ndarray, model: np.ndarray, rounding: float) -> Figures:
    """The largest difference over the largest figure; ``rounding`` counts in float32 epsilons."""
    largest = float(np.abs(model).max()) or 1.0
    error = float(np.abs(ours - model).max()) / largest
    tolerance = min(float(np.finfo(np.float32).eps) * rounding / largest, LOOSEST)
    figure = Figure(error, tolerance)
    return figures_of(law, "float32", length, figure, "" if figure.passed else NOT_REPRODUCED)
