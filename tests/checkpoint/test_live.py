"""A model in memory as a checkpoint: what of its state dict counts, and its digest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pjdiag.checkpoint.live import live_checkpoint
from pjdiag.checkpoint.source import DIGEST_LIMIT


class Counting(nn.Module):
    """Keeps a plain value in its state dict, as layers of quantising libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.steps = nn.Linear(3, 2), 7

    def get_extra_state(self) -> dict[str, int]:
        return {"steps": self.steps}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def test_what_is_no_tensor_is_left_out() -> None:
    module = Counting()
    assert "_extra_state" in module.state_dict()
    live = live_checkpoint(module)
    assert sorted(live.headers) == ["inner.bias", "inner.weight"]
    assert live.dtype() == "float32"
    before = live.digest()
    assert before.startswith("sha256:")
    with torch.no_grad():
        module.inner.bias.add_(1)
    assert live.digest() != before


class Large(nn.Module):
    """More than the digest covers in full; tensors of every form that a state dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2**14, 2**12 + 1))
        self.turned = nn.Parameter(torch.ones(300, 500).t())
        self.gain = nn.Parameter(torch.tensor(1.0))
        self.narrow = nn.Parameter(torch.ones(8, 8, dtype=torch.bfloat16))
        self.register_buffer("mask", torch.ones(2**14, dtype=torch.bool))
        self.register_buffer("none", torch.ones(0, 4))
        self.register_buffer("absent", torch.ones(5, device="meta"))


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "table": lambda table: table[:, 0].add_(1e-3),
    "turned": lambda turned: turned.mul_(2),
    "gain": lambda gain: gain.add_(1e-6),
    "narrow": lambda narrow: narrow[7, 7].add_(1),
    "mask": lambda mask: mask[-1].logical_not_(),
}


def test_the_digest_of_a_large_model_sees_that_it_was_trained_on() -> None:
    module = Large()
    state = module.state_dict()
    assert sum(t.numel() * t.element_size() for t in state.values()) > DIGEST_LIMIT
    live = live_checkpoint(module)
    found = [live.digest()]
    assert live.digest() == found[0]
    for name, change in CHANGES.items():
        change(state[name])
        found.append(live.digest())
    assert len(set(found)) == 1 + len(CHANGES)
    assert all(digest.startswith("sha256-header:") for digest in found)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
def test_a_small_model_is_covered_in_full(shape: tuple[int, ...]) -> None:
    module = nn.ParameterList([nn.Parameter(torch.zeros(shape))])
    before = live_checkpoint(module).digest()
    with torch.no_grad():
        module[0].view(-1)[-1] = 1e-30
    assert live_checkpoint(module).digest() != before
