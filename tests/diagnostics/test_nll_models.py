"""Loss and attention of Hugging Face models, plain and patched: text by their tokenizer, ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.errors import AdapterError, DataError, UsageError
from pjdiag.lab.corpora import Work
from pjdiag.lab.token_training import made_tokenizer
from pjdiag.models.huggingface.attention import attach, observed
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.running import RunningAttention
from pjdiag.results import Result
from pjdiag.samples import held_out_text
from tests.cli.running import run
from tests.models.huggingface.folders import pickled
from tests.models.huggingface.tiny import VOCABULARY, output, probabilities
from tests.models.patched import plain, stirred

NAMES = ("llama", "gemma2", "gpt2")
"""Grouped keys; a soft cap and a window beside; learned positions."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = save(stirred(name), tmp_path_factory.mktemp(name))
        return made[name]

    return of


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    path = tmp_path / "ids.npy"
    np.save(path, np.random.default_rng(1).integers(3, VOCABULARY, 200))
    return path


def save(model: Any, folder: Path) -> Path:
    with quiet():
        model.save_pretrained(folder)
    return folder


def model_row(result: Result, length: int, bucket: str = "all") -> dict[str, Any]:
    (row,) = result.select(scope="model", eval_length=length, bucket=bucket)
    return row


def expected_losses(model: Any, windows: np.ndarray) -> np.ndarray:
    wanted = torch.from_numpy(windows)
    logits = output(model, input_ids=wanted[:, :-1])
    found = torch.nn.functional.cross_entropy(logits.mT, wanted[:, 1:], reduction="none")
    return found.double().numpy()


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_the_model(name: str, folder: Callable[[str], Path], ids: Path) -> None:
    result = pjdiag.nll(folder(name), ids, [33])
    data = np.load(ids)
    windows = np.stack([data[start : start + 34] for start in range(0, 166, 33)])
    losses = expected_losses(pjdiag.load_model(folder(name)), windows)
    assert model_row(result, 33)["nll"] == pytest.approx(losses.mean(), rel=1e-6)
    assert model_row(result, 33, "train")["nll"] == pytest.approx(losses[:, :16].mean(), rel=1e-6)
    assert result.provenance["unit"] == "token"
    assert result.provenance["bytes_per_token"] is None
    assert result.provenance["data_tokens"] == 200
    assert result.provenance["windows"] == {"33": len(windows)}


def test_the_bias_counts(folder: Callable[[str], Path], ids: Path, tmp_path: Path) -> None:
    bare = save(plain("llama"), tmp_path / "bare")
    losses = [model_row(pjdiag.nll(path, ids, [64]), 64)["nll"] for path in (bare, folder("llama"))]
    assert abs(losses[0] - losses[1]) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_attention_is_that_of_the_model(
    name: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    length = 40
    data = np.random.default_rng(2).integers(3, VOCABULARY, (2, length + 1))
    np.save(tmp_path / "rows.npy", data)
    result = pjdiag.nll(folder(name), tmp_path / "rows.npy", [length], attention=True)
    seen: dict[int, RunningAttention] = {}
    model = attach(pjdiag.load_model(folder(name)))
    with torch.no_grad(), observed(model, lambda index, part: seen.update({index: part})):
        model(input_ids=torch.from_numpy(data[:, :-1]), use_cache=False)
    lags = np.subtract.outer(np.arange(length), np.arange(length))
    for index, part in seen.items():
        weights = probabilities(part)
        logs = np.log(np.where(weights > 0, weights, 1))
        entropy = -(weights * logs).sum(-1).mean((0, 2))
        distance = (weights * lags).sum(-1).mean((0, 2))
        sink = weights[..., 0].mean((0, 2))
        for head in range(4):
            (row,) = result.select(layer=index, head=head, bucket="all")
            assert row["attention_entropy"] == pytest.approx(entropy[head], abs=1e-5)
            assert row["mean_distance"] == pytest.approx(distance[head], rel=1e-4)
            assert row["sink_mass"] == pytest.approx(sink[head], abs=1e-6)


def test_rows_of_ids_are_texts_of_their_own(folder: Callable[[str], Path], tmp_path: Path) -> None:
    data = np.random.default_rng(4).integers(3, VOCABULARY, (3, 45))
    np.save(tmp_path / "rows.npy", data)
    result = pjdiag.nll(folder("llama"), tmp_path / "rows.npy", [20])
    windows = np.stack([row[start : start + 21] for row in data for start in (0, 20)])
    losses = expected_losses(pjdiag.load_model(folder("llama")), windows)
    assert model_row(result, 20)["windows"] == 6
    assert model_row(result, 20)["nll"] == pytest.approx(losses.mean(), rel=1e-6)
    few = pjdiag.nll(folder("llama"), tmp_path / "rows.npy", [20], windows=3)
    assert model_row(few, 20)["nll"] == pytest.approx(losses[:3].mean(), rel=1e-6)
    with pytest.raises(DataError, match="holds 45 tokens a row; one window of 45 needs 46"):
        pjdiag.nll(folder("llama"), tmp_path / "rows.npy", [45])


def test_a_text_goes_through_the_tokenizer_of_the_folder(tmp_path: Path) -> None:
    text = held_out_text().read_bytes()[:4000]
    tokenizer = made_tokenizer([Work("play", text)], 290)
    model = plain("llama")
    model.resize_token_embeddings(290)
    folder = save(pjdiag.patch(model, train_length=16), tmp_path / "model")
    tokenizer.save_pretrained(folder)
    (tmp_path / "play.txt").write_bytes(text)
    result = pjdiag.nll(folder, tmp_path / "play.txt", [32], windows=4)
    found = np.asarray(tokenizer(text.decode(), add_special_tokens=False)["input_ids"])
    assert result.provenance["data_tokens"] == len(found)
    assert result.provenance["data_bytes"] == 4000
    assert result.provenance["bytes_per_token"] == pytest.approx(4000 / len(found))
    windows = np.stack([found[start : start + 33] for start in (0, 32, 64, 96)])
    losses = expected_losses(pjdiag.load_model(folder), windows)
    assert model_row(result, 32)["nll"] == pytest.approx(losses.mean(), rel=1e-6)


def test_learned_positions_bound_the_length(folder: Callable[[str], Path], ids: Path) -> None:
    result = pjdiag.nll(folder("gpt2"), ids)
    assert result.provenance["lengths"] == [16, 64]
    with pytest.raises(UsageError, match="length is 65; the model has 64 learned positions"):
        pjdiag.nll(folder("gpt2"), ids, [65])
    longer = pjdiag.nll(folder("llama"), ids, [65, 199])
    assert longer.provenance["lengths"] == [65, 199]


def test_data_that_do_not_fit(folder: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, np.asarray([[3, 4, 5, 6], [3, 4, 5, -1]]))
    with pytest.raises(DataError, match="has padding"):
        pjdiag.nll(folder("llama"), path, [3])
    np.save(path, np.asarray([3, 4]))
    with pytest.raises(DataError, match="holds 2 tokens; expected at least 3"):
        pjdiag.nll(folder("llama"), path, [2])
    np.save(path, np.asarray([3, 4, VOCABULARY]))
    with pytest.raises(DataError, match=f"holds the token id {VOCABULARY}"):
        pjdiag.nll(folder("llama"), path, [2])
    (tmp_path / "text.txt").write_text("to be or not to be")
    with pytest.raises(DataError, match="no tokenizer"):
        pjdiag.nll(folder("llama"), tmp_path / "text.txt", [2])


def test_sinks_have_no_attention_figures(ids: Path, tmp_path: Path) -> None:
    folder = save(stirred("gpt_oss"), tmp_path / "model")
    assert model_row(pjdiag.nll(folder, ids, [32]), 32)["nll"] > 0
    with pytest.raises(AdapterError, match="has sinks"):
        pjdiag.nll(folder, ids, [32], attention=True)


def test_encoders_have_no_loss(ids: Path, tmp_path: Path) -> None:
    folder = save(plain("bert"), tmp_path / "model")
    with pytest.raises(AdapterError, match="predicts no next token"):
        pjdiag.nll(folder, ids, [32])


def test_bad_weights_are_named(ids: Path, tmp_path: Path) -> None:
    model = stirred("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[2, 3] = torch.nan
    result = pjdiag.nll(save(model, tmp_path / "model"), ids, [32])
    assert result.inconclusive
    assert "layers.1.mlp.up_proj.weight holds 1 values that are NaN" in result.skipped[0].reason


def test_the_batch_does_not_matter(folder: Callable[[str], Path], ids: Path) -> None:
    results = [
        pjdiag.nll(folder("gemma2"), ids, [30], attention=True, batch=batch) for batch in (1, 4)
    ]
    for one, other in zip(*(result.rows for result in results), strict=True):
        for name in ("nll", "attention_entropy", "mean_distance", "sink_mass"):
            assert one[name] is other[name] or one[name] == pytest.approx(other[name], rel=1e-4)


def test_a_pickle_runs_where_it_is_allowed(tmp_path: Path, ids: Path, capsys: Any) -> None:
    model = plain("gpt2")
    folder = pickled(model, tmp_path / "pickled")
    whole = pjdiag.nll(save(model, tmp_path / "whole"), ids, [33])
    found = pjdiag.nll(folder, ids, [33], allow_pickle=True)
    assert model_row(found, 33)["nll"] == pytest.approx(model_row(whole, 33)["nll"], rel=1e-6)
    words = ("nll", folder, "--data", ids, "--length", 33)
    assert run(capsys, *words, "--allow-pickle").code == 0
    refused = run(capsys, *words)
    assert refused.code == 2
    assert "pytorch_model.bin is a torch pickle" in refused.err
