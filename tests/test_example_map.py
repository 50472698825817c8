"""The map in the docs, installed as pip would install it, and found by its entry point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "example_map"
WIDTH, HEADS, KV, DIM, LAYERS = 8, 4, 2, 4, 2


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder for ``PYTHONPATH`` with the example as pip would install it."""
    folder = tmp_path_factory.mktemp("site")
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "toy")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "install", *offline, "--target", folder, source], check=True)
    return folder


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """Two layers; row r of a projection has norm r + 1, and the input norm doubles it."""
    config = {
        "model_type": "toy_decoder",
        "n_layer": LAYERS,
        "n_head": HEADS,
        "width": WIDTH,
        "head_dim": DIM,
        "window": 16,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    rows = (HEADS + 2 * KV) * DIM
    weight = np.zeros((rows, WIDTH), dtype=np.float32)
    weight[np.arange(rows), np.arange(rows) % WIDTH] = np.arange(1, rows + 1)
    tensors = {}
    for layer in range(LAYERS):
        tensors[f"backbone.blocks.{layer}.attention.wqkv.weight"] = weight
        tensors[f"backbone.blocks.{layer}.attention_norm.weight"] = np.full(WIDTH, 2, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def pjdiag(site: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site) if site else ""}
    return subprocess.run(
        [sys.executable, "-m", "pjdiag", *arguments],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_it_is_listed_with_the_model_types_it_reads(installed):
    done = pjdiag(installed, "plugins", "--json")
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert found["toy_decoder"]["usable"]
    assert found["toy_decoder"]["origin"] == "toy-decoder-map 0.1.0"
    assert found["toy_decoder"]["model_types"] == ["toy_decoder"]
    assert found["llama"]["usable"]


def test_every_figure_comes_from_the_map(installed, checkpoint):
    done = pjdiag(installed, "inspect", str(checkpoint), "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["checkpoint"]["adapter"] == "toy_decoder"
    assert result["checkpoint"]["train_length"] == 64
    (first, second) = result["rows"]
    assert (first["layer"], second["layer"]) == (0, 1)
    assert (first["num_heads"], first["num_kv_heads"], first["head_dim"]) == (4, 2, 4)
    assert first["num_kv_heads_source"] == "toy decoder default"
    assert first["rope_theta_source"] == "toy decoder default"
    assert (first["window"], first["window_source"]) == (16, "config: window")
    assert (first["rope_layout"], first["rotary_dim"]) == ("interleaved", 2)
    assert first["inv_freq"] == [1.0]
    assert first["scale"] == 0.5


def test_mass_is_that_of_the_rows_of_each_group(installed, checkpoint):
    done = pjdiag(installed, "mass", str(checkpoint), "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    found = [
        row["effective_mass"]
        for row in rows
        if row["scope"] == "head" and row["layer"] == 1 and row["jet_order"] == 0
    ]
    # Groups of [q, q, k, v] of 4 rows each; rows 0 and 1 of a head rotate. Both norms double it.
    by_head = []
    for query, key in ((0, 8), (4, 8), (16, 24), (20, 24)):
        sizes = [np.hypot(start + 1, start + 2) for start in (query, key)]
        by_head.append(0.5 * 4 * sizes[0] * sizes[1])
    assert found == pytest.approx(by_head)


def test_without_it_the_architecture_is_not_known(checkpoint):
    done = pjdiag(None, "mass", str(checkpoint))
    assert done.returncode != 0


def test_a_map_that_cannot_be_used_is_listed_with_the_reason(installed, checkpoint, tmp_path):
    broken = shutil.copytree(installed, tmp_path / "broken")
    path = broken / "toy_decoder_map" / "toy_decoder.json"
    values = {**json.loads(path.read_text("utf-8")), "rope_layout": "spiral"}
    path.write_text(json.dumps(values), encoding="utf-8")
    found = {
        entry["name"]: entry for entry in json.loads(pjdiag(broken, "plugins", "--json").stdout)
    }
    assert not found["toy_decoder"]["usable"]
    assert "rope_layout is 'spiral'; expected one of" in found["toy_decoder"]["problem"]
    done = pjdiag(broken, "mass", str(checkpoint))
    assert done.returncode == 2
    assert "toy_decoder.json cannot be used" in done.stderr
