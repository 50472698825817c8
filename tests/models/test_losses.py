"""Losses from logits: exact whatever the vocabulary."""

from __future__ import annotations

import pytest
import torch

from pjdiag.models.losses import losses_from_logits


@pytest.mark.parametrize("vocabulary", [256, 49152, 262144])
def test_float32_losses_are_those_of_float64(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(1, 40, vocabulary, generator=generator)
    wanted = torch.randint(0, vocabulary, (1, 40), generator=generator)
    exact = losses_from_logits(logits.double(), wanted)
    torch.testing.assert_close(
        losses_from_logits(logits, wanted).double(), exact, rtol=0.0, atol=2e-5
    )


def test_narrow_logits_are_summed_in_float32() -> None:
    logits = torch.randn(2, 5, 1000, generator=torch.Generator().manual_seed(2)).bfloat16()
    wanted = torch.zeros(2, 5, dtype=torch.long)
    losses = losses_from_logits(logits, wanted)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, losses_from_logits(logits.float(), wanted))
