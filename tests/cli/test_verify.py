"""pjdiag verify as a person types it: exit codes, the sentence, the tables, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from pjdiag.position.rotary import RotaryFrequencies, frequencies
from tests import isolated
from tests.cli.running import run
from tests.diagnostics.kernels import DATA
from tests.diagnostics.runnable import runnable
from tests.native import full_native

SHORT = ("--length", "1024,2048")


def test_the_shipped_sample_holds(capsys: Any) -> None:
    ran = run(capsys, "verify", *SHORT)
    assert ran.code == 0
    first = ran.out.splitlines()[0]
    assert first.startswith("PJ-bias keeps its laws up to 2,048 tokens in float32 and float64")
    assert "our reading gives the model's attention to" in first
    assert "Jordan m=2 bounded" in ran.out
    assert "one token shears by 0.999 at 0, 0.25 at 1,024" in ran.out
    assert "Next: pjdiag mass" in ran.out + ran.err
    assert len(ran.out.splitlines()) < 60


def test_all_prints_every_figure(capsys: Any, tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "jordan")
    ran = run(capsys, "verify", path, "--length", "1024", "--all")
    assert ran.code == 0
    assert ran.out.count("relative_score") == 2 * 17 + 2 * 1
    ran = run(capsys, "verify", path, "--length", "1024", "--all", "--by", "layer")
    assert ran.out.count("relative_score") == 2 * 17 + 2 * 3


def test_a_wrong_reading_exits_with_1(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter computes its frequencies from another base than the model does."""

    def other_base(head_dim: int, base: float, *rest: Any) -> RotaryFrequencies:
        return frequencies(head_dim, 5 * base, *rest)

    path = runnable(tmp_path / "m.safetensors", "rope")
    assert run(capsys, "verify", path, *SHORT).code == 0
    monkeypatch.setattr("pjdiag_plugins.pjrope.frequencies", other_base)
    ran = run(capsys, "verify", path, *SHORT)
    assert ran.code == 1
    assert "our reading is not the model's attention: off by" in ran.out.splitlines()[0]
    assert "our reading does not give the model's own figures" in ran.out
    assert "Next: pjdiag inspect" in ran.out + ran.err


def test_a_law_of_the_checkpoint_that_fails_exits_with_1(capsys: Any, tmp_path: Path) -> None:
    path = strongly_damped(tmp_path / "m.safetensors")
    ran = run(capsys, "verify", path, "--length", "256,4096")
    assert ran.code == 1
    assert ran.out.startswith(
        "Jordan-RoPE breaks its laws from 4,096 tokens on in float32 and float64 (layer 0: "
        "exponent clamped from position 1,920 on"
    )
    assert run(capsys, "verify", path, "--length", "256,1024").code == 0
    kept = run(capsys, "verify", path, "--length", "4096", "--layer", "1")
    assert kept.code == 0
    assert kept.out.startswith("Layer 1: Jordan-RoPE keeps its laws up to 4,096 tokens")


def strongly_damped(path: Path, bad: float | None = None) -> Path:
    """Jordan blocks; layer 0 has damping 1 per train length, and clamps at 30 of them."""
    runnable(path, "jordan")
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    weak = np.full((2, 4), -20, dtype=np.float32)
    tensors["blocks.0.attn.positioner.raw_damping"] = weak * 0 + np.log(np.expm1(1.0))
    tensors["blocks.1.attn.positioner.raw_damping"] = weak
    if bad is not None:
        tensors["blocks.1.attn.positioner.raw_shear"][1, 0] = bad
    save_file(tensors, path, metadata)
    return path


def test_bad_values_are_inconclusive_and_a_violation_goes_first(
    capsys: Any, tmp_path: Path
) -> None:
    path = strongly_damped(tmp_path / "m.safetensors", bad=np.nan)
    ran = run(capsys, "verify", path, "--length", "256")
    assert ran.code == 3
    assert "blocks.1.attn.positioner.raw_shear holds 1 values that are NaN" in ran.out + ran.err
    assert "parity with the model was not measured" in ran.out.splitlines()[0]
    assert run(capsys, "verify", path, "--length", "4096").code == 1


def test_json(capsys: Any, tmp_path: Path) -> None:
    path = runnable(tmp_path / "m.safetensors", "rope_pi")
    ran = run(capsys, "verify", path, *SHORT, "--seed", "5", "-o", "json")
    assert ran.code == 0
    loaded = json.loads(ran.out)
    assert loaded["diagnostic"] == "verify"
    assert loaded["provenance"]["seed"] == 5
    assert loaded["provenance"]["lengths"] == [1024, 2048]
    assert loaded["provenance"]["standard_parameters"]["jordan_shear"] == 0.05
    assert {row["subject"] for row in loaded["rows"]} == {"checkpoint", "standard"}
    assert {row["passed"] for row in loaded["rows"]} == {True, False, None}


def test_settings(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runnable(tmp_path / "m.safetensors", "rope")
    (tmp_path / "pjdiag.toml").write_text(
        'checkpoint = "m.safetensors"\n[verify]\nlength = [64, 128]\nseed = 9\n'
    )
    monkeypatch.chdir(tmp_path)
    provenance = json.loads(run(capsys, "verify", "-o", "json").out)["provenance"]
    assert (provenance["lengths"], provenance["seed"]) == ([64, 128], 9)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--length", "1"], "length is 1"),
        (["--length", "some"], "'some' is not a length"),
        (["--seed", "-1"], "-1"),
        (["--layer", "7"], "layers are 0 to 1"),
    ],
)
def test_unusable_options(capsys: Any, options: list[str], says: str) -> None:
    ran = run(capsys, "verify", *options, "--quiet")
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert "Next: " in ran.err


def test_checkpoints_that_are_not_a_whole_model(capsys: Any, tmp_path: Path) -> None:
    ran = run(capsys, "verify", full_native(tmp_path / "m.safetensors"), *SHORT)
    assert ran.code == 2
    assert "blocks.0.attn.out_proj.bias is missing" in ran.err
    assert run(capsys, "verify", DATA / "full.pt").code == 2


def test_without_torch_the_laws_are_measured_and_parity_is_skipped(tmp_path: Path) -> None:
    names = [isolated.NAME.match(line)[0] for line in isolated.static_requirements()]
    site = isolated.only(tmp_path, names)
    ran = isolated.run(site, ["-m", "pjdiag", "verify", "--length", "1024"])
    assert ran.returncode == 0, ran.stderr
    assert "parity with the model was not measured" in ran.stdout.splitlines()[0]
    assert "parity needs torch" in ran.stdout
    assert "bounded shear time is not additive" in ran.stdout


def test_a_checkpoint_without_a_law_of_its_own_is_inconclusive(capsys: Any, tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=11, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    ran = run(capsys, "verify", tmp_path, "--length", "64")
    assert ran.code == 3
    assert ran.out.startswith("No transform of the checkpoint could be measured")
