"""Seeds that leave no trace, on every device there is."""

from __future__ import annotations

import torch

from pjdiag.models.seeding import seeded


def states() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def test_the_caller_s_numbers_go_on_as_if_nothing_was_drawn() -> None:
    before = states()
    for _ in range(2):
        with seeded(5):
            drawn = torch.rand(3)
            assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))
            for device in range(torch.cuda.device_count()):
                torch.rand(3, device=f"cuda:{device}")
    assert all(torch.equal(old, new) for old, new in zip(before, states(), strict=True))
