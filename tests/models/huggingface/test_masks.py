"""The mask function against the masks of transformers' eager attention, entry by entry."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import masking_utils as known

from pjdiag.models.huggingface.masks import MaskRule, RuleMask, mask

PATTERNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "causal": (known.causal_mask_function, {}),
    "window": (known.sliding_window_causal_mask_function(3), {"local_size": 3}),
    "bidirectional": (
        known.bidirectional_mask_function,
        {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True},
    ),
    "bidirectional window": (
        known.sliding_window_bidirectional_mask_function(2),
        {
            "allow_is_causal_skip": False,
            "allow_is_bidirectional_skip": True,
            "local_size": 2,
        },
    ),
    "chunks": (
        known.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.int)),
        {"local_size": 4},
    ),
    "packed": (
        known.and_masks(
            known.causal_mask_function,
            known.packed_sequence_mask_function(torch.tensor([[0] * 5 + [1] * 15] * 2)),
        ),
        {"allow_is_causal_skip": False},
    ),
}
RULES = ("causal", "window", "bidirectional", "bidirectional window")


def made(name: str, **arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Our mask and that of the eager attention, which is never skipped."""
    function, flags = PATTERNS[name]
    given_to_all = {"batch_size": 2, "mask_function": function, "dtype": torch.float32}
    ours = mask(**given_to_all, **flags, **arguments)
    theirs = known.eager_mask(**given_to_all, **arguments)
    assert ours is not None
    return ours, theirs


@given(
    st.sampled_from(sorted(PATTERNS)),
    st.integers(1, 10),
    st.integers(0, 6),
    st.integers(0, 4),
    st.none() | st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_entry_is_that_of_the_eager_attention(
    name: str, queries: int, past: int, dropped: int, padding: list[bool] | None
) -> None:
    """With a cache of ``past`` tokens, of which a sliding one has dropped some."""
    dropped = min(dropped, past)
    arguments: dict[str, Any] = {
        "q_length": queries,
        "kv_length": queries + past - dropped,
        "q_offset": past,
        "kv_offset": dropped,
    }
    if padding is not None:
        arguments["attention_mask"] = torch.tensor(padding).view(2, 20)[:, : queries + past]
    ours, theirs = made(name, **arguments)
    assert isinstance(ours, RuleMask) == (name in RULES)
    assert ours.shape == theirs.shape
    assert torch.equal(ours[:, :, :, 0:] + 0, theirs)


def test_a_rule_takes_no_memory_until_it_is_looked_at() -> None:
    ours, _ = made("window", q_length=4, kv_length=4)
    wide = mask(1, 10**6, known.causal_mask_function, q_length=10**6)
    assert isinstance(wide, RuleMask)
    assert wide.shape == (1, 1, 10**6, 10**6)
    with torch._C.DisableTorchFunctionSubclass():
        assert wide.untyped_storage().nbytes() == 4
    assert wide[:, :, :, : 10**6] is wide
    assert (ours.dtype, ours.device.type, ours.ndim, len(ours.shape)) == (
        torch.float32, "cpu", 4, 4,
    )  # fmt: skip
    assert ours._built is None


@pytest.mark.parametrize(
    "touch",
    [
        lambda x: x[:, :, -2:],
        lambda x: torch.cat([x, x], dim=-1),
        lambda x: torch.nn.functional.pad(x, (0, 3), value=0.0),
        lambda x: x + 0,
        lambda x: 0 + x,
        lambda x: x == 0,
        lambda x: x.to(torch.float64),
        lambda x: x.detach(),
        lambda x: torch.where(x == 0, x, -1.0),
        lambda x: x.expand(2, 3, -1, -1),
        lambda x: torch.stack([x, x]),
    ],
)
def test_whatever_is_done_to_it_is_done_to_the_table(touch: Any) -> None:
    padding = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    ours, theirs = made("window", q_length=6, kv_length=6, attention_mask=padding)
    found, expected = touch(ours), touch(theirs)
    assert type(found) is torch.Tensor
    assert torch.equal(found, expected)


def test_the_arguments_of_transformers_4() -> None:
    ours = mask(1, 7, known.causal_mask_function, cache_position=torch.tensor([5, 6]))
    assert isinstance(ours, RuleMask)
    assert ours.rule == MaskRule(causal=True, offset=5)
    with pytest.raises(TypeError, match="q_length or cache_position"):
        mask(1, 7, known.causal_mask_function)


def test_padding_that_is_not_there_is_not_kept() -> None:
    ours, _ = made("causal", q_length=6, kv_length=6, attention_mask=torch.ones(2, 6).bool())
    assert ours.rule.present is None
