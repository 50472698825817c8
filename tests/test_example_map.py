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


@pytest.fixture
def site(installed, tmp_path) -> Path:
    """A copy of the installed example that a test may change."""
    return shutil.copytree(installed, tmp_path / "site")


def write_map(site: Path, file: str, **values) -> None:
    (site / "toy_decoder_map" / file).write_text(json.dumps(values), encoding="utf-8")


def llama_folder(folder: Path, **config) -> Path:
    """Two layers of a small Llama under another name."""
    folder.mkdir(exist_ok=True)
    stated = {
        "model_type": "mine",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": DIM,
    } | config
    (folder / "config.json").write_text(json.dumps(stated), encoding="utf-8")
    weights = np.random.default_rng(0).normal(size=(HEADS * DIM, WIDTH)).astype(np.float32)
    tensors = {}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        tensors[f"{start}self_attn.q_proj.weight"] = weights
        tensors[f"{start}self_attn.k_proj.weight"] = weights[: KV * DIM]
        tensors[f"{start}input_layernorm.weight"] = np.ones(WIDTH, dtype=np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_map_of_another_package_extends_ours(site, tmp_path):
    write_map(
        site,
        "mine.json",
        name="mine",
        extends="llama",
        model_types=["mine"],
        train_length_fields=["trained_on"],
        defaults={"rope_theta": 500.0},
        defaults_source="mine default",
    )
    folder = llama_folder(tmp_path / "model", trained_on=96, max_position_embeddings=512)
    done = pjdiag(site, "inspect", str(folder), "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["checkpoint"]["adapter"] == "mine"
    assert result["checkpoint"]["train_length"] == 96
    assert result["checkpoint"]["train_length_source"] == "config: trained_on"
    row = result["rows"][0]
    assert (row["rope_theta"], row["rope_theta_source"]) == (500.0, "mine default")


def test_names_that_do_not_fit_point_at_the_map(site, tmp_path):
    write_map(
        site, "mine.json", name="mine", extends="llama", model_types=["mine"], query="attn.wq"
    )
    folder = llama_folder(tmp_path / "model")
    done = pjdiag(site, "inspect", str(folder))
    assert done.returncode == 2
    text = " ".join(done.stderr.split())
    assert "no tensor is named layers.N.attn.wq.weight" in text
    assert "model.layers.0.self_attn.q_proj.weight" in text
    assert "mine.json of toy-decoder-map 0.1.0" in text
    write_map(site, "mine.json", name="mine", extends="llama", model_types=["mine"], key="attn.wk")
    text = " ".join(pjdiag(site, "inspect", str(folder)).stderr.split())
    assert "it has no attn.wk.weight" in text
    assert "(names: mine.json of toy-decoder-map 0.1.0)" in text


def test_a_file_that_is_no_map_is_warned_of_and_stops_no_other(site, tmp_path, checkpoint):
    (site / "toy_decoder_map" / "mine.json").write_text('{"name": "mine",', encoding="utf-8")
    folder = llama_folder(tmp_path / "model", rope_theta=1e4)
    done = pjdiag(site, "inspect", str(folder), "-o", "json")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stderr.split())
    assert "plugin mine (toy-decoder-map 0.1.0) is not used" in text
    assert "mine.json cannot be used: it is not JSON" in text
    assert "generic reading" in text
    assert "no adapter is for model_type 'mine'" in text
    other = pjdiag(site, "inspect", str(checkpoint), "-o", "json")
    assert json.loads(other.stdout)["checkpoint"]["adapter"] == "toy_decoder"


def test_a_name_of_ours_is_listed_as_a_clash_and_reads_nothing(site, tmp_path):
    write_map(site, "mine.json", name="llama", model_types=["mine"])
    found = [
        e for e in json.loads(pjdiag(site, "plugins", "--json").stdout) if e["name"] == "llama"
    ]
    assert len(found) == 2
    assert not any(entry["usable"] for entry in found)
    assert all("toy-decoder-map 0.1.0" in entry["problem"] for entry in found)
    assert "Not used" in pjdiag(site, "plugins").stdout
    assert "share the name llama" in " ".join(pjdiag(site, "doctor").stdout.split())
    done = pjdiag(site, "inspect", str(llama_folder(tmp_path / "model")))
    assert done.returncode == 2
    assert "two adapters are named 'llama'" in done.stderr


def test_a_name_that_nobody_knows_says_what_is_near_it(tmp_path):
    folder = llama_folder(tmp_path / "model", model_type="smolm3", rope_theta=1e4)
    text = " ".join(pjdiag(None, "inspect", str(folder), "-o", "json").stderr.split())
    assert "no adapter is for model_type 'smolm3' (near it: 'smollm3'" in text
    assert "docs/example_map" in text


def test_what_a_strangers_map_fills_in_is_not_transformers(site, tmp_path):
    write_map(
        site,
        "mine.json",
        name="mine",
        extends="llama",
        model_types=["mine"],
        partial_rotary_factor=0.5,
    )
    folder = llama_folder(tmp_path / "model", trained_on=96, max_position_embeddings=512)
    done = pjdiag(site, "inspect", str(folder), "-o", "json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][0]
    assert row["rotary_dim"] == row["head_dim"] // 2
    assert row["rotary_dim_source"] == "map mine.json"
    assert row["rope_theta_source"] == "map mine.json"
