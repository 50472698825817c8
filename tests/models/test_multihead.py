"""What hooks see of ``nn.MultiheadAttention``, against the weights that it returns itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pjdiag.errors import AdapterError
from pjdiag.models.multihead import multihead_modules, observed_multihead
from pjdiag.models.running import RunningAttention
from tests.models.huggingface.tiny import probabilities

WIDTH, HEADS, LENGTH, BATCH = 24, 4, 13, 2


def attention(seed: int = 0, **settings: Any) -> nn.MultiheadAttention:
    torch.manual_seed(seed)
    made = nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True, **settings}).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made


def states(length: int = LENGTH, seed: int = 1) -> Tensor:
    return torch.randn(BATCH, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def observe(
    model: nn.Module, *args: Any, **kwargs: Any
) -> tuple[dict[int, RunningAttention], dict[int, str], Any]:
    seen: dict[int, RunningAttention] = {}
    missed: dict[int, str] = {}
    with torch.no_grad(), observed_multihead(model, seen.__setitem__, missed.__setitem__):
        output = model(*args, **kwargs)
    return seen, missed, output


def causal_mask(*, numbers: bool = False, window: int | None = None) -> Tensor:
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    if window is not None:
        hidden |= torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(-window)
    return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf) if numbers else hidden


def padding_mask(*, numbers: bool = False) -> Tensor:
    hidden = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    hidden[0, -4:] = True
    return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf) if numbers else hidden


def alibi() -> Tensor:
    lags = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    return (-slopes[:, None, None] * lags.abs()).repeat(BATCH, 1, 1)


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"attn_mask": causal_mask()},
    "causal, stated": {"attn_mask": causal_mask(), "is_causal": True},
    "causal, numbers": {"attn_mask": causal_mask(numbers=True)},
    "causal, a mask per head": {
        "attn_mask": causal_mask().expand(BATCH * HEADS, LENGTH, LENGTH),
    },
    "window": {"attn_mask": causal_mask(window=5)},
    "padding": {"key_padding_mask": padding_mask()},
    "padding, numbers": {"key_padding_mask": padding_mask(numbers=True)},
    "causal and padding": {"attn_mask": causal_mask(), "key_padding_mask": padding_mask()},
    "causal and padding, numbers": {
        "attn_mask": causal_mask(numbers=True),
        "key_padding_mask": padding_mask(numbers=True),
    },
    "bias both ways": {"attn_mask": alibi()},
    "bias and causal": {"attn_mask": alibi() + causal_mask(numbers=True)},
    "bias and padding": {
        "attn_mask": alibi(),
        "key_padding_mask": padding_mask(numbers=True),
    },
}


def centred(weights: np.ndarray) -> np.ndarray:
    """Row-centred logs of the probabilities above 0; those that are 0 stay minus infinity."""
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    seen = np.isfinite(logs)
    counts = np.maximum(seen.sum(axis=-1, keepdims=True), 1)
    return logs - np.where(seen, logs, 0).sum(axis=-1, keepdims=True) / counts


def check(found: RunningAttention, weights: Tensor) -> None:
    """Against the weights that torch returned, ``[B, H, T, T]``, on rows that are no padding."""
    ours, theirs = probabilities(found), weights.double().numpy()
    np.testing.assert_array_equal(ours == 0, theirs == 0)
    with np.errstate(invalid="ignore"):
        error = np.abs(centred(ours) - centred(theirs))
    rows = np.ones(error.shape[:1] + error.shape[2:3], dtype=bool)
    if found.present is not None:
        rows = found.present.numpy()
    assert np.nanmax(error.transpose(0, 2, 1, 3)[rows]) < 1e-4


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"batch_first": False}, {"bias": False}, {"vdim": 10}, {"vdim": 10, "bias": False}],
    ids=["packed", "batch second", "no bias", "separate", "separate, no bias"],
)
def test_the_weights_are_those_of_the_module(settings: dict[str, Any], name: str) -> None:
    module, x = attention(**settings), states()
    values = states(seed=2)[..., :10] if "vdim" in settings else x
    if not module.batch_first:
        x = values = x.transpose(0, 1)
    seen, missed, (_, weights) = observe(
        module, x, x, values, average_attn_weights=False, **MASKS[name]
    )
    assert not missed
    check(seen[0], weights)


def test_a_hint_of_causality_rules_where_torch_lets_it() -> None:
    """Without weights and padding torch ignores the mask itself."""
    module, x = attention(), states()
    hidden = causal_mask(window=5)
    seen, _, _ = observe(module, x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)
    assert (seen[0].causal, seen[0].window) == (True, None)
    seen, _, _ = observe(module, x, x, x, attn_mask=hidden, is_causal=True)
    assert (seen[0].causal, seen[0].window) == (True, 5)


def test_one_sequence_without_a_batch() -> None:
    module, x = attention(), states()[0]
    seen, _, (_, weights) = observe(
        module, x, x, x, attn_mask=causal_mask(), average_attn_weights=False
    )
    check(seen[0], weights[None])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_the_fused_encoder_is_seen_too(norm_first: bool, padded: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, mask = states(), padding_mask() if padded else None
    with torch.no_grad():
        fused = model(x, src_key_padding_mask=mask)
    model.enable_nested_tensor = padded and not norm_first
    before = torch.backends.mha.get_fastpath_enabled()
    seen, missed, output = observe(model, x, src_key_padding_mask=mask)
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert (sorted(seen), missed) == ([0, 1], {})
    present = torch.ones(BATCH, LENGTH, dtype=torch.bool) if mask is None else ~mask
    torch.testing.assert_close(output[present], fused[present], rtol=1e-4, atol=1e-5)
    inner = model.layers[0].norm1(x) if norm_first else x
    with torch.no_grad():
        _, weights = model.layers[0].self_attn(
            inner, inner, inner, key_padding_mask=mask, average_attn_weights=False
        )
    check(seen[0], weights)


def test_attention_to_another_sequence_is_left_out() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, 1, 1, 32, batch_first=True).eval()
    assert [name for name, _ in multihead_modules(model)] == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
    ]
    seen, missed, _ = observe(
        model, states(), states(seed=3), tgt_mask=causal_mask(), tgt_is_causal=True
    )
    assert {index: one.causal for index, one in seen.items()} == {0: False, 1: True}
    assert missed == {2: "its keys are not those of its queries: attention to another sequence"}


class OwnForward(nn.MultiheadAttention):
    def forward(self, query: Tensor, *others: Any, **more: Any) -> Any:
        return super().forward(query, *others, **more)


@pytest.mark.parametrize(
    ("module", "masks", "reason"),
    [
        (attention(add_bias_kv=True), {}, "add_bias_kv"),
        (attention(add_zero_attn=True), {}, "add_zero_attn"),
        (OwnForward(WIDTH, HEADS, batch_first=True), {}, "OwnForward has a forward of its own"),
        (attention(), {"key_padding_mask": torch.rand(BATCH, LENGTH)}, "adds values"),
        (attention(), {"attn_mask": torch.rand(LENGTH, LENGTH)}, "not a function of the lag"),
        (attention(), {"attn_mask": torch.rand(LENGTH, LENGTH).gt(2).tril(-3)}, None),
        (
            attention(),
            {"attn_mask": torch.eye(LENGTH, dtype=torch.bool).roll(1, 0)},
            "neither causal nor bidirectional",
        ),
        (
            attention(),
            {"attn_mask": torch.arange(BATCH * HEADS)[:, None, None].lt(1) & causal_mask()},
            "different keys from different heads",
        ),
    ],
)
def test_what_no_rule_describes_is_left_out(
    module: nn.Module, masks: dict[str, Tensor], reason: str | None
) -> None:
    x = states()
    seen, missed, _ = observe(module, x, x, x, **masks)
    if reason is None:
        assert (sorted(seen), missed) == ([0], {})
    else:
        assert not seen
        assert reason in missed[0]


def test_a_module_that_is_called_twice() -> None:
    module, x = attention(), states()
    with torch.no_grad(), observed_multihead(module, lambda *_: None, lambda *_: None):
        module(x, x, x)
        with pytest.raises(AdapterError, match="more than once"):
            module(x, x, x)
    with torch.no_grad():
        module(x, x, x)
        module(x, x, x)  # the hooks are gone


class Changing(nn.Module):
    """Two layers that are given one mask; in between its values change in place."""

    def __init__(self, *heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.MultiheadAttention(WIDTH, count, batch_first=True) for count in heads
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, x, x, attn_mask=mask, need_weights=False)[0]
            mask.add_(-0.2 * (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).clamp(min=0))
        return x


@pytest.mark.parametrize("inference", [False, True])
def test_a_mask_that_changes_between_layers_is_read_anew(inference: bool) -> None:
    with torch.inference_mode(inference):
        mask = causal_mask(numbers=True)
    seen: dict[int, RunningAttention] = {}
    model = Changing(2, 2)
    hooks = observed_multihead(model, seen.__setitem__, {}.__setitem__)
    with torch.inference_mode(inference), torch.no_grad(), hooks:
        model(states(), mask)
    assert seen[0].bias_by_lag is None
    expected = -0.2 * torch.arange(LENGTH).expand(2, -1)
    torch.testing.assert_close(seen[1].bias_by_lag, expected)


def test_layers_of_different_heads_may_share_a_mask() -> None:
    mask = causal_mask(numbers=True) - 0.1 * (
        torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    ).clamp(min=0)
    model = nn.ModuleList([attention(), nn.MultiheadAttention(WIDTH, 2, batch_first=True)])
    seen: dict[int, RunningAttention] = {}
    x = states()
    with torch.no_grad(), observed_multihead(model, seen.__setitem__, {}.__setitem__):
        for layer in model:
            x = layer(x, x, x, attn_mask=mask)[0]
    assert [seen[index].bias_by_lag.shape[0] for index in (0, 1)] == [4, 2]
