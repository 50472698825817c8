"""pjdiag kernel as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjdiag.errors import pip_install
from pjdiag.samples import held_out_text
from tests import isolated
from tests.cli.running import run
from tests.diagnostics.runnable import runnable


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(tmp_path_factory.mktemp("cli") / "m.safetensors", "rope", layers=1)


def test_the_shipped_sample_reads_its_held_out_excerpt(capsys: Any) -> None:
    ran = run(capsys, "kernel")
    assert ran.code == 0
    assert " describes the measured kernels of " in ran.out
    assert " on shuffled tokens and " in ran.out
    assert "Shapes of the kernels of the model's heads" in ran.out
    assert "Sector fit (medians)" in ran.out
    assert "held-out excerpt of language_full" in ran.err
    assert "shipped sample" in ran.err
    assert "Next: pjdiag mass" in ran.out + ran.err


def test_scopes_and_formats(capsys: Any, checkpoint: Path, tmp_path: Path) -> None:
    words = ("kernel", checkpoint, "--data", held_out_text(), "--no-controls")
    ran = run(capsys, *words, "--by", "head", "-o", "table", "-o", f"json:{tmp_path / 'k.json'}")
    assert ran.code == 0
    assert "layer 0 head 1" in ran.out
    assert "shuffled" not in ran.out
    loaded = json.loads((tmp_path / "k.json").read_text())
    assert loaded["diagnostic"] == "kernel"
    assert loaded["provenance"]["length"] == 64
    assert {row["control"] for row in loaded["rows"]} == {None}
    assert run(capsys, *words, "--quiet").err == ""
    csv = run(capsys, *words, "-o", "csv").out.splitlines()
    assert csv[0].startswith("layer,head,scope,mechanism,side,control,statistic,shape,group,lag,r2")
    assert len(csv) == 1 + len(loaded["rows"])


def test_one_head_shows_its_curve(capsys: Any, checkpoint: Path) -> None:
    words = ("kernel", checkpoint, "--data", held_out_text(), "--no-controls", "--all")
    ran = run(capsys, *words, "--layer", "0", "--head", "1")
    assert ran.code == 0
    assert ran.out.startswith("Layer 0 head 1: ")
    assert "The kernel by lag" in ran.out


def test_settings(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runnable(tmp_path / "m.safetensors", "rope", layers=1)
    (tmp_path / "text.txt").write_text("so foul and fair a day I have not seen\n" * 9)
    (tmp_path / "pjdiag.toml").write_text(
        'checkpoint = "m.safetensors"\n[kernel]\ndata = "text.txt"\nlength = 40\nwindows = 3\n'
        "skip_first = 2\ncontrols = false\nseed = 4\n"
    )
    monkeypatch.chdir(tmp_path)
    provenance = json.loads(run(capsys, "kernel", "-o", "json").out)["provenance"]
    assert provenance["data"].endswith("text.txt")
    wanted = {"length": 40, "windows": 3, "skip_first": 2, "controls": False, "seed": 4}
    assert {name: provenance[name] for name in wanted} == wanted


def test_a_checkpoint_needs_data(capsys: Any, checkpoint: Path) -> None:
    ran = run(capsys, "kernel", checkpoint)
    assert ran.code == 2
    assert ran.err == "pjdiag: kernel needs a text to read. Next: pass --data FILE\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--length", "some"], "some"),
        (["--length", "19"], "length is 19; expected at least 20 bytes"),
        (["--length", "999999999"], "one window needs 999999999"),
        (["--windows", "0"], "--windows"),
        (["--skip-first", "-1"], "--skip-first"),
        (["--data", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["--data", "nowhere.npy"], "nowhere.npy cannot be read"),
        (["--layer", "9", "--length", "32", "--no-controls"], "no row for layer 9"),
    ],
)
def test_unusable_options(capsys: Any, options: list[str], says: str) -> None:
    ran = run(capsys, "kernel", *options, "--quiet")
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert "Next: " in ran.err


def test_ids_outside_the_vocabulary(capsys: Any, checkpoint: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.full(100, 300))
    ran = run(capsys, "kernel", checkpoint, "--data", tmp_path / "ids.npy")
    assert ran.code == 2
    assert "the token id 300" in ran.err


def test_without_a_train_length_the_sector_fit_is_left_out(
    capsys: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pjdiag.adapters.protocol import Sourced
    from pjdiag_plugins.pjrope import PJRopeAdapter

    silent = Sourced(None, "unknown")
    monkeypatch.setattr(PJRopeAdapter, "train_length", lambda *_: silent)
    options = ("--data", held_out_text(), "--length", "64", "--no-controls")
    ran = run(capsys, "kernel", checkpoint, *options)
    assert ran.code == 0
    assert "the training length is not known: no sector fit" in " ".join(ran.out.split())
    assert "rapidity recency" in ran.out
    assert "Sector fit" not in ran.out


def test_without_torch_it_says_what_is_missing(tmp_path: Path) -> None:
    names = [isolated.NAME.match(line)[0] for line in isolated.static_requirements()]
    site = isolated.only(tmp_path, names)
    ran = isolated.run(site, ["-m", "pjdiag", "kernel", "--quiet"])
    assert ran.returncode == 2
    assert ran.stderr == f"pjdiag: running a model needs torch. Next: {pip_install('torch')}\n"
