"""The rope types' frequencies, against a second writing of them in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.rope_rules import (
    LongRopeOptions,
    YarnOptions,
    default_frequencies,
    dynamic_frequencies,
    linear_frequencies,
    llama3_frequencies,
    longrope_frequencies,
    ntk_alpha_frequencies,
    proportional_frequencies,
    yarn_frequencies,
    yarn_mscale,
)
from pjdiag.position.rotary import RotaryFrequencies, rotate_half

LIKE = np.zeros(0)
dims = st.integers(2, 64).map(lambda half: 2 * half)
bases = st.floats(10.0, 1e8)
factors = st.floats(1.0, 64.0)
lengths = st.integers(64, 32768)


def plain(rotary_dim: int, base: float) -> list[float]:
    return [math.exp(-2 * i / rotary_dim * math.log(base)) for i in range(rotary_dim // 2)]


def same(found: RotaryFrequencies, expected: list[float]) -> None:
    assert found.position_scale == 1.0
    np.testing.assert_allclose(found.inv_freq, expected, rtol=1e-12, atol=0)


@given(dims, bases, factors)
def test_default_and_linear(dim: int, base: float, factor: float) -> None:
    same(default_frequencies(dim, base, LIKE), plain(dim, base))
    stretched = linear_frequencies(dim, base, factor, LIKE)
    same(stretched, [omega / factor for omega in plain(dim, base)])
    assert stretched.attention_factor == 1.0


@pytest.mark.parametrize(
    ("length", "base"), [(1, 10000.0), (2048, 10000.0), (4096, 30527.7), (8192, 72195.9)]
)
def test_dynamic_base_at_each_length(length: int, base: float) -> None:
    found = dynamic_frequencies(128, 1e4, 2.0, 2048, length, LIKE)
    assert float(found.inv_freq[1]) ** -64 == pytest.approx(base, abs=0.05)


def test_dynamic_forgets_a_longer_input() -> None:
    dynamic_frequencies(128, 1e4, 2.0, 2048, 8192, LIKE)
    same(dynamic_frequencies(128, 1e4, 2.0, 2048, 512, LIKE), plain(128, 1e4))


@given(dims, bases, factors, lengths, lengths)
def test_dynamic_is_a_larger_base(
    dim: int, base: float, factor: float, trained: int, length: int
) -> None:
    excess = max(length - trained, 0) / trained
    grown = base * (1 + factor * excess) ** (dim / (dim - 2))
    found = dynamic_frequencies(dim, base, factor, trained, length, LIKE)
    np.testing.assert_allclose(found.inv_freq, plain(dim, grown), rtol=1e-11)


def test_one_pair_turns_by_one_at_any_stretch() -> None:
    assert dynamic_frequencies(2, 1e4, 4.0, 128, 4096, LIKE).inv_freq.tolist() == [1.0]


def test_a_fixed_alpha_is_not_the_dynamic_factor() -> None:
    fixed = ntk_alpha_frequencies(128, 1e4, 1000.0, LIKE)
    same(fixed, plain(128, 1e4 * 1000 ** (128 / 126)))
    assert float(fixed.inv_freq[1]) ** -64 == pytest.approx(1e4 * 1000 ** (128 / 126))


def yarn_loop(dim: int, base: float, options: YarnOptions) -> list[float]:
    def channel(rotations: float) -> float:
        turns = options.original_length / (rotations * 2 * math.pi)
        return dim * math.log(turns) / (2 * math.log(base))

    low, high = channel(options.beta_fast), channel(options.beta_slow)
    if options.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    blended = []
    for index, omega in enumerate(plain(dim, base)):
        share = min(1.0, max(0.0, (index - low) / (high - low)))
        blended.append((1 - share) * omega + share * omega / options.factor)
    return blended


@given(dims, bases, factors, lengths, st.booleans(), st.floats(2.0, 64.0), st.floats(0.25, 2.0))
def test_yarn(
    dim: int, base: float, factor: float, length: int, truncate: bool, fast: float, slow: float
) -> None:
    options = YarnOptions(factor, length, fast, slow, truncate=truncate)
    found = yarn_frequencies(dim, base, options, LIKE)
    np.testing.assert_allclose(found.inv_freq, yarn_loop(dim, base, options), rtol=1e-9)
    omega = np.asarray(plain(dim, base))
    assert np.all(found.inv_freq <= omega * (1 + 1e-12))
    assert np.all(found.inv_freq >= omega / factor * (1 - 1e-12))


def yarn_factor(**options: float) -> float:
    stated = YarnOptions(factor=40.0, original_length=4096, **options)
    return yarn_frequencies(64, 1e4, stated, LIKE).attention_factor


def test_yarn_has_two_corrections() -> None:
    assert yarn_factor() == pytest.approx(1.368888, abs=5e-7)
    assert yarn_factor(mscale=1.0, mscale_all_dim=1.0) == 1.0
    assert yarn_factor(mscale=0.707, mscale_all_dim=0.707) == 1.0
    assert yarn_factor(mscale=0.707) == pytest.approx(1.368888, abs=5e-7)
    assert yarn_factor(mscale=1.0, mscale_all_dim=0.0) == pytest.approx(1.368888, abs=5e-7)
    assert yarn_factor(mscale=1.0, mscale_all_dim=0.707) == pytest.approx(1.368888 / 1.260804)
    assert yarn_factor(attention_factor=1.25, mscale=1.0, mscale_all_dim=1.0) == 1.25
    assert yarn_mscale(40.0) ** 2 == pytest.approx(1.873854, abs=5e-7)
    assert yarn_mscale(40.0, 0.707) ** 2 == pytest.approx(1.589626, abs=5e-7)
    assert yarn_mscale(1.0) == yarn_mscale(0.5) == 1.0


def test_yarn_refuses_a_base_of_one() -> None:
    with pytest.raises(ValueError, match="base is 1"):
        yarn_frequencies(8, 1.0, YarnOptions(2.0, 128), LIKE)


def test_longrope_picks_by_the_length_in_use() -> None:
    options = LongRopeOptions([1.0, 2.0], [4.0, 8.0], original_length=4096, factor=32.0)
    at_the_edge = longrope_frequencies(4, 100.0, options, 4096, LIKE)
    beyond = longrope_frequencies(4, 100.0, options, 4097, LIKE)
    same(at_the_edge, [1.0, 0.05])
    same(beyond, [0.25, 0.0125])
    for found in (at_the_edge, beyond):
        assert found.attention_factor == pytest.approx(1.190238, abs=5e-7)


def test_longrope_attention_factor() -> None:
    unstretched = LongRopeOptions([1.0], [1.0], 4096, factor=0.5)
    assert longrope_frequencies(2, 1e4, unstretched, 8, LIKE).attention_factor == 1.0
    stated = LongRopeOptions([1.0], [1.0], 4096, factor=32.0, attention_factor=1.5)
    assert longrope_frequencies(2, 1e4, stated, 8, LIKE).attention_factor == 1.5


def test_longrope_needs_a_factor_a_pair() -> None:
    options = LongRopeOptions([1.0], [1.0, 1.0], 4096, factor=32.0)
    with pytest.raises(ValueError, match="each of 2 pairs"):
        longrope_frequencies(4, 1e4, options, 8, LIKE)


@given(dims, bases, factors, lengths, st.floats(0.5, 2.0), st.floats(2.5, 8.0))
def test_llama3(dim: int, base: float, factor: float, length: int, low: float, high: float) -> None:
    expected = []
    for omega in plain(dim, base):
        rotations = length * omega / (2 * math.pi)
        if rotations > high:
            expected.append(omega)
        elif rotations < low:
            expected.append(omega / factor)
        else:
            smooth = (rotations - low) / (high - low)
            expected.append((1 - smooth) * omega / factor + smooth * omega)
    found = llama3_frequencies(dim, base, factor, low, high, length, LIKE)
    np.testing.assert_allclose(found.inv_freq, expected, rtol=1e-9)


@given(dims, bases, st.floats(0.01, 1.0), factors)
def test_proportional_keeps_the_heads_exponents(
    dim: int, base: float, proportion: float, factor: float
) -> None:
    found = proportional_frequencies(dim, base, proportion, factor, LIKE).inv_freq
    turning = int(proportion * dim // 2)
    np.testing.assert_allclose(
        found[:turning], np.asarray(plain(dim, base)[:turning]) / factor, rtol=1e-12
    )
    assert found.shape == (dim // 2,)
    assert not found[turning:].any()


def test_proportional_pairs_span_the_head() -> None:
    angles = np.ones((1, 1)) * proportional_frequencies(16, 1e4, 0.25, 1.0, LIKE).inv_freq
    turned = rotate_half(np.eye(16)[:, None, :], angles)[:, 0, :]
    moved = [
        channel for channel in range(16) if not np.array_equal(turned[channel], np.eye(16)[channel])
    ]
    assert moved == [0, 1, 8, 9]


def every_rule(like: object) -> list[RotaryFrequencies]:
    return [
        default_frequencies(4, 1e4, like),
        linear_frequencies(4, 1e4, 2.0, like),
        dynamic_frequencies(4, 1e4, 2.0, 128, 512, like),
        ntk_alpha_frequencies(4, 1e4, 8.0, like),
        yarn_frequencies(4, 1e4, YarnOptions(4.0, 128), like),
        longrope_frequencies(4, 1e4, LongRopeOptions([1, 2], [3, 4], 128, 4.0), 512, like),
        llama3_frequencies(4, 1e4, 8.0, 1.0, 4.0, 128, like),
        proportional_frequencies(4, 1e4, 0.5, 1.0, like),
    ]


def test_frequencies_are_computed_in_float64_whatever_comes_out() -> None:
    wide = every_rule(np.zeros(0))
    for like in (torch.zeros(0), torch.zeros(0, dtype=torch.float64)):
        for found, reference in zip(every_rule(like), wide, strict=True):
            assert found.inv_freq.dtype == like.dtype
            assert (
                found.inv_freq.tolist()
                == torch.as_tensor(reference.inv_freq, dtype=like.dtype).tolist()
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_no_rule_returns_low_precision(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="expected float32 or float64"):
        every_rule(torch.zeros(0, dtype=dtype))


def test_what_a_low_precision_frequency_would_cost() -> None:
    positions = torch.arange(32768)
    assert positions.to(torch.bfloat16).unique().numel() == 1153
    assert positions.to(torch.float16).unique().numel() == 6145
    assert float(torch.tensor(257).to(torch.bfloat16)) == 256
    exact = default_frequencies(4, 100.0, LIKE).inv_freq[1]
    rounded = float(torch.tensor(exact).to(torch.bfloat16))
    assert rounded == pytest.approx(0.10009766, abs=5e-9)
    assert (rounded - exact) * 32767 == pytest.approx(3.2, abs=0.01)
    angles = default_frequencies(4, 100.0, LIKE).angles(np.asarray([32767.0]))
    assert float(angles[0, 1]) == pytest.approx(3276.7, abs=1e-9)


def test_a_partial_rotation_leaves_the_other_channels() -> None:
    rotary_dim = int(16 * 0.25)
    frequencies = default_frequencies(rotary_dim, 1e4, LIKE)
    assert frequencies.inv_freq.tolist() == pytest.approx([1.0, 0.01])
    x = np.random.default_rng(0).normal(size=(1, 16))
    turned = rotate_half(x, frequencies.angles(np.asarray([3.0])))
    assert np.array_equal(turned[:, 4:], x[:, 4:])
    for first, second, omega in ((0, 2, 1.0), (1, 3, 0.01)):
        z = complex(x[0, first], x[0, second]) * np.exp(3j * omega)
        assert complex(turned[0, first], turned[0, second]) == pytest.approx(z)


@pytest.mark.parametrize("rotary_dim", [0, 3, 19])
def test_odd_dimensions_are_refused(rotary_dim: int) -> None:
    with pytest.raises(ValueError, match="positive even number"):
        linear_frequencies(rotary_dim, 1e4, 2.0, LIKE)


def test_llama3_with_an_empty_band_keeps_or_stretches() -> None:
    """Llama 4 Scout states both factors as 1."""
    like = np.zeros(0)
    plain = llama3_frequencies(16, 500.0, 1.0, 1.0, 1.0, 64, like).inv_freq
    found = llama3_frequencies(16, 500.0, 16.0, 1.0, 1.0, 64, like).inv_freq
    kept = 64 * plain / (2 * np.pi) > 1.0
    assert kept.any()
    assert not kept.all()
    np.testing.assert_allclose(found, np.where(kept, plain, plain / 16))
