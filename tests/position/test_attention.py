"""Attention under a lag kernel against the plain T x T computation."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pjdiag.position.attention import lag_attention


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, bias_by_lag: Tensor | None, scale: float
) -> Tensor:
    """The definition, with every logit in memory."""
    length = q.shape[-2]
    lag = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    logits = scale * q @ k.transpose(-1, -2)
    if bias_by_lag is not None:
        logits = logits + bias_by_lag[:, lag.clamp(min=0)]
    return torch.softmax(logits.masked_fill(lag < 0, -math.inf), dim=-1) @ v


def inputs(
    length: int, *, width: int = 4, value_width: int = 4, batch: int = 2, heads: int = 3
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)

    def draw(*shape: int) -> Tensor:
        value = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return value.requires_grad_()

    return (
        draw(batch, heads, length, width),
        draw(batch, heads, length, width),
        draw(batch, heads, length, value_width),
        draw(heads, length),
    )


@given(length=st.integers(1, 40), block_rows=st.integers(1, 50), scale=st.floats(0.05, 2.0))
def test_equals_the_definition_whatever_the_blocks(
    length: int, block_rows: int, scale: float
) -> None:
    q, k, v, bias = inputs(length)
    found = lag_attention(q, k, v, bias, scale, block_rows)
    assert torch.allclose(found, dense_attention(q, k, v, bias, scale), atol=1e-12)


@pytest.mark.parametrize("block_rows", [3, 7, 1024])
@pytest.mark.parametrize("value_width", [2, 4, 6])
def test_gradients_equal_the_definition(block_rows: int, value_width: int) -> None:
    arguments = inputs(17, value_width=value_width)
    weight = torch.randn(2, 3, 17, value_width, dtype=torch.float64)
    found = lag_attention(*arguments, 0.7, block_rows)
    expected = dense_attention(*arguments, 0.7)
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), arguments),
        torch.autograd.grad((expected * weight).sum(), arguments),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_gradient_against_finite_differences() -> None:
    arguments = inputs(6, width=2, value_width=2, batch=1, heads=2)
    assert torch.autograd.gradcheck(lambda *a: lag_attention(*a, 0.7, 4), arguments)


@pytest.mark.parametrize("value_width", [2, 4, 6])
def test_without_a_bias_it_is_plain_causal_attention(value_width: int) -> None:
    q, k, v, _ = inputs(19, value_width=value_width)
    found = lag_attention(q, k, v)
    assert found.shape == v.shape
    assert torch.allclose(found, dense_attention(q, k, v, None, 0.5), atol=1e-12)


def test_without_gradients_the_fused_kernel_gives_the_same() -> None:
    q, k, v, bias = (tensor.detach().float() for tensor in inputs(300, width=8, value_width=8))
    found = lag_attention(q, k, v, bias, block_rows=128)
    expected = dense_attention(q, k, v, bias, 1 / math.sqrt(8))
    assert (found - expected).abs().max() < 2e-6


def test_the_future_does_not_matter() -> None:
    q, k, v, bias = inputs(12)
    changed = k.detach().clone()
    changed[:, :, 7:] += 100
    before, after = lag_attention(q, k, v, bias), lag_attention(q, changed, v, bias)
    assert torch.equal(before[:, :, :7], after[:, :, :7])
    assert not torch.allclose(before[:, :, 7:], after[:, :, 7:])


def test_a_constant_added_to_the_kernel_changes_nothing() -> None:
    q, k, v, bias = inputs(12)
    shifted = lag_attention(q, k, v, bias + 3.0)
    assert torch.allclose(lag_attention(q, k, v, bias), shifted, atol=1e-12)


def test_eight_thousand_tokens_need_no_table_of_lags() -> None:
    program = """
import torch
from pjdiag.position.attention import lag_attention
from tests.memory import peak_bytes
q, k, v = (torch.randn(1, 4, 8192, 24) for _ in range(3))
out = lag_attention(q, k, v, torch.randn(4, 8192))
print(peak_bytes(), out.isfinite().all().item())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    peak, finite = done.stdout.split()
    assert finite == "True"
    assert int(peak) < 2**30  # four tables of 8192 x 8192 float32 alone are 1 GiB


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 5, 4), (2, 5)), "expected"),
        (((2, 5, 4), (2, 5, 4), (2, 5, 4), (2, 5)), "expected"),
        (((1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 4, 4), (2, 5)), "expected"),
        (((1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4), (2, 6)), r"\[H, T\] = \(2, 5\)"),
        (((1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4), (1, 5)), r"\[H, T\] = \(2, 5\)"),
    ],
)
def test_shapes_that_do_not_fit(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lag_attention(*(torch.zeros(shape) for shape in shapes))


def test_a_block_needs_a_row() -> None:
    q, k, v, bias = inputs(3)
    with pytest.raises(ValueError, match="block_rows is 0"):
        lag_attention(q, k, v, bias, block_rows=0)
