"""Tensors that a sparse file declares and nobody could hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pjdiag.checkpoint import load, memory
from pjdiag.errors import CheckpointError
from tests.cli.running import run

SIZE = 2**20
NAMES = [f"model.layers.0.self_attn.{side}_proj.weight" for side in "qk"]


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A Llama of one layer with 4 TiB of weights, which take no room on disk."""
    each = 2 * SIZE * SIZE
    header = json.dumps(
        {
            name: {
                "dtype": "BF16",
                "shape": [SIZE, SIZE],
                "data_offsets": [number * each, (number + 1) * each],
            }
            for number, name in enumerate(NAMES)
        }
    ).encode()
    with (tmp_path / "model.safetensors").open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + len(NAMES) * each)
    config = {"model_type": "llama", "hidden_size": SIZE, "num_hidden_layers": 1}
    config |= {"num_attention_heads": SIZE // 128, "max_position_embeddings": 2048}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_tensor_beyond_memory_is_refused_with_the_estimate(sparse: Path) -> None:
    checkpoint = load(sparse)
    with pytest.raises(CheckpointError, match=r"needs 4398\.0 GB of memory, and \d+\.\d GB are"):
        checkpoint.read(NAMES[0])
    with pytest.raises(CheckpointError, match=r"needs 2199\.0 GB of memory"):
        checkpoint.read_rows(NAMES[0], 0, SIZE // 2)
    assert checkpoint.read_rows(NAMES[0], 5, 6).shape == (1, SIZE)


def test_the_commands_say_so(sparse: Path, capsys) -> None:
    assert run(capsys, "inspect", sparse, "-q").code == 0
    ran = run(capsys, "mass", sparse)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "GB of memory" in ran.err
    assert "Next: " in ran.err


def test_where_the_system_does_not_say_it_is_tried(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "INFORMATION", tmp_path / "none")
    memory.require_memory("w", (SIZE, SIZE))
    (tmp_path / "none").write_text("MemAvailable: 100 kB\n", encoding="ascii")
    with pytest.raises(CheckpointError, match=r"0\.0 GB are available"):
        memory.require_memory("w", (SIZE, SIZE))
