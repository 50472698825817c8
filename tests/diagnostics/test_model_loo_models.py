"""Leaving a part out of running Hugging Face models: against models with edited weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.falcon import modeling_falcon

import pjdiag
from pjdiag.errors import UsageError
from pjdiag.models.huggingface.attention import observed
from pjdiag.models.huggingface.execution import losses
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.patching import patched_layers
from pjdiag.models.running import RunningAttention
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.models.huggingface.tiny import MODELS, VOCABULARY, ours, probabilities
from tests.models.patched import plain, stir, stirred

LENGTH, WINDOWS, LAYERS, HEADS = 40, 4, 2, 4
IDS = np.random.default_rng(1).integers(3, VOCABULARY, (WINDOWS, LENGTH + 1))


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", IDS)
    return tmp_path / "ids.npy"


def save(model: Any, folder: Path) -> Path:
    with quiet():
        model.save_pretrained(folder)
    return folder


def row(result: Result, removed: str, layer: int | None = None, head: int | None = None) -> Any:
    (found,) = result.select(removed=removed, layer=layer, head=head)
    return found


def loo(folder: Path, ids: Path, **settings: Any) -> Result:
    return pjdiag.loo(folder, ids, lengths=[LENGTH], **settings)


@torch.no_grad()
def change_of(model: Any, edit: Callable[[Any], None]) -> float:
    """Loss of the model with its weights edited, less its own."""
    model = ours(model)
    before = losses(model, IDS).mean()
    edit(model)
    return float(losses(model, IDS).mean() - before)


def without(*terms: tuple[str, int], layers: Any = range(LAYERS), heads: Any = slice(None)) -> Any:
    """An edit of raw parameters of the PJ-bias; a signed slope of 0 is none."""

    def edit(model: Any) -> None:
        for index, (_, bias) in enumerate(patched_layers(model)):
            for sector, order in terms if index in layers else ():
                if sector == "affine":
                    bias.raw_affine_slope[heads] = 0
                else:
                    getattr(bias, f"{sector}_zeta_re")[heads, order] = 0
                    getattr(bias, f"{sector}_zeta_im")[heads, order] = 0

    return edit


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3"])
def test_orders_and_sectors_of_a_patched_model(name: str, tmp_path: Path, ids: Path) -> None:
    """Grouped keys; learned positions; windows."""
    model = stirred(name)
    stir(model, 6)
    folder = save(model, tmp_path / "model")
    remove = ["order:0", "lc:1", "sector:affine", "fj:1+lc:0"]
    result = loo(folder, ids, remove=remove, scope=Scope.HEAD)
    terms = {
        "order:0": (("fj", 0), ("lc", 0)),
        "lc:1": (("lc", 1),),
        "sector:affine": (("affine", 0),),
        "fj:1+lc:0": (("fj", 1), ("lc", 0)),
    }
    for removed, chosen in terms.items():
        places = [((None, None), {}), ((1, None), {"layers": [1]})]
        places += [((0, 2), {"layers": [0], "heads": 2})]
        for (layer, head), where in places:
            expected = change_of(pjdiag.load_model(folder), without(*chosen, **where))
            found = row(result, removed, layer, head)
            assert found["loo_delta_nll"] == pytest.approx(expected, abs=2e-6)
            assert found["mechanism"] == "pj_bias"
    assert abs(row(result, "order:0")["loo_delta_nll"]) > 1e-3


def test_an_untrained_bias_costs_exactly_nothing(tmp_path: Path, ids: Path) -> None:
    folder = save(pjdiag.patch(plain("llama"), train_length=16), tmp_path / "model")
    result = loo(folder, ids, remove=["order:0", "order:0+band:local"])
    nothing, band = result.rows
    assert (nothing["loo_delta_nll"], nothing["control_delta_nll"]) == (0.0, 0.0)
    assert (nothing["ci_low"], nothing["ci_high"], nothing["attention_kl"]) == (0.0, 0.0, 0.0)
    assert abs(band["loo_delta_nll"]) > 1e-4
    assert abs(band["control_delta_nll"]) > 1e-4


def wavelengths(width: int, base: float = 10000.0) -> np.ndarray:
    made: np.ndarray = 2 * np.pi * base ** (2 * np.arange(width // 2) / width)
    return made


def bands(width: int, train_length: int = 64) -> dict[str, list[int]]:
    """Channels of each band, as pairs count them."""
    found: dict[str, list[int]] = {}
    for channel, length in enumerate(wavelengths(width)):
        name = "local" if length < 16 else "mid" if length <= train_length else "beyond"
        found.setdefault(name, []).append(channel)
    return found


def half(width: int) -> Callable[[int], list[int]]:
    return lambda channel: [channel, channel + width // 2]


def interleaved(channel: int) -> list[int]:
    return [2 * channel, 2 * channel + 1]


def llama_rows(layer: Any, head: int, channels: list[int]) -> tuple[Any, list[int]]:
    part = layer.self_attn.q_proj
    return part, [head * layer.self_attn.head_dim + channel for channel in channels]


def neox_rows(layer: Any, head: int, channels: list[int]) -> tuple[Any, list[int]]:
    return layer.attention.query_key_value, [head * 3 * 8 + channel for channel in channels]


def gptj_rows(layer: Any, head: int, channels: list[int]) -> tuple[Any, list[int]]:
    return layer.attn.q_proj, [head * 8 + channel for channel in channels]


def falcon_rows(slot: Callable[[int], int]) -> Any:
    """Of a fused projection that holds the queries of a head in its ``slot``."""
    return lambda layer, head, channels: (
        layer.self_attention.query_key_value,
        [slot(head) * 8 + channel for channel in channels],
    )


ROTARY = {
    "llama": ("model.layers", llama_rows, 8, half(8)),
    "mistral": ("model.layers", llama_rows, 8, half(8)),
    "phi3": (
        "model.layers",
        lambda layer, head, channels: (layer.self_attn.qkv_proj, [head * 8 + c for c in channels]),
        8,
        half(8),
    ),
    "cohere2": ("model.layers", llama_rows, 8, interleaved),
    "gptj": ("transformer.h", gptj_rows, 4, interleaved),
    "gpt_neox": ("gpt_neox.layers", neox_rows, 4, half(4)),
    "gpt_neox_japanese": ("gpt_neox_japanese.layers", neox_rows, 8, half(8)),
    "falcon": ("transformer.h", falcon_rows(lambda head: head), 8, half(8)),
    "falcon_many_heads": ("transformer.h", falcon_rows(lambda head: 3 * head), 8, half(8)),
    "falcon_groups": ("transformer.h", falcon_rows(lambda head: head + head // 2 * 2), 8, half(8)),
}
"""By name: its layers, the rows of its query projection, rotated channels, and their pairs."""
PLACES = [(None, None), (0, None), (0, 3)]
TRAINED = {"phi3": 4096}
"""Its configuration has an original length by default; the others were trained at 64 tokens."""
UNTURNED = {"cohere2": [1]}
"""Layers without rotation."""


@pytest.mark.parametrize("name", ROTARY)
def test_bands_are_rows_of_the_query_projection(name: str, tmp_path: Path, ids: Path) -> None:
    """A pair of which both rows are 0 stays 0 when it is turned."""
    where, rows_of, width, pair = ROTARY[name]
    folder = save(plain(name), tmp_path / "model")
    result = loo(folder, ids, scope=Scope.HEAD)
    found = bands(width, TRAINED.get(name, 64))
    turned = [index for index in range(LAYERS) if index not in UNTURNED.get(name, [])]
    assert {each["removed"] for each in result.rows} == {f"band:{band}" for band in found}
    for band, pairs in found.items():
        channels = [channel for each in pairs for channel in pair(each)]
        for layer, head in PLACES:

            def edit(model: Any, layer: Any = layer, head: Any = head, c: Any = channels) -> None:
                for index, block in enumerate(model.get_submodule(where)):
                    if index not in turned:
                        continue
                    for number in range(HEADS):
                        if layer in (None, index) and head in (None, number):
                            part, rows = rows_of(block, number, c)
                            part.weight[rows] = 0
                            if part.bias is not None:
                                part.bias[rows] = 0

            expected = change_of(plain(name), edit)
            assert row(result, f"band:{band}", layer, head)["loo_delta_nll"] == pytest.approx(
                expected, abs=3e-6
            )
            assert abs(expected) > 1e-5


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_bands_behind_a_norm_of_the_queries(name: str, tmp_path: Path, ids: Path) -> None:
    """The channels go after the norm: its gain is what is set to 0, not the rows before it."""
    folder = save(plain(name), tmp_path / "model")
    result = loo(folder, ids, remove=["band:local"], scope=Scope.LAYER)
    width = 16 if name == "qwen3" else 8
    layer = 1  # Gemma's second layer has the base of full attention
    base = 10000.0 if name == "qwen3" else 1e6
    local = np.flatnonzero(wavelengths(width, base) < 16)

    def edit(model: Any) -> None:
        gain = model.model.layers[layer].self_attn.q_norm.weight
        off = -1.0 if name == "gemma3" else 0.0  # Gemma's gain is 1 + weight
        gain[[*local, *(local + width // 2)]] = off

    expected = change_of(plain(name), edit)
    assert row(result, "band:local", layer)["loo_delta_nll"] == pytest.approx(expected, abs=3e-6)
    assert abs(expected) > 1e-3


def test_layers_without_rotation_keep_what_they_have(tmp_path: Path, ids: Path) -> None:
    """SmolLM3's second layer has no positions here."""
    folder = save(plain("smollm3"), tmp_path / "model")
    result = loo(folder, ids, remove=["band:local"], scope=Scope.LAYER)
    assert [(each["layer"], each["mechanism"]) for each in result.rows] == [
        (None, "rope"),
        (0, "rope"),
    ]
    whole, first = (row(result, "band:local", layer) for layer in (None, 0))
    assert whole["loo_delta_nll"] == first["loo_delta_nll"]
    assert [entry.layer for entry in result.skipped] == [1]


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon_alibi"])
def test_alibi(name: str, tmp_path: Path, ids: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Falcon's eager attention adds its ALiBi twice; a folder is loaded with its fused one.
    model = MODELS[name].build(implementation="sdpa" if name == "falcon_alibi" else "eager")
    folder = save(model, tmp_path / "model")
    result = loo(folder, ids, scope=Scope.HEAD)
    assert {each["removed"] for each in result.rows} == {"alibi"}
    assert len(result.rows) == 1 + LAYERS + LAYERS * HEADS

    def edit(model: Any) -> None:
        if name == "mpt":
            model.transformer.build_mpt_alibi_tensor = lambda heads, length, device: torch.zeros(
                heads, 1, length, device=device
            )
        elif name == "falcon_alibi":
            original = modeling_falcon.build_alibi_tensor
            monkeypatch.setattr(
                modeling_falcon,
                "build_alibi_tensor",
                lambda *given, **named: 0 * original(*given, **named),
            )
        else:
            for block in model.transformer.h:
                block.self_attention.beta = 0.0

    expected = change_of(model, edit)
    found = row(result, "alibi")
    assert found["loo_delta_nll"] == pytest.approx(expected, abs=3e-6)
    assert abs(expected) > 1e-3
    assert found["attention_kl"] > 0
    assert found["control_delta_nll"] != pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["umt5", "mpnet"])
def test_encoders_have_attention_and_no_loss(name: str, tmp_path: Path, ids: Path) -> None:
    folder = save(plain(name), tmp_path / "model")
    result = loo(folder, ids, scope=Scope.HEAD)
    seen: dict[int, RunningAttention] = {}
    model = ours(plain(name))
    with torch.no_grad(), observed(model, lambda index, part: seen.update({index: part})):
        model(input_ids=torch.from_numpy(IDS[:, :-1]))
    for layer, part in seen.items():
        before = probabilities(part)
        after = probabilities(
            RunningAttention(part.queries, part.keys, None, part.scale, causal=False)
        )
        moved = (before * np.log(before / after)).sum(-1)
        for head in range(HEADS):
            found = row(result, "t5_bias", layer, head)
            assert found["loo_delta_nll"] is None
            # 32 of the 160 queries are drawn
            error = 4 * moved[:, head].std() / 32**0.5
            assert found["attention_kl"] == pytest.approx(moved[:, head].mean(), abs=error)
    assert any("predicts no next token" in warning for warning in result.warnings)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neo"])
def test_learned_positions_are_no_part_of_the_logits(name: str, tmp_path: Path, ids: Path) -> None:
    """Through the interface, and beside it: nothing is refused where nothing is taken out."""
    result = loo(save(plain(name), tmp_path / "model"), ids)
    assert not result.rows
    assert {entry.reason for entry in result.skipped} == {
        "learned absolute positions are no part of its logits that could be removed"
    }
    with pytest.raises(UsageError, match="the model has nothing that can be removed"):
        loo(tmp_path / "model", ids, remove=["band:local"])


def test_sinks_leave_the_loss(tmp_path: Path, ids: Path) -> None:
    result = loo(save(plain("gpt_oss"), tmp_path / "model"), ids, remove=["band:local"])
    (found,) = result.rows
    assert found["attention_kl"] is None
    assert abs(found["loo_delta_nll"]) > 1e-4
    assert any("sinks" in warning for warning in result.warnings)
