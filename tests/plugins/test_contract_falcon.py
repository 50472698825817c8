"""Falcon's ALiBi against its default attention.

The class's eager attention adds its ALiBi a second time through the mask, so the reference here is
what it hands to ``scaled_dot_product_attention``: queries, keys and the mask with the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import FalconConfig, FalconForCausalLM

import pjdiag
from pjdiag import adapters
from pjdiag.adapters import AdditiveKernel, Layer
from pjdiag.diagnostics.layer_logits import layer_logits
from pjdiag.position.alibi import slopes
from tests.plugins.contract import MASKED, TOLERANCE, Case, build, largest_error

LAYOUTS = {
    "groups": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "multi-query": {},
    "heads": {"multi_query": False, "parallel_attn": False},
}
PADDING = 37


def alibi_model(folder: Path, heads: int, **layout: object) -> FalconForCausalLM:
    """A small Falcon with ALiBi, saved; it attends in its default way."""
    config = FalconConfig(
        vocab_size=97,
        hidden_size=8 * heads,
        num_hidden_layers=2,
        num_attention_heads=heads,
        alibi=True,
        **layout,
    )
    build(Case("falcon", config), folder)
    return FalconForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()


def run(
    model: FalconForCausalLM, length: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Inputs ``[B, T, E]``, logits ``[B, H, T, T]`` of every layer, and the mask."""
    tokens = torch.randint(3, 97, (2, length), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(tokens)
    mask[1, :PADDING] = 0
    inputs: list[np.ndarray] = []
    logits: list[np.ndarray] = []
    attend = torch.nn.functional.scaled_dot_product_attention

    def caught(query, key, value, attn_mask, **named):
        scores = query.double() @ key.double().transpose(-1, -2) / query.shape[-1] ** 0.5
        whole = (scores + attn_mask.double()).numpy()
        logits.append(np.where(whole > MASKED, whole, -np.inf))
        return attend(query, key, value, attn_mask=attn_mask, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", caught)
    for block in model.transformer.h:
        block.self_attention.register_forward_pre_hook(
            lambda _, given: inputs.append(given[0].double().numpy())
        )
    with torch.no_grad():
        model(tokens, attention_mask=mask, use_cache=False)
    return inputs, logits, mask.bool().numpy()


def worst(
    layers: tuple[Layer, ...],
    found: tuple[list[np.ndarray], list[np.ndarray], np.ndarray],
    added: Callable[[Layer, int], np.ndarray | float],
) -> float:
    """The largest error over layers and sequences; ``added`` is taken from the model's logits."""
    inputs, logits, mask = found
    return max(
        largest_error(
            layer,
            x[sequence][kept],
            theirs[sequence][:, kept][:, :, kept] - added(layer, int(kept.sum())),
        )
        for layer, x, theirs in zip(layers, inputs, logits, strict=True)
        for sequence, kept in enumerate(mask)
    )


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_alibi_is_added_once_and_scaled(layout, tmp_path: Path, monkeypatch) -> None:
    """Up to position 256 the class's bfloat16 holds these slopes' biases exactly."""
    found = run(alibi_model(tmp_path, 4, **layout), 256, monkeypatch)
    layers = adapters.read(pjdiag.load(tmp_path)).layers
    assert worst(layers, found, lambda layer, length: 0.0) < TOLERANCE


def test_what_is_left_beyond_is_the_rounding_of_the_class(tmp_path: Path, monkeypatch) -> None:
    """Six heads have slopes that bfloat16 rounds, and positions beyond 256 are rounded too."""
    found = run(alibi_model(tmp_path, 6, multi_query=False), 512, monkeypatch)
    reading = adapters.read(pjdiag.load(tmp_path))

    def rounding(layer: Layer, length: int) -> np.ndarray:
        rounded = torch.tensor(slopes(6))[:, None].bfloat16()
        position = torch.arange(length)
        exact = rounded.double() * position
        difference = (rounded * position).double() - exact
        return layer.scale.value * difference[:, None, :].numpy()

    assert worst(reading.layers, found, rounding) < TOLERANCE
    assert worst(reading.layers, found, lambda layer, length: 0.0) > 0.01
    assert any("bfloat16" in warning for warning in reading.warnings)


def test_stated_slopes_are_those_of_the_logits(tmp_path: Path) -> None:
    """The slope of a head is its ALiBi slope, rounded, times the scale."""
    alibi_model(tmp_path, 4)
    layer = adapters.read(pjdiag.load(tmp_path)).layers[0]
    (part,) = layer.parts
    assert isinstance(part, AdditiveKernel)
    assert part.slopes.value == pytest.approx([slope / 8**0.5 for slope in slopes(4)])
    assert part.slopes.source.startswith("standard family")
    x = np.zeros((5, 32))
    logits = layer_logits(layer, x)
    assert np.diff(logits[0, 4]).round(9).tolist() == [round(0.25 / 8**0.5, 9)] * 4
