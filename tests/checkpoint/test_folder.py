"""Model folders: which file is read, and shards that must fit their index both ways."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
from tests.checkpoint.files import LFS_POINTER, write_json, write_zeros

INDEX = "model.safetensors.index.json"


def error_of(path: Path, **options: bool) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(path, **options)
    assert str(caught.value).isprintable()
    assert caught.value.hint
    return caught.value


def sharded(folder: Path, weight_map: dict[str, Any] | None = None) -> Path:
    """Tensors a = [0, 1], b = [2, 3] in shard 1 and c = [4, 5] in shard 2."""
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    one, two = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    safetensors.numpy.save_file({"a": values[0], "b": values[1]}, folder / one)
    safetensors.numpy.save_file({"c": values[2]}, folder / two, {"format": "pt"})
    usual = {"a": one, "b": one, "c": two}
    write_json(folder / INDEX, {"metadata": {}, "weight_map": weight_map or usual})
    return folder


def test_a_folder_without_weights_lists_what_it_holds(tmp_path: Path) -> None:
    assert "holds no weights; its files are: none" in error_of(tmp_path).message
    write_json(tmp_path / "config.json", {})
    error = error_of(tmp_path)
    assert "holds no weights; its files are: 'config.json'" in error.message
    assert "model.safetensors" in error.hint


def test_weights_one_level_down_are_named(tmp_path: Path) -> None:
    inner = tmp_path / "whole" / "transformer"
    inner.mkdir(parents=True)
    (tmp_path / "whole" / "vae").mkdir()
    write_zeros(inner / "model.safetensors", "w")
    error = error_of(tmp_path / "whole")
    assert "there are weights in its folders 'transformer'" in error.message
    assert error.hint == f"pass {inner}"
    write_zeros(tmp_path / "whole" / "vae" / "x.safetensors", "w")
    error = error_of(tmp_path / "whole")
    assert "'transformer', 'vae'" in error.message
    assert error.hint == f"pass {inner}, or another one of them"


def test_one_weights_file_of_any_name_will_do(tmp_path: Path) -> None:
    write_zeros(tmp_path / "best.safetensors", "w")
    write_json(tmp_path / "config.json", {"n": 1})
    checkpoint = load(tmp_path)
    assert checkpoint.format == "folder"
    assert checkpoint.path == tmp_path
    assert checkpoint.config == {"n": 1}
    write_zeros(tmp_path / "last.safetensors", "w")
    error = error_of(tmp_path)
    assert "holds 2 weights files and none is model.safetensors" in error.message
    assert error.hint == "pass one of them"


def test_a_folder_of_two_formats_is_read_as_safetensors_with_a_warning(tmp_path: Path) -> None:
    write_zeros(tmp_path / "model.safetensors", "w")
    torch.save({"v": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    checkpoint = load(tmp_path)
    assert list(checkpoint.headers) == ["w"]
    assert checkpoint.warnings == (
        "model.safetensors is read; beside it stand 'pytorch_model.bin'",
    )


def test_a_torch_folder_needs_permission(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    write_json(tmp_path / "config.json", {"n": 1})
    assert "pytorch_model.bin is a torch pickle" in error_of(tmp_path).message
    checkpoint = load(tmp_path, allow_pickle=True)
    assert checkpoint.format == "folder"
    assert checkpoint.config == {"n": 1}
    assert checkpoint.read("w").tolist() == [1, 1]


def test_training_leftovers_beside_the_weights_are_not_weights(tmp_path: Path) -> None:
    write_zeros(tmp_path / "model.safetensors", "w")
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state.pth"):
        torch.save({"x": torch.zeros(1)}, tmp_path / name)
    assert load(tmp_path).warnings == ()


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    write_zeros(tmp_path / "adapter_model.safetensors", "base_model.model.q_proj.lora_A.weight")
    write_json(tmp_path / "adapter_config.json", {"base_model_name_or_path": "org/base\x07"})
    error = error_of(tmp_path)
    assert "holds an adapter only, base = 'org/base\\x07'" in error.message
    assert "merge" in error.hint


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    checkpoint = load(sharded(tmp_path))
    assert checkpoint.format == "folder"
    assert [checkpoint.read(name).tolist() for name in "abc"] == [[0, 1], [2, 3], [4, 5]]
    assert checkpoint.read_rows("c", 1, 2).tolist() == [5]
    assert checkpoint.metadata == {"format": "pt"}
    assert checkpoint.warnings == ()


def test_the_digest_of_shards_covers_every_file(tmp_path: Path) -> None:
    sharded(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    lines = [
        f"'{name}' {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}\n" for name in names
    ]
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    before = load(tmp_path).digest()
    assert before == f"sha256:{expected}"
    write_json(tmp_path / "config.json", {})
    assert load(tmp_path).digest() != before


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (sharded(tmp_path) / "model-00002-of-00002.safetensors").unlink()
    error = error_of(tmp_path)
    assert "lacks 1 of the 2 files" in error.message
    assert "'model-00002-of-00002.safetensors'" in error.message


def test_a_tensor_that_its_file_lacks_is_named(tmp_path: Path) -> None:
    one, two = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    sharded(tmp_path, {"a": one, "b": one, "c": two, "d": two})
    assert "lists tensors that their files do not hold: 'd'" in error_of(tmp_path).message
    sharded(tmp_path, {"a": one, "b": two, "c": two})
    assert "lists tensors that their files do not hold: 'b'" in error_of(tmp_path).message


def test_a_tensor_that_the_index_lacks_is_named(tmp_path: Path) -> None:
    one, two = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    sharded(tmp_path, {"a": one, "c": two})
    error = error_of(tmp_path)
    assert f"holds tensors that {INDEX} does not place there: 'b'" in error.message
    assert one in error.message


def test_shards_without_an_index_are_refused(tmp_path: Path) -> None:
    (sharded(tmp_path) / INDEX).unlink()
    error = error_of(tmp_path)
    assert "holds shards" in error.message
    assert error.hint == f"download {INDEX} too"


def test_a_shard_outside_the_index_is_warned_of(tmp_path: Path) -> None:
    write_zeros(sharded(tmp_path) / "model-00003-of-00003.safetensors", "d")
    assert load(tmp_path).warnings == (
        f"not in {INDEX}, not read: 'model-00003-of-00003.safetensors'",
    )


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "sub/model.safetensors",
        "..\\model.safetensors",
        "C:model.safetensors",
        "C:\\model.safetensors",
        "..",
        ".",
        "",
        "a\0b",
        "a\nb",
        3,
        None,
        ["a"],
    ],
)
def test_a_shard_must_be_a_file_of_the_folder(tmp_path: Path, name: Any) -> None:
    folder = tmp_path / "m"
    (folder / "sub").mkdir(parents=True)
    write_zeros(tmp_path / "model.safetensors", "a")
    write_zeros(folder / "sub" / "model.safetensors", "a")
    write_json(folder / INDEX, {"weight_map": {"a": name}})
    error = error_of(folder)
    assert "places tensor 'a' in" in error.message
    assert "which is not a file of the folder" in error.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "has no weight_map"),
        (b'{"weight_map": []}', "has no weight_map"),
        (b'{"weight_map": {}}', "has no weight_map"),
        (b'{"weight_map": {"a": "x", "a": "y"}}', "the key 'a' occurs twice"),
        (b"{", "not JSON"),
        (LFS_POINTER, "is a Git LFS pointer"),
    ],
)
def test_a_bad_index_is_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / INDEX).write_bytes(content)
    error = error_of(tmp_path)
    assert words in error.message
    assert INDEX in error.message


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = sharded(tmp_path) / "model-00002-of-00002.safetensors"
    path.write_bytes(LFS_POINTER)
    assert f"{path} is a Git LFS pointer" in error_of(tmp_path).message


def test_torch_shards_are_read_with_permission(tmp_path: Path) -> None:
    names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    torch.save({"a": torch.ones(1)}, tmp_path / names[0])
    torch.save({"b": torch.full((1,), 2.0)}, tmp_path / names[1])
    write_json(
        tmp_path / "pytorch_model.bin.index.json", {"weight_map": {"a": names[0], "b": names[1]}}
    )
    assert "is a torch pickle" in error_of(tmp_path).message
    checkpoint = load(tmp_path, allow_pickle=True)
    assert [checkpoint.read(name).item() for name in "ab"] == [1, 2]
