"""Figures of scale stability, from amplitudes, phases and a kernel over the lags 0..T-1."""

from __future__ import annotations

import numpy as np

FAR_SAMPLE = 4096
"""Most lags of the far half that the pairwise figures look at."""
COLLISION = 1e-3
"""Two phases nearer than this, in rad, collide."""


def kernel_figures(kernel: np.ndarray) -> dict[str, float]:
    """Size of a kernel ``[T]`` in logits, and the attention prior of its last row.

    Root mean square over the lags; standard deviation with weights T - d, as often as a lag
    occurs; entropy of softmax(kernel) in nats, its effective support ``e^H`` and its mean lag.

    >>> round(kernel_figures(np.zeros(8))["effective_support"], 6)
    8.0
    """
    length = kernel.shape[0]
    weights = np.arange(length, 0, -1, dtype=np.float64)
    weights /= weights.sum()
    mean = weights @ kernel
    shifted = kernel - kernel.max()
    mass = np.exp(shifted)
    total = mass.sum()
    entropy = float(np.log(total) - (mass @ shifted) / total)
    return {
        "bias_max": float(np.abs(kernel).max()),
        "bias_rms": float(np.sqrt(np.mean(kernel**2))),
        "bias_std": float(np.sqrt(weights @ (kernel - mean) ** 2)),
        "attention_entropy": entropy,
        "effective_support": float(np.exp(entropy)),
        "mean_distance": float((mass @ np.arange(length)) / total),
    }


def amplitude_figures(amplitudes: np.ndarray) -> dict[str, float]:
    """Growth and quantisation error of amplitudes ``A[d, r]``, ``[T, R+1]``.

    The norm over orders stands for the size of queries and keys. Quantisation errors are
    ``||Q(A) - A|| / ||A||`` with one symmetric step for all (tensor) or one per order.

    >>> amplitude_figures(np.ones((4, 2)))["int8_error_tensor"]
    0.0
    """
    norms = np.linalg.norm(amplitudes, axis=1)
    figures = {
        "norm_max": float(norms.max()),
        "norm_final": float(norms[-1]),
        "norm_mean": float(norms.mean()),
        "amplitude_max": float(np.abs(amplitudes).max()),
        "non_finite": int(np.size(amplitudes) - np.isfinite(amplitudes).sum()),
    }
    for bits in (8, 4):
        figures[f"int{bits}_error_tensor"] = _quantisation_error(amplitudes, bits, None)
        figures[f"int{bits}_error_order"] = _quantisation_error(amplitudes, bits, 0)
    return figures


def phase_figures(phases: np.ndarray, omega: float) -> dict[str, float]:
    """How fast the carrier still turns in the far half of the window, ``phases`` ``[T]``.

    ``phases`` is the phase coordinate in tokens. Ratios are phase increments per token of lag;
    ``far_phase_span`` is ``w (phase[T-1] - phase[T/2])`` in rad; ``local_collision`` the share
    of far increments below 1e-3 rad; the wrapped figures look at up to 4,096 far phases mod
    2 pi: distance to the nearest, its lower median, and the share below 1e-3 rad.

    >>> round(phase_figures(np.arange(64.0), 0.1)["local_phase_ratio"], 6)
    1.0
    """
    far = phases[phases.shape[0] // 2 :]
    increments = np.diff(far)
    nearest = _nearest_on_circle(omega * far[far_positions(far.shape[0])])
    return {
        "local_phase_ratio": float(increments.mean()),
        "local_phase_ratio_final": float(increments[-1]),
        "far_phase_span": float(omega * (far[-1] - far[0])),
        "local_collision": float((omega * increments < COLLISION).mean()),
        "wrapped_collision": float((nearest < COLLISION).mean()),
        "wrapped_nearest": float(np.sort(nearest)[(nearest.shape[0] - 1) // 2]),
    }


def far_condition_number(amplitudes: np.ndarray, phases: np.ndarray, omega: float) -> float:
    """2-norm condition number of ``[A cos, A sin]`` on far lags, columns standardised.

    Infinite where a column is constant.

    >>> far_condition_number(np.ones((4096, 1)), np.arange(4096.0), 2 * np.pi / 64) < 1.01
    True
    """
    start = amplitudes.shape[0] // 2
    chosen = start + far_positions(amplitudes.shape[0] - start)
    angle = omega * phases[chosen, None]
    design = np.concatenate(
        [amplitudes[chosen] * np.cos(angle), amplitudes[chosen] * np.sin(angle)], axis=1
    )
    spread = design.std(axis=0)
    if not (spread > 0).all() or not np.isfinite(design).all() or not np.isfinite(spread).all():
        return float("inf")
    return float(np.linalg.cond((design - design.mean(axis=0)) / spread))


def far_positions(count: int) -> np.ndarray:
    """Up to ``FAR_SAMPLE`` positions among ``count``, evenly spaced, each once."""
    spaced = np.round(np.linspace(0, count - 1, min(count, FAR_SAMPLE)))
    return np.unique(spaced.astype(np.int64))


def _quantisation_error(values: np.ndarray, bits: int, axis: int | None) -> float:
    step = np.abs(values).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)
    safe = np.where(step > 0, step, 1.0)
    error = np.round(values / safe) * safe - values
    size = np.linalg.norm(values)
    return float(np.linalg.norm(error) / size) if size > 0 else 0.0


def _nearest_on_circle(angles: np.ndarray) -> np.ndarray:
    """Distance of each angle to its nearest neighbour on the circle, in rad."""
    wrapped = np.sort(np.mod(angles, 2 * np.pi))
    gaps = np.diff(wrapped, append=wrapped[0] + 2 * np.pi)
    return np.minimum(gaps, np.roll(gaps, 1))
