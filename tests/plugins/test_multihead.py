"""Models made of ``torch.nn.MultiheadAttention``: read by contract, and what is not known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pjdiag.adapters import AbsolutePositions, Reading
from pjdiag.errors import InconclusiveError
from tests.plugins import folders
from tests.plugins.contract import TOLERANCE, largest_error

WIDTH, HEADS = 24, 4


def state(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def transformer() -> nn.Transformer:
    torch.manual_seed(0)
    made = nn.Transformer(WIDTH, HEADS, 2, 2, 32, batch_first=True).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def read(tmp_path: Path, **tables: np.ndarray) -> Reading:
    return folders.read(tmp_path, {"nhead": HEADS}, {**state(transformer()), **tables})


@pytest.mark.parametrize("causal", [False, True])
def test_reading_reconstructs_torchs_own_attention(causal: bool, tmp_path: Path) -> None:
    model = transformer()
    reading = read(tmp_path, **{"pos_embedding.weight": folders.noise(96, WIDTH)})
    x = torch.randn(1, 96, WIDTH, generator=torch.Generator().manual_seed(1))
    mask = nn.Transformer.generate_square_subsequent_mask(96) if causal else None
    modules = [layer.self_attn for layer in (*model.encoder.layers, *model.decoder.layers)]
    assert len(modules) == len(reading.layers)
    for module, layer in zip(modules, reading.layers, strict=True):
        with torch.no_grad():
            _, weights = module(x, x, x, attn_mask=mask, average_attn_weights=False)
        with np.errstate(divide="ignore"):
            logits = np.log(weights[0].double().numpy())
        masked = replace(layer, causal=replace(layer.causal, value=causal))
        assert largest_error(masked, x[0].double().numpy(), logits) < TOLERANCE


def test_attention_to_the_encoder_is_not_listed(tmp_path: Path) -> None:
    reading = read(tmp_path)
    assert reading.adapter == "multihead"
    assert [layer.index for layer in reading.layers] == [0, 1, 2, 3]
    named = [warning for warning in reading.warnings if warning.startswith("layers")]
    assert named == [
        "layers 0-1 are encoder.layers.*.self_attn",
        "layers 2-3 are decoder.layers.*.self_attn",
    ]


def test_masks_windows_and_positions_are_not_guessed(tmp_path: Path) -> None:
    reading = read(tmp_path)
    layer = reading.layers[0]
    assert (layer.causal.value, layer.causal.source) == (None, "unknown")
    assert (layer.window.value, layer.window.source) == (None, "unknown")
    (part,) = layer.parts
    assert part.mechanism == "unknown"
    assert any("no table of positions is stored" in warning for warning in reading.warnings)
    assert any("is in the code" in warning for warning in reading.warnings)


def test_a_learned_table_of_each_stack(tmp_path: Path) -> None:
    tables = {"encoder.pos_embedding.weight": folders.noise(50, WIDTH)}
    tables["decoder.pos_embedding.weight"] = folders.noise(40, WIDTH)
    reading = read(tmp_path, **tables)
    parts = [layer.parts[0] for layer in reading.layers]
    assert all(isinstance(part, AbsolutePositions) for part in parts)
    assert [part.max_positions.value for part in parts] == [50, 50, 40, 40]
    assert (reading.train_length.value, reading.train_length.source) == (
        50,
        "tensor encoder.pos_embedding.weight",
    )


@pytest.mark.parametrize("shape", [(60, WIDTH), (60, 1, WIDTH), (1, 60, WIDTH)])
def test_a_sinusoidal_buffer_is_named(shape: tuple[int, ...], tmp_path: Path) -> None:
    position = np.arange(60)[:, None]
    rate = np.exp(np.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
    table = np.zeros((60, WIDTH), np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(position * rate), np.cos(position * rate)
    reading = read(tmp_path, **{"pos_encoder.pe": table.reshape(shape)})
    (part,) = reading.layers[0].parts
    assert isinstance(part, AbsolutePositions)
    assert part.max_positions.value == 60
    assert "sinusoidal" in part.max_positions.source


def test_without_a_head_count_nothing_is_read(tmp_path: Path) -> None:
    with pytest.raises(InconclusiveError, match="the number of heads is not in the tensors"):
        folders.read(tmp_path, None, state(transformer()))


def test_heads_that_do_not_divide_the_width(tmp_path: Path) -> None:
    with pytest.raises(InconclusiveError, match=r"5 heads \(config: nhead\) do not divide 24"):
        folders.read(tmp_path, {"nhead": 5}, state(transformer()))


def test_a_bad_value_spoils_its_head_alone(tmp_path: Path) -> None:
    tensors = state(transformer())
    tensors["encoder.layers.0.self_attn.in_proj_weight"][WIDTH + 6, 3] = np.nan
    layer = folders.read(tmp_path, {"nhead": HEADS}, tensors).layers[0]
    assert layer.projections is not None
    (bad,) = layer.projections().bad
    assert (bad.heads, bad.count) == ((1,), 1)


def test_projections_of_different_widths(tmp_path: Path) -> None:
    """With ``kdim`` the module keeps its projections apart."""
    module = nn.MultiheadAttention(WIDTH, HEADS, kdim=WIDTH, vdim=10)
    tensors = {f"self_attn.{name}": array for name, array in state(module).items()}
    (layer,) = folders.read(tmp_path, {"num_heads": HEADS}, tensors).layers
    assert layer.projections is not None
    x = np.random.default_rng(0).standard_normal((3, WIDTH))
    made = layer.projections().value.keys(x)
    expected = x @ tensors["self_attn.k_proj_weight"].T + tensors["self_attn.in_proj_bias"][24:48]
    assert made == pytest.approx(expected.reshape(3, HEADS, 6).swapaxes(0, 1), abs=1e-5)


def test_a_named_architecture_may_use_it_on_the_side_only(tmp_path: Path) -> None:
    """Its layers go before a pooling head; a vision tower is no layer of the model."""
    config = {"model_type": "other", "hidden_size": 24, "num_attention_heads": 4}
    pooling = {"head.attention.in_proj_weight": folders.noise(72, 24)}
    layers = {
        f"layers.0.self_attn.{side}_proj.weight": folders.noise(24, 24) for side in ("q", "k")
    }
    assert folders.read(tmp_path / "a", config, {**layers, **pooling}).adapter == "generic"
    tower = {"visual.0.attn.in_proj_weight": folders.noise(72, 24)}
    text = {"resblocks.0.attn.in_proj_weight": folders.noise(72, 24)}
    reading = folders.read(tmp_path / "b", {"heads": 4}, {**tower, **text})
    assert (reading.adapter, len(reading.layers)) == ("multihead", 1)
