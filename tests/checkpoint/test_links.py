"""Links in a folder: within it, or into the cache that made it; and files that change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
from tests.checkpoint.files import write_json, write_zeros
from tests.checkpoint.test_folder import INDEX, error_of, sharded

FILE = "model.safetensors"


def moved(path: Path, place: Path) -> Path:
    """Moves a file into ``place`` and leaves a link."""
    place.mkdir(exist_ok=True)
    target = place / path.name
    path.rename(target)
    path.symlink_to(target)
    return target


def test_the_cache_of_the_hub_is_links_into_its_blobs(tmp_path: Path) -> None:
    home = tmp_path / "models--a--b"
    snapshot = home / "snapshots" / "0f1e"
    for folder in (home / "blobs", snapshot, snapshot / "sub"):
        folder.mkdir(parents=True)
    write_zeros(home / "blobs" / "0a1b", "w")
    write_json(home / "blobs" / "2c3d", {"model_type": "x"})
    for folder, up in ((snapshot, "../.."), (snapshot / "sub", "../../..")):
        (folder / FILE).symlink_to(f"{up}/blobs/0a1b")
        (folder / "config.json").symlink_to(f"{up}/blobs/2c3d")
        assert load(folder).read("w") == 0
        assert load(folder / FILE).config == {"model_type": "x"}


def test_blobs_that_are_a_link_themselves_may_not_lead_elsewhere(tmp_path: Path) -> None:
    snapshot, elsewhere = tmp_path / "m" / "snapshots" / "r", tmp_path / "elsewhere"
    for folder in (snapshot, elsewhere):
        folder.mkdir(parents=True)
    write_zeros(snapshot / FILE, "w")
    write_json(elsewhere / "secret.json", {"password": "x"})
    (tmp_path / "m" / "blobs").symlink_to(elsewhere)
    for target in ("../../blobs/secret.json", str(elsewhere / "secret.json")):
        (snapshot / "config.json").symlink_to(target)
        assert "is a link that leaves its folder" in error_of(snapshot).message
        (snapshot / "config.json").unlink()


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    moved(write_zeros(folder / FILE, "w"), folder / "files")
    assert load(folder).read("w") == 0
    (tmp_path / "name").symlink_to(folder)
    assert load(tmp_path / "name").read("w") == 0


def test_a_file_that_is_named_may_be_any_link(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    moved(write_zeros(folder / FILE, "w"), tmp_path / "elsewhere")
    assert load(folder / FILE).read("w") == 0


@pytest.mark.parametrize("name", [FILE, "config.json"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_zeros(folder / FILE, "w")
    write_json(folder / "config.json", {})
    target = moved(folder / name, tmp_path / "elsewhere")
    error = error_of(folder)
    assert error.message == (
        f"{folder / name} is a link that leaves its folder; it leads to {target}"
    )
    assert error.hint.endswith(f"perhaps {target.parent}")


@pytest.mark.parametrize("name", [INDEX, "model-00002-of-00002.safetensors"])
def test_shards_and_their_index_may_not_leave_it_either(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    sharded(folder)
    moved(folder / name, tmp_path / "blobs")
    assert "is a link that leaves its folder" in error_of(folder).message


def test_a_config_beside_a_named_file_may_not_leave_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_zeros(folder / FILE, "w")
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"password": "x"}), encoding="utf-8")
    (folder / "config.json").symlink_to(secret)
    assert "is a link that leaves its folder" in error_of(folder / FILE).message


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_an_adapter_may_not_leave_its_folder(tmp_path: Path, name: str) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    folder.mkdir()
    write_zeros(base / FILE, "w")
    update = "base_model.model.x.lora_A.weight"
    write_zeros(folder / "adapter_model.safetensors", update)
    write_json(folder / "adapter_config.json", {"peft_type": "LORA"})
    moved(folder / name, tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="is a link that leaves its folder"):
        load(folder, merge_base=base)


def test_a_link_to_itself_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(FILE)
    assert "symbolic links" in error_of(tmp_path).message


def test_a_shard_that_was_replaced_after_loading_is_noticed(tmp_path: Path) -> None:
    checkpoint = load(sharded(tmp_path))
    path = tmp_path / "model-00001-of-00002.safetensors"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert np.array_equal(checkpoint.read("c"), [4, 5])
    with pytest.raises(CheckpointError, match="has changed since it was opened"):
        checkpoint.read("a")


def test_a_torch_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"w": torch.ones(5000)}, path)
    checkpoint = load(path, allow_pickle=True)
    os.truncate(path, 4096)
    with pytest.raises(CheckpointError, match="has changed since it was opened"):
        checkpoint.read("w")
