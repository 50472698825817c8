"""Kernels of transformers' own classes, against regressions on what their eager attention returns.

The log of an attention probability is the logit less a row effect, which the regression removes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.errors import UsageError
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import VOCABULARY, Tiny
from tests.position.test_lag_regression import dense

LENGTH, PADDING, SKIP, WINDOW = 40, 6, 2, 22


def ids_file(folder: Path, *, padded: bool, left: bool = True) -> tuple[Path, np.ndarray]:
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (2, LENGTH))
    if padded:
        ids[1, slice(0, PADDING) if left else slice(LENGTH - PADDING, None)] = -1
    path = folder / "ids.npy"
    np.save(path, ids)
    return path, ids


def eager_logs(model: Any, ids: np.ndarray) -> list[np.ndarray]:
    """``[L, H, T, T]`` of each window without its padding: log probabilities of eager attention."""
    logs = []
    for row in ids:
        mask = torch.as_tensor((row >= 0)[None].astype(np.int64))
        with torch.no_grad():
            found = model(
                input_ids=torch.as_tensor(np.where(row >= 0, row, 0)[None]),
                attention_mask=mask,
                output_attentions=True,
            )
        table = np.stack([layer[0].double().numpy() for layer in found.attentions])
        span = np.flatnonzero(row >= 0)[SKIP:]
        with np.errstate(divide="ignore"):
            logs.append(np.log(table[:, :, span][:, :, :, span]))
    return logs


def check(
    result: pjdiag.Result, tables: list[np.ndarray], side: str = "past", window: int | None = None
) -> None:
    layers, heads = tables[0].shape[:2]
    compared = 0
    for layer in range(layers):
        for head in range(heads):
            squares = [table[layer, head] for table in tables]
            if side == "future":
                squares = [square[::-1, ::-1] for square in squares]
            kernel, share = dense(squares, window)
            rows = result.select(layer=layer, head=head, side=side, group=None, shape=None)
            for row in rows:
                if row["lag"] is None:
                    assert row["lag_share"] == pytest.approx(share, abs=1e-4)
                else:
                    expected = kernel[row["lag"]]
                    assert row["kernel"] == pytest.approx(expected, abs=2e-4 * np.ptp(kernel))
                    compared += 1
    assert compared >= layers * heads * 9


def measure(folder: Path, data: Path, **options: Any) -> pjdiag.Result:
    return pjdiag.kernel(folder, data, skip_first=SKIP, controls=False, **options)


def test_a_decoder_with_grouped_keys_a_sliding_window_and_left_padding(tmp_path: Path) -> None:
    settings = {"num_key_value_heads": 2, "sliding_window": WINDOW}
    model = Tiny("MistralConfig", "MistralForCausalLM", settings).build()
    data, ids = ids_file(tmp_path, padded=True)
    result = measure(saved(model, tmp_path / "m"), data)
    check(result, eager_logs(model, ids), window=WINDOW)
    assert result.provenance["sliding_windows"] == {"0": WINDOW, "1": WINDOW}
    assert result.provenance["unit"] == "token"
    assert max(row["lag"] or 0 for row in result.rows) < WINDOW


def test_an_encoder_has_a_past_and_a_future(tmp_path: Path) -> None:
    model = Tiny("BertConfig", "BertModel", causal=False).build()
    data, ids = ids_file(tmp_path, padded=True, left=False)
    folder = saved(model, tmp_path / "m")
    result = measure(folder, data)
    logs = eager_logs(model, ids)
    check(result, logs)
    check(result, logs, "future")
    with pytest.raises(UsageError, match="layer 0 is not causal, and --causal asks for"):
        measure(folder, data, causal=True)


def test_an_encoder_with_a_bias_by_bucket(tmp_path: Path) -> None:
    model = Tiny("MPNetConfig", "MPNetModel", causal=False).build()
    data, ids = ids_file(tmp_path, padded=False)
    result = measure(saved(model, tmp_path / "m"), data)
    logs = eager_logs(model, ids)
    check(result, logs)
    check(result, logs, "future")


def test_a_soft_cap_is_told(tmp_path: Path) -> None:
    settings = {"num_key_value_heads": 2, "head_dim": 8, "attn_logit_softcapping": 30.0}
    model = Tiny("Gemma2Config", "Gemma2ForCausalLM", settings).build()
    data, _ = ids_file(tmp_path, padded=False)
    result = measure(saved(model, tmp_path / "m"), data)
    assert [text for text in result.warnings if "soft-capped" in text] == [
        "the logits of layers 0-1 are soft-capped: K is of the logits before the cap"
    ]


def test_a_window_with_too_few_lags_is_left_out(tmp_path: Path) -> None:
    settings = {"num_key_value_heads": 2, "sliding_window": 8}
    model = Tiny("MistralConfig", "MistralForCausalLM", settings).build()
    data, _ = ids_file(tmp_path, padded=False)
    result = measure(saved(model, tmp_path / "m"), data)
    assert result.rows == ()
    assert result.skipped[0].reason == "its window has 8 lags; a kernel needs 16"


def test_the_fresh_control_is_a_model_of_the_same_shape(tmp_path: Path) -> None:
    model = Tiny("LlamaConfig", "LlamaForCausalLM", {"num_hidden_layers": 1}).build()
    data, _ = ids_file(tmp_path, padded=False)
    result = pjdiag.kernel(saved(model, tmp_path / "m"), data)
    ranges = {
        row["control"]: row["range"]
        for row in result.select(scope="model", statistic="median")
        if row["range"] is not None
    }
    assert set(ranges) == {None, "shuffled", "fresh"}
    assert ranges["fresh"] < 0.1 * ranges[None]


def test_learned_positions_bound_the_window(tmp_path: Path) -> None:
    folder = saved(Tiny("GPT2Config", "GPT2LMHeadModel", {}).build(), tmp_path / "m")
    ids = np.random.default_rng(0).integers(3, VOCABULARY, 80)
    text, rows = tmp_path / "text.npy", tmp_path / "rows.npy"
    np.save(text, ids)
    np.save(rows, ids[None])
    found = "length is 65; the model has 64 learned positions, so expected at most 64"
    with pytest.raises(UsageError, match=found) as caught:
        pjdiag.kernel(folder, text, 65, controls=False)
    assert caught.value.hint == "pass --length 64 or shorter"
    with pytest.raises(UsageError, match="length is 80; the model has 64 learned positions"):
        pjdiag.kernel(folder, rows, controls=False)
    assert measure(folder, text, length=64).provenance["length"] == 64
    longer = pjdiag.read(folder, train_length=72)
    assert pjdiag.kernel(longer, text, controls=False).provenance["length"] == 64


def test_a_decoder_that_states_no_train_length(tmp_path: Path) -> None:
    """BLOOM's ALiBi has none: everything but the sector fit is measured."""
    model = Tiny("BloomConfig", "BloomForCausalLM", {"n_layer": 2, "n_head": 4}).build()
    folder = saved(model, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    del config["max_position_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    assert pjdiag.read(folder).train_length.value is None
    data, ids = ids_file(tmp_path, padded=False)
    result = measure(folder, data)
    assert sum("no sector fit" in text for text in result.warnings) == 1
    assert {row["group"] for row in result.rows} == {None}
    check(result, eager_logs(model, ids))
    told = measure(pjdiag.read(folder, train_length=32), data)
    assert {"affine", "total"} <= {row["group"] for row in told.rows}
    assert not [text for text in told.warnings if "no sector fit" in text]
