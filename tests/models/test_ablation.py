"""What a layer loses: exactly the part, in exactly the heads, and a control of the same size."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pjdiag.errors import AdapterError
from pjdiag.models.ablated_kl import SMALL, attention_kl, sampled_queries
from pjdiag.models.ablation import LayerChange
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import probabilities

HEADS, GROUPS, LENGTH, WIDTH = 4, 2, 13, 6
CHANNELS = torch.tensor([True, False, False, True, False, False])


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def attended(**changes: object) -> RunningAttention:
    keys = drawn(2, HEADS // GROUPS, LENGTH, WIDTH, seed=1)
    made = {
        "queries": drawn(2, HEADS, LENGTH, WIDTH),
        "keys": keys,
        "bias_by_lag": drawn(HEADS, LENGTH, seed=2),
        "scale": 0.7,
    }
    return RunningAttention(**(made | changes))  # type: ignore[arg-type]


def products(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT


def only(*heads: int) -> torch.Tensor:
    return torch.tensor([head in heads for head in range(HEADS)])


def test_a_head_loses_its_channels_and_its_siblings_keep_theirs() -> None:
    seen = attended()
    change = LayerChange(only(1), channels=CHANNELS)
    q, k, v = change.products(seen.queries, seen.keys, seen.keys)
    before, after = products(seen.queries, seen.keys), products(q, k)
    repeated = seen.keys.repeat_interleave(GROUPS, dim=1)
    part = seen.queries[..., CHANNELS] @ repeated[..., CHANNELS].mT
    torch.testing.assert_close(before[:, 1] - after[:, 1], part[:, 1])
    assert torch.equal(before[:, [0, 2, 3]], after[:, [0, 2, 3]])
    assert k is seen.keys
    assert v is seen.keys


@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (2,), (0, 3)])
def test_a_control_keeps_the_size_of_every_entry(heads: tuple[int, ...]) -> None:
    seen = attended()
    change = LayerChange(only(*heads), line=drawn(HEADS, LENGTH, seed=5), channels=CHANNELS)
    control = change.control(LENGTH, torch.Generator().manual_seed(3))
    assert control.signs is not None
    assert set(control.signs.flatten().tolist()) == {-1.0, 1.0}
    lost = []
    for each in (change, control):
        q, k, v = each.products(seen.queries, seen.keys, seen.keys)
        assert torch.equal(
            v.repeat_interleave(HEADS // v.shape[1], 1), seen.keys.repeat_interleave(GROUPS, 1)
        )
        bias = each.bias(seen.bias_by_lag)
        assert bias is not None
        assert seen.bias_by_lag is not None
        lost.append((products(seen.queries, seen.keys) - products(q, k), seen.bias_by_lag - bias))
    for whole, signed in zip(*lost, strict=True):
        torch.testing.assert_close(whole.abs(), signed.abs(), rtol=1e-5, atol=1e-5)
        assert float((whole - signed).abs().max()) > 0.1
    untouched = [head for head in range(HEADS) if head not in heads]
    assert not any(part[..., untouched, :].any() for part in (lost[1][1], lost[0][1]))
    assert not any(part[:, untouched].abs().max() > 1e-5 for part in (lost[1][0],) if untouched)


def test_the_whole_bias() -> None:
    line = drawn(HEADS, LENGTH)
    left = LayerChange(only(0, 2), whole_bias=True).bias(line)
    assert left is not None
    assert not left[[0, 2]].any()
    assert torch.equal(left[[1, 3]], line[[1, 3]])


def test_what_does_not_fit_is_refused() -> None:
    change = LayerChange(only(0), line=torch.ones(HEADS, LENGTH), channels=CHANNELS)
    with pytest.raises(AdapterError, match="has no bias"):
        change.bias(None)
    with pytest.raises(AdapterError, match=r"a bias of shape \[4, 12\]"):
        change.bias(torch.ones(HEADS, LENGTH - 1))
    q = torch.ones(1, HEADS, LENGTH, WIDTH - 1)
    with pytest.raises(AdapterError, match="4 heads of 5 channels; expected 4 of 6"):
        change.products(q, q, q)
    assert LayerChange(only(0), channels=CHANNELS).bias(None) is None


def edited(seen: RunningAttention, change: LayerChange) -> RunningAttention:
    """The attention after the change, by its own code: keys of its own for each head."""
    q = seen.queries.clone()
    if change.channels is not None:
        for head in torch.nonzero(change.heads).flatten():
            q[:, head, :, change.channels] = 0
    line, ahead = seen.bias_by_lag, seen.bias_ahead
    if change.whole_bias:
        line = None if line is None else line.masked_fill(change.heads[:, None], 0.0)
        ahead = None if ahead is None else ahead.masked_fill(change.heads[:, None], 0.0)
    elif change.line is not None and line is not None:
        line = line.double() - change.line.double() * change.heads[:, None]
    return attended(
        queries=q,
        keys=seen.keys,
        bias_by_lag=line,
        bias_ahead=ahead,
        softcap=seen.softcap,
        causal=seen.causal,
        window=seen.window,
        scale=seen.scale,
    )


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"window": 5},
        {"softcap": 1.5},
        {"causal": False, "bias_ahead": drawn(HEADS, LENGTH, seed=9)},
        {"bias_by_lag": None},
    ],
    ids=["plain", "window", "softcap", "both sides", "no bias"],
)
def test_divergence_is_that_of_the_whole_tables(kind: dict[str, object]) -> None:
    seen = attended(**kind)
    changes = [LayerChange(only(0, 1, 2, 3), channels=CHANNELS)]
    if seen.bias_by_lag is not None:
        changes += [
            LayerChange(only(0, 2), whole_bias=True),
            LayerChange(only(0, 1, 2, 3), line=1e-5 * drawn(HEADS, LENGTH, seed=4)),
            LayerChange(only(1), line=40 * drawn(HEADS, LENGTH, seed=6), channels=CHANNELS),
        ]
    every = torch.arange(LENGTH).expand(2, -1)
    found = attention_kl(seen, changes, every)
    before = probabilities(seen)
    for change, by_head in zip(changes, found, strict=True):
        after = probabilities(edited(seen, change))
        ratio = np.where(before > 0, before / np.maximum(after, 1e-300), 1.0)
        expected = (before * np.log(ratio)).sum(-1).mean((0, 2))
        assert by_head == pytest.approx(expected, rel=1e-4, abs=1e-13)
        assert (by_head >= 0).all()


def test_a_tiny_change_keeps_its_digits() -> None:
    size = 1e-9
    seen = attended(
        queries=torch.zeros(2, HEADS, LENGTH, WIDTH), bias_by_lag=torch.zeros(HEADS, LENGTH)
    )
    line = size * drawn(HEADS, LENGTH, seed=8)
    last = torch.full((2, 1), LENGTH - 1)
    (found,) = attention_kl(seen, [LayerChange(only(0, 1, 2, 3), line=line)], last)
    expected = line.double().var(dim=1, correction=0) / 2  # second order, under uniform weights
    assert found == pytest.approx(expected.numpy(), rel=1e-6)


def test_a_steep_bias_does_not_overflow() -> None:
    """Removing a slope under which far keys have no weight left in float64."""
    length, slope = 40, 30.0
    flat = torch.zeros(1, 1, length, 2)
    line = -slope * torch.arange(float(length))[None]
    seen = RunningAttention(flat, flat, line, 1.0)
    lost = LayerChange(torch.ones(1).bool(), whole_bias=True)
    ((found,),) = attention_kl(seen, [lost], torch.tensor([[length - 1]]))
    weights = [math.exp(-slope * lag) for lag in range(length)]
    mean_lag = sum(lag * w for lag, w in enumerate(weights)) / sum(weights)
    expected = math.log(length) - math.log(sum(weights)) - slope * mean_lag
    assert found == pytest.approx(expected, rel=1e-9)
    assert found > SMALL


def test_sampled_queries_are_drawn_from_the_seed() -> None:
    first, again, other = (sampled_queries(5, 100, 32, [seed]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (5, 7)
    assert int(first.min()) >= 0
    assert int(first.max()) < 100
    assert sampled_queries(64, 100, 32, [0]).shape == (64, 1)
    assert sampled_queries(1, 10, 32, [0]).shape == (1, 10)
