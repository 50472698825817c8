"""Token ids in memory read as those of a file; live models refuse what they cannot do."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pjdiag
from pjdiag.diagnostics.in_model_contexts import RetrievalTask
from pjdiag.errors import AdapterError, DataError
from pjdiag.models.huggingface.loading import quiet
from pjdiag.results import Result
from tests.diagnostics.runnable import runnable
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import MODELS

TASK = RetrievalTask(depths=(0.5,), trials=2, key_length=2)


class Encoder(nn.Module):
    """A model of nobody's: what it predicts, and of how many tokens, is not told."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 16), nn.Embedding(64, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))


@pytest.fixture(scope="module")
def live() -> Any:
    return pjdiag.live(Encoder(), train_length=32)


def ids(rows: int, length: int, top: int = 11) -> np.ndarray:
    return np.random.default_rng(0).integers(0, top, (rows, length))


def test_a_model_that_is_not_known_to_predict_is_refused_before_its_tokens_are_drawn(
    live: Any,
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(AdapterError, match="whether Encoder predicts the next token"):
            pjdiag.probe(live, [32], in_model=RetrievalTask())
        assert tracemalloc.get_traced_memory()[1] < 2**28  # the ids of 2^31 tokens are 2^34 bytes
    finally:
        tracemalloc.stop()


def test_nll_and_probe_of_an_array_say_the_same(live: Any) -> None:
    with pytest.raises(AdapterError, match="whether Encoder predicts the next token"):
        pjdiag.nll(live, ids(2, 40), [32])
    with pytest.raises(AdapterError, match="whether Encoder predicts the next token"):
        pjdiag.probe(live, [32], in_model=RetrievalTask(), data=ids(2, 40))


def test_leaving_out_is_refused_without_a_hint_at_the_weights(live: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", ids(2, 40))
    for data in (ids(2, 40), tmp_path / "ids.npy"):
        with pytest.raises(AdapterError, match="a model in memory") as refused:
            pjdiag.loo(live, data, lengths=[32])
        assert "weights" not in refused.value.hint
        assert "pjdiag.kernel" in refused.value.hint


def figures(result: Result) -> list[dict[str, Any]]:
    return [dict(row) for row in result.rows]


@pytest.mark.parametrize("name", ["llama", "native"])
def test_an_array_gives_the_figures_of_its_file(name: str, tmp_path: Path) -> None:
    if name == "native":
        path, top = runnable(tmp_path / "m.safetensors"), 256
    else:
        with quiet():
            path = saved(MODELS["llama"].build(), tmp_path / "llama")
        top = 11
    tokens = ids(2, 100, top)
    data: Any = tmp_path / "ids.npy"
    np.save(data, tokens)
    if name == "native":  # its files are bytes
        tokens = tokens[0].astype(np.uint8)
        data = tmp_path / "bytes.txt"
        data.write_bytes(tokens.tobytes())
    for measure in (
        lambda given: pjdiag.nll(path, given, [32]),
        lambda given: pjdiag.loo(path, given, lengths=[32], windows=1),
        lambda given: pjdiag.probe(path, [64], in_model=TASK, data=given),
    ):
        of_file, of_array = measure(data), measure(tokens)
        assert figures(of_array) == figures(of_file)
        assert of_array.provenance["data"] == "the array of token ids"
        assert of_array.provenance["data_digest"].startswith("sha256:")
    assert pjdiag.nll(path, tokens, [32]).provenance["bytes_per_token"] is None


def test_an_array_that_holds_no_ids_is_one_line(tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors")
    for wrong in (np.ones((2, 40)), 5, [[1, 2], [3]], np.zeros((0,), dtype=int), [1, 2, 300]):
        with pytest.raises(DataError):
            pjdiag.nll(path, wrong, [32])
    with pytest.raises(DataError, match="holds 2 tokens"):
        pjdiag.nll(path, [1, 2], [32])
