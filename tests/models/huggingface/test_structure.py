"""Tables put into words, and what has no words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface.masks import MaskRule
from pjdiag.models.huggingface.structure import observed_rule, split_by_lag

LOWEST = torch.finfo(torch.float32).min


@given(
    st.integers(2, 12),
    st.booleans(),
    st.none() | st.integers(1, 12),
    st.lists(st.booleans(), min_size=24, max_size=24),
    st.booleans(),
)
def test_every_rule_is_found_again(
    length: int, causal: bool, window: int | None, padding: list[bool], added: bool
) -> None:
    present = torch.tensor(padding).view(2, 12)[:, :length]
    present[0] = True  # one window without padding shows the whole pattern
    rule = MaskRule(causal, window, present=present)
    table = rule.table(length, length, "cpu")
    if added:
        table = torch.zeros(table.shape).masked_fill(~table, LOWEST)
    found = observed_rule(table, "Attention")
    assert torch.equal(found.table(length, length, "cpu"), rule.table(length, length, "cpu"))


@pytest.mark.parametrize(
    "table",
    [
        torch.eye(6).flip(0).bool()[None, None],
        torch.ones(1, 1, 6, 6).triu().bool(),
        torch.block_diag(torch.ones(3, 3), torch.ones(3, 3)).tril().bool()[None, None],
    ],
    ids=["mirror", "anticausal", "chunks"],
)
def test_other_patterns_have_no_words(table: torch.Tensor) -> None:
    with pytest.raises(AdapterError, match="neither causal nor bidirectional"):
        observed_rule(table, "Attention")


def test_a_mask_that_also_adds_is_not_a_mask() -> None:
    table = torch.zeros(1, 1, 4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), LOWEST)
    assert observed_rule(table, "Attention") == MaskRule(causal=True)
    table[..., 2, 1] = 0.5
    with pytest.raises(AdapterError, match="adds values of its own"):
        observed_rule(table, "Attention")
    with pytest.raises(AdapterError, match="adds values of its own"):
        observed_rule(torch.ones(1, 2, 4, 4).bool(), "Attention")
    with pytest.raises(AdapterError, match="leaves no key to see"):
        observed_rule(torch.zeros(1, 1, 4, 4).bool(), "Attention")


def test_a_bias_is_a_function_of_the_lag_or_refused() -> None:
    lags = torch.arange(5)[:, None] - torch.arange(5)
    table = torch.stack([lags.float(), lags.float() ** 2])[None]
    behind, ahead = split_by_lag(table, MaskRule(causal=False), "Attention")
    assert behind is not None
    assert behind.tolist() == [[0, 1, 2, 3, 4], [0, 1, 4, 9, 16]]
    assert ahead is not None
    assert ahead.tolist() == [[0, -1, -2, -3, -4], [0, 1, 4, 9, 16]]
    assert split_by_lag(table, MaskRule(causal=True), "Attention")[1] is None
    with pytest.raises(AdapterError, match="differs between windows"):
        split_by_lag(torch.cat([table, 2 * table]), MaskRule(causal=True), "Attention")
    table[0, 1, 4, 2] += 1
    with pytest.raises(AdapterError, match="not a function of the lag"):
        split_by_lag(table, MaskRule(causal=True), "Attention")
