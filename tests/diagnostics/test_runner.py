"""Runners: files become tokens, checkpoints become attention and losses, or one line says no."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pjdiag.adapters import Reading, read
from pjdiag.checkpoint import load
from pjdiag.checkpoint.native import load_model
from pjdiag.diagnostics import runner_models
from pjdiag.diagnostics.runner import runner
from pjdiag.diagnostics.token_data import TokenData, read_ids
from pjdiag.errors import AdapterError, DataError, UsageError
from pjdiag.models.running import RunningAttention
from tests.diagnostics.runnable import runnable
from tests.models.huggingface.folders import add_tokenizer, pickled, saved
from tests.models.huggingface.tiny import MODELS, VOCABULARY, output

IDS = np.random.default_rng(0).integers(3, VOCABULARY, (2, 17))
TINY = MODELS["llama"]


def reading(path: Path, *, allow_pickle: bool = False) -> Reading:
    return read(load(path, allow_pickle=allow_pickle))


def native(path: Path, method: str = "rope_affine") -> Reading:
    return reading(runnable(path / "m.safetensors", method))


def watched(made: Any, ids: np.ndarray, present: np.ndarray | None = None) -> Any:
    seen: dict[int, RunningAttention] = {}
    made.run(ids, present, seen.__setitem__)
    return seen


def test_a_native_checkpoint_reads_bytes(tmp_path: Path) -> None:
    made = runner(native(tmp_path))
    text = tmp_path / "text.txt"
    text.write_bytes("Grüße, 0 to 255".encode())
    data = made.tokens(text)
    assert (made.unit, made.vocabulary, data.present) == ("byte", 256, None)
    assert data.ids.tolist() == list(text.read_bytes())
    assert data.digest.startswith("sha256:")
    seen = watched(made, IDS)
    assert sorted(seen) == [0, 1]
    assert seen[0].bias_by_lag is not None
    assert seen[0].queries.shape[2] == 17


def test_the_losses_of_a_native_checkpoint_are_its_models(tmp_path: Path) -> None:
    checkpoint = native(tmp_path)
    model = load_model(checkpoint.checkpoint)
    with torch.no_grad():
        logits = model(torch.from_numpy(IDS[:, :-1])).double().log_softmax(-1)
    expected = -logits.gather(-1, torch.from_numpy(IDS[:, 1:, None]))[..., 0].numpy()
    np.testing.assert_allclose(runner(checkpoint).losses(IDS), expected, rtol=1e-5, atol=1e-5)


def test_a_fresh_native_model_is_another_one(tmp_path: Path) -> None:
    made = runner(native(tmp_path))
    first, again, other = (made.fresh(seed).losses(IDS) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert abs(float(first.mean()) - np.log(256)) < 0.2  # it knows nothing


def test_padding_at_the_end_is_passed_on_and_elsewhere_refused(tmp_path: Path) -> None:
    made = runner(native(tmp_path))
    present = np.ones(IDS.shape, dtype=bool)
    present[0, 12:] = False
    assert watched(made, IDS, present)[1].present.tolist() == present.tolist()
    with pytest.raises(UsageError, match="padding comes before a token"):
        watched(made, IDS, present[:, ::-1])


def test_a_folder_runs_in_transformers(tmp_path: Path) -> None:
    model = TINY.build()
    made = runner(reading(saved(model, tmp_path)))
    assert (made.unit, made.vocabulary) == ("token", VOCABULARY)
    seen = watched(made, IDS)
    assert [seen[layer].keys.shape for layer in (0, 1)] == [(2, 2, 17, 8)] * 2
    logits = output(model, input_ids=torch.from_numpy(IDS[:, :-1])).double().log_softmax(-1)
    expected = -logits.gather(-1, torch.from_numpy(IDS[:, 1:, None]))[..., 0].numpy()
    np.testing.assert_allclose(made.losses(IDS), expected, rtol=1e-4, atol=1e-4)
    control = made.fresh(3)
    assert control.vocabulary == VOCABULARY
    assert not np.allclose(control.losses(IDS), expected)
    assert control.tokens(_ids(tmp_path, IDS)).ids.shape == (2, 17)


def test_a_text_goes_through_the_tokenizer_of_the_folder(tmp_path: Path) -> None:
    folder = saved(TINY.build(), tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("the fox jumps over the dog and sleeps", encoding="utf-8")
    made = runner(reading(folder))
    with pytest.raises(DataError, match="no tokenizer beside model"):
        made.tokens(text)
    add_tokenizer(folder)
    data = made.tokens(text)
    assert data.ids.tolist() == [3, 4, 6, 7, 3, 5, 9, 8]
    assert data.ids.dtype == np.int64
    text.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8 text"):
        made.tokens(text)
    text.write_text(" ", encoding="utf-8")
    with pytest.raises(DataError, match="makes 0 tokens"):
        made.tokens(text)


def test_a_tokenizer_of_another_model_is_noticed(tmp_path: Path) -> None:
    folder = saved(TINY.build(), tmp_path / "model")
    words = ("<pad>", "<s>", "</s>", *(f"w{number}" for number in range(VOCABULARY)))
    add_tokenizer(folder, words)
    text = tmp_path / "text.txt"
    text.write_text("w1 w60", encoding="utf-8")
    with pytest.raises(DataError, match=f"largest id is 63; the model knows 0 to {VOCABULARY - 1}"):
        runner(reading(folder)).tokens(text)


def test_a_pickle_runs_with_permission(tmp_path: Path) -> None:
    folder = pickled(TINY.build(), tmp_path)
    found = reading(folder, allow_pickle=True)
    with pytest.raises(AdapterError):
        runner(found).losses(IDS)
    assert runner(found, allow_pickle=True).losses(IDS).shape == (2, 16)


def test_what_cannot_run_says_so(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    tensors = {
        f"attn_layers.{name}": np.ones(shape, dtype=np.float32)
        for name, shape in {
            "polar_pos_emb.inv_freq": (4,),
            "polar_pos_emb.learned_bias": (2, 1, 4),
            "layers.0.1.to_q.weight": (8, 6),
            "layers.0.1.to_k.weight": (8, 6),
        }.items()
    }
    save_file(tensors, tmp_path / "pope.safetensors")
    with pytest.raises(AdapterError, match="the adapter pope brings no model that can run"):
        runner(reading(tmp_path / "pope.safetensors"))


def test_memory_that_is_not_there_is_asked_for_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32768^2 is 4 GiB a head: refuse early, with an estimate."""
    made = runner(reading(saved(MODELS["bloom"].build(), tmp_path)))
    monkeypatch.setattr(runner_models, "memory_available", lambda: 1 << 30)
    assert made.vocabulary == VOCABULARY
    with pytest.raises(UsageError, match=r"tables of 32,768 tokens.* need about 51\.5 GB"):
        watched(made, np.zeros((1, 32768), dtype=np.int64))
    monkeypatch.setattr(runner_models, "memory_available", lambda: 1000)
    with pytest.raises(UsageError, match="the weights in float32 need"):
        _ = runner(reading(tmp_path)).vocabulary


def _ids(folder: Path, ids: Any) -> Path:
    np.save(folder / "ids.npy", ids)
    return folder / "ids.npy"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1.5, 2.0], r"holds float64 \[2\]; expected integers"),
        ([[[1]]], r"holds int64 \[1, 1, 1\]; expected integers"),
        ([1, 61], r"holds the token id 61 at \[1\]; the model knows 0 to 60"),
        ([[1, 2], [3, -2]], r"holds the token id -2 at \[1, 1\]"),
        ([1, -1], "has padding where a text is expected"),
        ([[1, 2], [-1, -1]], "has padding where a text is expected"),
    ],
)
def test_arrays_that_are_no_tokens(tmp_path: Path, ids: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_ids(_ids(tmp_path, ids), VOCABULARY)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64])
def test_any_integer_type_will_do(tmp_path: Path, kind: Any) -> None:
    data = read_ids(_ids(tmp_path, np.array([[1, 2], [3, 60]], dtype=kind)), VOCABULARY)
    assert data.ids.dtype == np.int64
    assert data.ids.tolist() == [[1, 2], [3, 60]]
    assert data.present is None


def test_padding_is_marked_and_zeroed(tmp_path: Path) -> None:
    data = read_ids(_ids(tmp_path, [[5, 6, -1], [-1, 7, 8]]), VOCABULARY)
    assert isinstance(data, TokenData)
    assert data.ids.tolist() == [[5, 6, 0], [0, 7, 8]]
    assert data.present is not None
    assert data.present.tolist() == [[True, True, False], [False, True, True]]


@pytest.mark.parametrize("content", [b"no array", b"\x93NUMPY\x01\x00\xff\xff"])
def test_a_broken_array_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ids.npy").write_bytes(content)
    with pytest.raises(DataError, match="holds no array of numbers"):
        read_ids(tmp_path / "ids.npy", VOCABULARY)


def test_objects_and_archives_are_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="holds no array of numbers"):
        read_ids(tmp_path / "ids.npy", VOCABULARY)
    np.savez(tmp_path / "two.npz", a=[1])
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    with pytest.raises(DataError, match="holds an archive"):
        read_ids(tmp_path / "two.npy", VOCABULARY)
    with pytest.raises(DataError, match="cannot be read"):
        read_ids(tmp_path / "nowhere.npy", VOCABULARY)
