"""Tiled statistics of attention against the dense T x T computation."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pjdiag.position.attention import lag_attention
from pjdiag.position.attention_statistics import AttentionStatistics, attention_statistics


def dense(q: Tensor, k: Tensor, bias_by_lag: Tensor | None, scale: float) -> AttentionStatistics:
    """The definitions in float64, with every logit in memory."""
    length = q.shape[-2]
    lag = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    logits = scale * q.double() @ k.double().mT
    if bias_by_lag is not None:
        logits = logits + bias_by_lag.double()[:, lag.clamp(min=0)]
    weights = torch.softmax(logits.masked_fill(lag < 0, -math.inf), dim=-1)
    return AttentionStatistics(
        -torch.xlogy(weights, weights).sum(-1),
        (weights * lag.clamp(min=0)).sum(-1),
        weights[..., 0],
    )


def inputs(
    length: int, *, batch: int = 1, heads: int = 3, width: int = 8, size: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    q, k = (size * torch.randn(batch, heads, length, width, generator=generator) for _ in "qk")
    return q, k, 0.1 * torch.randn(heads, length, generator=generator).cumsum(-1)


def assert_same(
    found: AttentionStatistics, expected: AttentionStatistics, bound: float = 1e-5
) -> None:
    """Within ``bound`` of a nat and of a share, and of the distance itself."""
    assert found.entropy.dtype == found.mean_distance.dtype == found.sink_mass.dtype
    assert found.entropy.shape == expected.entropy.shape
    assert (found.entropy - expected.entropy).abs().max() < bound
    assert (found.sink_mass - expected.sink_mass).abs().max() < bound
    slack = bound * (1 + expected.mean_distance)
    assert ((found.mean_distance - expected.mean_distance).abs() < slack).all()


@pytest.mark.parametrize("size", [0.1, 1.0, 1.5])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("tiles", [(1024, 2**19), (64, 2**13), (100, 2**12)])
def test_equals_the_dense_computation_at_512(
    size: float, with_bias: bool, tiles: tuple[int, int]
) -> None:
    q, k, bias = inputs(512, batch=2, size=size)
    by_lag = bias if with_bias else None
    found = attention_statistics(q, k, by_lag, 0.4, *tiles)
    assert_same(found, dense(q, k, by_lag, 0.4))


@given(
    length=st.integers(1, 60),
    keys=st.integers(1, 70),
    elements=st.integers(1, 5000),
    scale=st.floats(0.05, 2.0),
)
def test_whatever_the_tiles(length: int, keys: int, elements: int, scale: float) -> None:
    q, k, bias = (tensor.double() for tensor in inputs(length))
    found = attention_statistics(q, k, bias, scale, keys, elements)
    assert_same(found, dense(q, k, bias, scale), bound=1e-12)


def test_steep_kernels_and_kernels_with_an_end() -> None:
    """Far keys weigh nothing; a window ends in minus infinity."""
    q, k, _ = (tensor.double() for tensor in inputs(300))
    lags = torch.arange(300, dtype=torch.float64)
    steep = -torch.outer(torch.tensor([0.5, 5.0, 500.0], dtype=torch.float64), lags)
    window = torch.where(lags < 7, 0.0, -math.inf).expand(3, -1)
    for bias in (steep, window, -steep):
        found = attention_statistics(q, k, bias, 0.35, 32, 2**11)
        assert_same(found, dense(q, k, bias, 0.35))


def test_the_statistics_are_those_of_the_attention_itself() -> None:
    """Values that count positions make the attention's output the mean position."""
    q, k, bias = (tensor.double() for tensor in inputs(257, width=4))
    positions = torch.arange(257, dtype=torch.float64)
    first = torch.zeros(257, dtype=torch.float64)
    first[0] = 1
    values = torch.stack([positions, first], -1).expand(1, 3, -1, -1)
    mixed = lag_attention(q, k, values, bias)
    found = attention_statistics(q, k, bias)
    torch.testing.assert_close(found.mean_distance, positions - mixed[..., 0])
    torch.testing.assert_close(found.sink_mass, mixed[..., 1])


def test_uniform_attention_is_known_in_closed_form() -> None:
    flat = torch.zeros(1, 2, 5000, 4)
    found = attention_statistics(flat, flat)
    seen = torch.arange(1, 5001, dtype=torch.float64).expand(1, 2, -1)
    torch.testing.assert_close(found.entropy, seen.log(), rtol=0, atol=2e-6)
    torch.testing.assert_close(found.mean_distance, (seen - 1) / 2, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.sink_mass, 1 / seen, rtol=1e-6, atol=1e-12)


def test_narrow_types_are_widened_and_no_gradient_is_recorded() -> None:
    q, k, bias = inputs(90)
    narrow = attention_statistics(q.bfloat16().requires_grad_(), k.bfloat16(), bias.bfloat16())
    wide = attention_statistics(q.bfloat16().float(), k.bfloat16().float(), bias.bfloat16().float())
    assert not narrow.entropy.requires_grad
    assert torch.equal(narrow.entropy, wide.entropy)


def test_memory_is_linear_in_the_length() -> None:
    program = """
import torch
from pjdiag.position.attention_statistics import attention_statistics
from tests.memory import peak_bytes
q, k = (torch.randn(1, 2, 8192, 8) for _ in range(2))
attention_statistics(q[:, :, :512], k[:, :, :512])
before = peak_bytes()
found = attention_statistics(q, k, torch.randn(2, 8192))
print(peak_bytes() - before, found.entropy.isfinite().all().item())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    used, finite = done.stdout.split()
    assert finite == "True"
    assert int(used) < 40 * 2**20  # one head's logits alone are 256 MiB


def test_shapes_that_do_not_fit() -> None:
    q, k, bias = inputs(5)
    with pytest.raises(ValueError, match=r"\[H, T\] = \(3, 5\)"):
        attention_statistics(q, k, bias[:, :4])
    with pytest.raises(ValueError, match="expected"):
        attention_statistics(q, k[:, :, :4])
