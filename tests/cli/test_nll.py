"""pjdiag nll as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pjdiag.errors import pip_install
from pjdiag.samples import held_out_text
from tests import isolated
from tests.cli.running import run
from tests.diagnostics.runnable import runnable

SHORT = ("--length", "128,512", "--windows", "4")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return runnable(tmp_path / "m.safetensors", "full")


def test_the_shipped_sample_reads_its_held_out_excerpt(capsys: Any) -> None:
    ran = run(capsys, "nll", *SHORT)
    assert ran.code == 0
    assert ran.out.startswith("Loss is ")
    assert "nats per byte at 128 tokens and " in ran.out
    assert "Loss per byte by context length" in ran.out
    assert "Loss by position in the window" in ran.out
    assert "Where attention looks" not in ran.out
    assert "held-out excerpt of language_full" in ran.err
    assert "shipped sample" in ran.err
    assert "Next: pjdiag loo" in ran.out + ran.err
    assert run(capsys, "nll", *SHORT, "--quiet").err == ""


def test_attention_by_scope(capsys: Any, checkpoint: Path) -> None:
    words = ("nll", checkpoint, "--data", held_out_text(), *SHORT, "--attention")
    ran = run(capsys, *words)
    assert ran.code == 0
    assert "layer 1" in ran.out
    assert "head" not in ran.out.partition("Where attention looks")[2].partition("means over")[0]
    assert "layer 1 head 0" in run(capsys, *words, "--by", "head", "--all").out
    ran = run(capsys, *words, "--layer", "1", "--head", "0")
    assert ran.code == 0
    assert ran.out.startswith("Layer 1 head 0: attention spreads over ")
    assert "Loss per byte" not in ran.out


def test_json(capsys: Any, checkpoint: Path) -> None:
    ran = run(capsys, "nll", checkpoint, "--data", held_out_text(), *SHORT, "-o", "json")
    loaded = json.loads(ran.out)
    assert loaded["diagnostic"] == "nll"
    assert loaded["provenance"]["windows"] == {"128": 4, "512": 4}
    assert loaded["provenance"]["data_digest"].startswith("sha256:")
    assert {row["bucket"] for row in loaded["rows"]} == {"all", "train", "x1_4", "x4_16"}


def test_a_long_run_says_so_beforehand(
    capsys: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pjdiag.diagnostics.measured_loss.seconds_needed", lambda *_: 200.0)
    words = ("nll", checkpoint, "--data", held_out_text(), *SHORT)
    assert "This will take about 3 minutes and up to 0.1 GB of memory." in run(capsys, *words).err
    assert run(capsys, *words, "--quiet").err == ""


def test_settings(
    capsys: Any, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("so foul and fair a day I have not seen\n" * 9)
    (tmp_path / "pjdiag.toml").write_text(
        f'checkpoint = "{checkpoint.name}"\n[nll]\ndata = "text.txt"\nlength = [32, 64]\n'
        "windows = 3\nseed = 4\n"
    )
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    provenance = json.loads(run(capsys, "nll", "-o", "json").out)["provenance"]
    assert provenance["data"].endswith("text.txt")
    assert (provenance["lengths"], provenance["seed"]) == ([32, 64], 4)
    assert provenance["windows"] == {"32": 3, "64": 3}


def test_a_checkpoint_needs_data(capsys: Any, checkpoint: Path) -> None:
    ran = run(capsys, "nll", checkpoint)
    assert ran.code == 2
    assert ran.err == "pjdiag: nll needs a text to predict. Next: pass --data FILE\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--length", "some"], "'some' is not a length"),
        (["--length", "1"], "length is 1"),
        (["--length", "9999999"], "9999999"),
        (["--windows", "0"], "--windows"),
        (["--stride", "0"], "--stride"),
        (["--batch", "-1"], "--batch"),
        (["--data", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["--layer", "0"], "add --attention"),
    ],
)
def test_unusable_options(capsys: Any, options: list[str], says: str) -> None:
    ran = run(capsys, "nll", *options, "--quiet")
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert "Next: " in ran.err


def test_without_torch_it_says_what_is_missing(tmp_path: Path) -> None:
    names = [isolated.NAME.match(line)[0] for line in isolated.static_requirements()]
    site = isolated.only(tmp_path, names)
    ran = isolated.run(site, ["-m", "pjdiag", "nll", "--length", "128", "--quiet"])
    assert ran.returncode == 2
    assert ran.stderr == f"pjdiag: running it needs torch. Next: {pip_install('torch')}\n"
