"""Rotary frequencies of every rope type of Hugging Face models, at the length asked for.

``D`` rotated channels of a head, base theta, ``w_i = theta^{-i / (D/2)}`` in rad per token. Each
rule works in float64 and returns ``RotaryFrequencies`` of the dtype of ``like`` (float32 or
float64) with ``position_scale`` 1. A multimodal rope (mrope, interleaved or in sections) has one
position per axis; on text the axes agree, so it is the rule below at the same frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pjdiag.position._array import Array, as_like
from pjdiag.position.rotary import (
    YARN_FAST_ROTATIONS,
    YARN_SLOW_ROTATIONS,
    RotaryFrequencies,
    inverse_frequencies,
)


@dataclass(frozen=True)
class YarnOptions:
    """What a YaRN rope states beside its base."""

    factor: float
    """How many times longer than the original length; above 0."""
    original_length: float
    """Training length in tokens before the extension."""
    beta_fast: float = YARN_FAST_ROTATIONS
    """Waves with more rotations than this over the original length are kept."""
    beta_slow: float = YARN_SLOW_ROTATIONS
    """Waves with fewer rotations than this are stretched by the factor."""
    mscale: float | None = None
    mscale_all_dim: float | None = None
    """With both set, their ratio replaces the attention factor."""
    attention_factor: float | None = None
    """Factor on cos and sin; None: computed."""
    truncate: bool = True
    """Round the ends of the blend outwards to whole channels."""


@dataclass(frozen=True)
class LongRopeOptions:
    """What a LongRoPE states beside its base."""

    short_factor: Sequence[float]
    """``[D/2]`` divisors of the frequencies up to the original length."""
    long_factor: Sequence[float]
    """``[D/2]`` divisors beyond it."""
    original_length: float
    """Training length in tokens before the extension; above 1."""
    factor: float
    """How many times longer than the original length the model is meant for."""
    attention_factor: float | None = None
    """Factor on cos and sin at every length; None: computed."""


def default_frequencies(rotary_dim: int, base: float, like: Array) -> RotaryFrequencies:
    """``w_i``, the same at every length. Raises ValueError for an odd ``rotary_dim``.

    >>> default_frequencies(4, 100.0, np.zeros(0)).inv_freq.tolist()
    [1.0, 0.1]
    """
    return RotaryFrequencies(inverse_frequencies(rotary_dim, base, like), 1.0, 1.0)


def linear_frequencies(
    rotary_dim: int, base: float, factor: float, like: Array
) -> RotaryFrequencies:
    """``w_i / factor``: positions interpolated, at every length.

    >>> linear_frequencies(4, 100.0, 8.0, np.zeros(0)).inv_freq.tolist()
    [0.125, 0.0125]
    """
    return _result(_default(rotary_dim, base) / factor, like)


def dynamic_frequencies(
    rotary_dim: int,
    base: float,
    factor: float,
    trained_length: float,
    eval_length: float,
    like: Array,
) -> RotaryFrequencies:
    """NTK by the length T in use: base ``theta (factor T/L - (factor - 1))^{D/(D-2)}``.

    Up to the trained length L the base is theta. One call knows nothing of earlier lengths: a
    short input after a long one has theta again.

    >>> found = dynamic_frequencies(128, 1e4, 2.0, 2048, 4096, np.zeros(0))
    >>> round(float(found.inv_freq[1]) ** -64, 1)
    30527.7
    """
    stretch = factor * max(eval_length, trained_length) / trained_length - (factor - 1)
    return ntk_alpha_frequencies(rotary_dim, base, stretch, like)


def ntk_alpha_frequencies(
    rotary_dim: int, base: float, alpha: float, like: Array
) -> RotaryFrequencies:
    """NTK with a fixed stretch: base ``theta alpha^{D/(D-2)}`` at every length.

    >>> found = ntk_alpha_frequencies(4, 100.0, 2.0, np.zeros(0))
    >>> found.inv_freq.tolist()
    [1.0, 0.05]
    """
    # One pair alone has frequency 1 at any base.
    exponent = rotary_dim / (rotary_dim - 2) if rotary_dim > 2 else 0.0
    return _result(_default(rotary_dim, base * alpha**exponent), like)


def yarn_frequencies(
    rotary_dim: int, base: float, options: YarnOptions, like: Array
) -> RotaryFrequencies:
    """A blend of ``w_i`` and ``w_i / factor``, at every length, and a factor on cos and sin.

    The channel with n rotations over the original length L is ``D ln(L / (2 pi n)) / (2 ln
    theta)``. From the one with ``beta_fast`` rotations to the one with ``beta_slow``, the share of
    ``w_i / factor`` grows from 0 to 1. The attention factor is ``m(1)``, ``m(a) = 1 + 0.1 a ln
    factor``, or ``m(mscale) / m(mscale_all_dim)`` where both are set. Raises ValueError for a
    base of 1.

    >>> options = YarnOptions(factor=40.0, original_length=4096)
    >>> round(yarn_frequencies(64, 1e4, options, np.zeros(0)).attention_factor, 6)
    1.368888
    """
    if base == 1:
        raise ValueError("the base is 1; every wave would be the same")
    low = _yarn_channel(rotary_dim, base, options.beta_fast, options.original_length)
    high = _yarn_channel(rotary_dim, base, options.beta_slow, options.original_length)
    if options.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    # A blend of no width is a step.
    width = high - low if high != low else 0.001
    stretched = np.clip((np.arange(rotary_dim // 2) - low) / width, 0.0, 1.0)
    omega = _default(rotary_dim, base)
    blended = omega / options.factor * stretched + omega * (1 - stretched)
    return _result(blended, like, _yarn_attention_factor(options))


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """``1 + 0.1 mscale ln factor``, and 1 where nothing is stretched.

    Attention classes that read ``mscale_all_dim`` multiply the softmax scale by the square of
    this at it.

    >>> round(yarn_mscale(40.0) ** 2, 6), round(yarn_mscale(40.0, 0.707) ** 2, 6)
    (1.873854, 1.589626)
    """
    return 1.0 if factor <= 1 else 1.0 + 0.1 * mscale * math.log(factor)


def longrope_frequencies(
    rotary_dim: int, base: float, options: LongRopeOptions, eval_length: float, like: Array
) -> RotaryFrequencies:
    """``w_i / s_i``, s the short factors up to the original length L and the long ones beyond.

    The attention factor is ``sqrt(1 + ln factor / ln L)`` at every length, and 1 where the
    factor is at most 1. Raises ValueError unless there is one factor a pair.

    >>> options = LongRopeOptions([1.0, 1.0], [2.0, 4.0], original_length=4096, factor=32.0)
    >>> found = longrope_frequencies(4, 100.0, options, 8192, np.zeros(0))
    >>> found.inv_freq.tolist(), round(found.attention_factor, 6)
    ([0.5, 0.025], 1.190238)
    """
    beyond = eval_length > options.original_length
    divisors = np.asarray(options.long_factor if beyond else options.short_factor, np.float64)
    omega = _default(rotary_dim, base)
    if divisors.shape != omega.shape:
        raise ValueError(f"{divisors.shape} factors; expected one for each of {omega.size} pairs")
    attention_factor = options.attention_factor
    if attention_factor is None:
        stretch = math.log(max(options.factor, 1.0))
        attention_factor = math.sqrt(1 + stretch / math.log(options.original_length))
    return _result(omega / divisors, like, attention_factor)


def llama3_frequencies(
    rotary_dim: int,
    base: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_length: float,
    like: Array,
) -> RotaryFrequencies:
    """Long waves stretched by the factor, short ones kept, at every length.

    With n = original length / wavelength: kept above ``high_freq_factor``, ``w / factor`` below
    ``low_freq_factor``, and between them a blend that is linear in n. The two factors may be equal.

    >>> found = llama3_frequencies(4, 1e4, 8.0, 1.0, 4.0, 64, np.zeros(0))
    >>> found.inv_freq.tolist()
    [1.0, 0.00125]
    """
    omega = _default(rotary_dim, base)
    rotations = original_length * omega / (2 * math.pi)
    if high_freq_factor > low_freq_factor:
        band = high_freq_factor - low_freq_factor
        kept = np.clip((rotations - low_freq_factor) / band, 0.0, 1.0)
    else:  # an empty band: a wave is kept or stretched
        kept = (rotations > high_freq_factor).astype(np.float64)
    return _result((1 - kept) * omega / factor + kept * omega, like)


def proportional_frequencies(
    head_dim: int, base: float, proportion: float, factor: float, like: Array
) -> RotaryFrequencies:
    """The first ``proportion`` of all ``head_dim / 2`` waves; the others stand still.

    Unlike a partial rotation, exponents and pairs go by the whole head: channel i turns with
    channel ``i + head_dim / 2``. The frequencies that are 0 do not turn. The rest are divided
    by ``factor``.

    >>> proportional_frequencies(8, 1e4, 0.5, 1.0, np.zeros(0)).inv_freq.tolist()
    [1.0, 0.1, 0.0, 0.0]
    """
    omega = _default(head_dim, base) / factor
    omega[int(proportion * head_dim // 2) :] = 0.0
    return _result(omega, like)


def _default(rotary_dim: int, base: float) -> np.ndarray:
    omega: np.ndarray = inverse_frequencies(rotary_dim, base, np.zeros(0))
    return omega


def _result(omega: np.ndarray, like: Array, attention_factor: float = 1.0) -> RotaryFrequencies:
    return RotaryFrequencies(as_like(omega.tolist(), like), 1.0, attention_factor)


def _yarn_channel(rotary_dim: int, base: float, rotations: float, length: float) -> float:
    """The (fractional) pair whose wave turns ``rotations`` times over the length."""
    return rotary_dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))


def _yarn_attention_factor(options: YarnOptions) -> float:
    if options.attention_factor is not None:
        return options.attention_factor
    if options.mscale and options.mscale_all_dim:
        over = yarn_mscale(options.factor, options.mscale_all_dim)
        return yarn_mscale(options.factor, options.mscale) / over
    return yarn_mscale(options.factor)
