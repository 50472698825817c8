"""The small pre-norm model: attention by tiles is attention whole, and needs no T x T table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pjdiag.diagnostics.adapter_runner import AdapterRunner
from pjdiag.models import losses, pre_norm_lm
from pjdiag.models.pre_norm_lm import PreNormBlock, PreNormLM
from pjdiag.position.transforms import PositionTransform, RotaryTransform

EMBED, HEADS, VOCABULARY = 8, 2, 50


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, Tensor):
                self.elements = max(self.elements, each.numel())
        return made


def slopes(lags: Tensor) -> Tensor:
    return -torch.tensor([[0.5], [0.03]], dtype=lags.dtype) * lags


def model(vocabulary: int = VOCABULARY, *, biased: bool = True) -> PreNormLM:
    drawn = torch.Generator().manual_seed(0)

    def weights(*shape: int) -> Tensor:
        return torch.randn(shape, generator=drawn, dtype=torch.float64)

    gain = torch.ones(EMBED, dtype=torch.float64)
    rotary = RotaryTransform(EMBED // HEADS, np.asarray([1.0, 0.1]), "half")
    blocks = [
        PreNormBlock(
            (gain, gain),
            weights(3 * EMBED, EMBED),
            weights(EMBED, EMBED),
            (weights(16, EMBED), weights(EMBED, 16)),
            HEADS,
            0.5,
            PositionTransform(EMBED // HEADS) if biased else rotary,
            slopes if biased else None,
        )
        for _ in range(2)
    ]
    return PreNormLM(weights(vocabulary, EMBED), blocks, gain)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("elements", [1, 2 * 37 * 5, 2**20])
def test_tiles_of_any_size_give_the_attention_of_the_whole_table(
    biased: bool, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = torch.Generator().manual_seed(1)
    values = torch.randn(2, HEADS, 37, 4, generator=drawn, dtype=torch.float64)
    seen = []
    made, ids = model(biased=biased), torch.arange(74).view(2, 37) % VOCABULARY
    made.hidden(ids, lambda _, running: seen.append(running))
    table = seen[1].scale * seen[1].queries @ seen[1].keys.mT
    lags = torch.arange(37)[:, None] - torch.arange(37)
    if biased:
        table = table + slopes(lags.double().flatten()).view(HEADS, 37, 37)
    expected = table.masked_fill(lags < 0, -torch.inf).softmax(-1) @ values
    monkeypatch.setattr(pre_norm_lm, "TILE_ELEMENTS", elements)
    found = pre_norm_lm._mixed(seen[1], values)
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(2), rtol=1e-12, atol=1e-12)


def test_losses_are_the_same_by_parts_of_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    running = AdapterRunner("made", made)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 38))
    logs = made.logits(made.hidden(torch.from_numpy(ids[:, :-1]))).log_softmax(-1)
    expected = -logs.gather(-1, torch.from_numpy(ids[:, 1:, None]))[..., 0].numpy()
    for elements in (2**26, 2 * 7 * VOCABULARY, 1):
        monkeypatch.setattr(losses, "HEAD_ELEMENTS", elements)
        np.testing.assert_allclose(running.losses(ids), expected, rtol=1e-12, atol=1e-12)
    assert running.positions_at_once(2, 37) == 1
    assert running.precision == "float64"


def test_no_table_of_all_pairs_and_no_logits_of_all_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 4,096 tokens they would hold 16.8 million elements, and 8.2 million."""
    monkeypatch.setattr(losses, "HEAD_ELEMENTS", 2**20)
    running = AdapterRunner("made", model(2000))
    ids = np.random.default_rng(0).integers(0, 2000, (1, 4097))
    with Largest() as largest:  # type: ignore[no-untyped-call]
        found = running.losses(ids)
    assert np.isfinite(found).all()
    assert 2**19 < largest.elements <= 2**20
