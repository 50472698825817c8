"""Native checkpoints: the file's shape, the way back, and writing whole or not at all."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError, OutputError
from pjdiag.lab.native import load_model, save_model, write_atomically
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from pjdiag.models.methods import METHODS

DATA = Path(__file__).parents[1] / "data"
TOKENS = torch.arange(40)[None]


def small(method: str) -> ModelConfig:
    return ModelConfig(method, embed_dim=32, num_heads=2, train_length=16, max_order=1)


@pytest.mark.parametrize("method", METHODS)
def test_written_and_read_back(method: str, tmp_path: Path) -> None:
    model = CausalLM(small(method), seed=2).eval()
    path = tmp_path / "new" / "model.safetensors"
    save_model(model, path)
    again = load_model(load(path))
    assert again.config == model.config
    with torch.no_grad():
        assert torch.equal(again(TOKENS), model(TOKENS))


def test_the_file_has_one_metadata_key(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(CausalLM(small("full")), path, {"seed": 0})
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    assert list(metadata) == ["pjdiag"]
    assert json.loads(metadata["pjdiag"]) == small("full").to_metadata({"seed": 0})


def test_equal_models_make_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_model(CausalLM(small("full"), seed=3), tmp_path / name, {"seed": 3, "steps": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", ["full", "pj_rotary"])
def test_research_checkpoints(name: str) -> None:
    model = load_model(load(DATA / f"{name}.pt", allow_pickle=True))
    expected = json.loads((DATA / f"{name}.expected.json").read_text())["logits_at"]["511"]
    tokens = torch.tensor([[(31 * i * i + 7 * i) % 256 for i in range(512)]])
    with torch.no_grad():
        found = model(tokens)[0, 511, :8]
    assert (found - torch.tensor(expected["first8"])).abs().max() < 1e-4


def test_another_format_is_refused() -> None:
    with pytest.raises(CheckpointError, match="states no method"):
        load_model(load(DATA / "jordan_rope.pt", allow_pickle=True))


def test_a_failed_write_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="file cannot be written: No space left on device"):
        write_atomically(path, fail)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        save_model(CausalLM(small("none")), tmp_path / "file" / "model.safetensors")
