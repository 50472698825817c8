"""The adapter in the docs, found through a real entry point of a distribution on the path."""

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

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "example_adapter"
HEADS, LAYERS, LENGTH = 4, 3, 64


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
    """Two layers of a toy ALiBi model, and one without attention between them."""
    config = {
        "model_type": "toy_alibi",
        "n_layer": LAYERS,
        "n_head": HEADS,
        "hidden_size": 32,
        "seq_length": LENGTH,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {
        f"layers.{index}.attn.qkv.weight": np.zeros((96, 32), dtype=np.float32) for index in (0, 2)
    }
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


def test_it_is_listed_beside_our_own(installed):
    done = pjdiag(installed, "plugins", "--json")
    found = {entry["name"]: entry for entry in json.loads(done.stdout)}
    assert found["toy_alibi"]["usable"]
    assert found["toy_alibi"]["origin"] == "toy-alibi 0.1.0"
    assert found["pjrope"]["usable"]


def test_mass_is_that_of_the_standard_slopes(installed, checkpoint):
    done = pjdiag(installed, "mass", str(checkpoint), "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # Slopes of four heads are 1/4, 1/16, 1/64, 1/256 per token; mass is per train length.
    by_head = [LENGTH * slope for slope in (0.25, 0.0625, 0.015625, 0.00390625)]
    heads = [
        row["effective_mass"]
        for row in result["rows"]
        if row["scope"] == "head" and row["layer"] == 2 and row["sector"] == "affine"
        if row["jet_order"] is None
    ]
    assert heads == pytest.approx(by_head, rel=1e-12)
    (model,) = [
        row
        for row in result["rows"]
        if row["scope"] == "model" and row["sector"] == "affine" and row["jet_order"] is None
    ]
    assert model["effective_mass"] == pytest.approx(2 * sum(by_head), rel=1e-12)
    assert model["sector_share"] == 1.0
    assert model["mechanism"] == "alibi"
    assert [entry["layer"] for entry in result["skipped"]] == [1]
    assert result["checkpoint"]["train_length_source"] == "config.json: seq_length"


def test_inspect_states_the_slopes_and_their_source(installed, checkpoint):
    done = pjdiag(installed, "inspect", str(checkpoint), "-o", "json")
    row = json.loads(done.stdout)["rows"][0]
    assert row["slopes"] == [0.25, 0.0625, 0.015625, 0.00390625]
    assert row["slopes_source"] == "format: the standard slopes"


def test_without_it_nobody_knows_the_slopes(checkpoint):
    done = pjdiag(None, "inspect", str(checkpoint), "-o", "json")
    result = json.loads(done.stdout)
    assert result["checkpoint"]["adapter"] == "generic"
    assert {row["slopes"] for row in result["rows"]} == {None}


def test_plugins_can_be_switched_off(installed, checkpoint, monkeypatch):
    monkeypatch.setenv("PJDIAG_PLUGINS", "")
    done = pjdiag(installed, "inspect", str(checkpoint), "-o", "json")
    assert json.loads(done.stdout)["checkpoint"]["adapter"] == "generic"
