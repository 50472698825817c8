"""pjdiag loo on data as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pjdiag.samples import held_out_text
from tests.cli.running import run
from tests.diagnostics.runnable import runnable

SHORT = ("--length", "64", "--windows", "4")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return runnable(tmp_path / "m.safetensors", "full")


def test_the_kernel_alone_stays_the_default(capsys: Any) -> None:
    ran = run(capsys, "loo", "--length", "64")
    assert ran.code == 0
    assert "moves the attention prior" in ran.out
    assert "prior KL" in ran.out
    assert "held-out" not in ran.err


def test_the_shipped_sample_reads_its_held_out_excerpt(capsys: Any) -> None:
    ran = run(capsys, "loo", *SHORT)
    assert ran.code == 0
    assert ran.out.startswith("Removing ")
    assert "order 0 everywhere costs " in ran.out
    assert "nats per byte" in ran.out
    assert "a random part of the same size" in ran.out
    assert "What removing a part does to the loss, 64 tokens" in ran.out
    assert "held-out excerpt of language_full" in ran.err
    assert run(capsys, "loo", *SHORT, "--quiet").err == ""


def test_scopes(capsys: Any, checkpoint: Path) -> None:
    words = ("loo", checkpoint, "--data", held_out_text(), *SHORT, "--remove", "order:0")
    assert "layer" not in run(capsys, *words).out.partition("─")[2].partition("in nats")[0]
    by_layer = run(capsys, *words, "--by", "layer").out
    assert "layer 1" in by_layer
    assert "layer 1 head 0" not in by_layer
    assert "layer 1 head 0" in run(capsys, *words, "--by", "head").out
    ran = run(capsys, *words, "--layer", "1", "--head", "0")
    assert ran.code == 0
    assert ran.out.startswith("Layer 1 head 0: removing order 0 ")
    only = json.loads(run(capsys, *words, "--layer", "1", "-o", "json").out)
    assert [row["layer"] for row in only["rows"]] == [1]


def test_json_has_every_column(capsys: Any, checkpoint: Path) -> None:
    words = ("loo", checkpoint, "--data", held_out_text(), *SHORT, "--remove", "fj:1+lc:2")
    loaded = json.loads(run(capsys, *words, "--remove", "sector:affine", "-o", "json").out)
    assert loaded["diagnostic"] == "loo"
    assert [row["removed"] for row in loaded["rows"]] == ["fj:1+lc:2", "sector:affine"]
    assert loaded["provenance"]["windows"] == {"64": 4}
    assert loaded["provenance"]["data_digest"].startswith("sha256:")
    static = json.loads(run(capsys, "loo", checkpoint, "-o", "json").out)
    assert set(static["rows"][0]) == set(loaded["rows"][0])
    assert static["rows"][0]["loo_delta_nll"] is None
    header, *lines = run(capsys, *words, "-o", "csv").out.splitlines()
    assert header.startswith("layer,head,scope,mechanism,removed,eval_length,loo_delta_mse")
    assert lines[0].startswith(",,model,pj_bias,fj:1+lc:2,64,,,")


def test_a_long_run_says_so_beforehand(
    capsys: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pjdiag.diagnostics.ablation_engines.seconds_needed", lambda *_: 200.0)
    words = ("loo", checkpoint, "--data", held_out_text(), *SHORT)
    assert "This will take about 3 minutes and up to 0.2 GB of memory." in run(capsys, *words).err


def test_a_checkpoint_needs_data(capsys: Any, checkpoint: Path) -> None:
    ran = run(capsys, "loo", checkpoint, "--remove", "order:0")
    assert ran.code == 2
    assert ran.err == "pjdiag: --remove needs a text to predict. Next: pass --data FILE\n"


def test_settings(
    capsys: Any, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("so foul and fair a day I have not seen\n" * 9)
    (tmp_path / "pjdiag.toml").write_text(
        f'checkpoint = "{checkpoint.name}"\n[loo]\ndata = "text.txt"\nlength = [32]\n'
        "windows = 3\nseed = 4\norder = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    provenance = json.loads(run(capsys, "loo", "-o", "json").out)["provenance"]
    assert provenance["data"].endswith("text.txt")
    assert (provenance["lengths"], provenance["seed"]) == ([32], 4)
    assert provenance["windows"] == {"32": 3}
    assert provenance["removals"] == ["order:1", "fj:1", "lc:1"]


def test_an_interrupted_run_goes_on(
    capsys: Any, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pjdiag.models.ablated_lm import AblatedLM

    words = ("loo", checkpoint, "--data", held_out_text(), *SHORT, "--batch", "2")
    words += ("--remove", "order:0", "-o", tmp_path / "found.json")
    whole, calls = AblatedLM.without, 0

    def stop(self: Any, changes: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return whole(self, changes)

    with monkeypatch.context() as patched:
        patched.setattr(AblatedLM, "without", stop)
        ran = run(capsys, *words)
    assert ran.code == 130
    assert "5 of 6 parts are finished" in ran.err
    partial = json.loads((tmp_path / "found.partial.json").read_text())
    assert [row["windows"] for row in partial["rows"]] == [2]
    assert run(capsys, *words, "--resume").code == 0
    assert [
        row["windows"] for row in json.loads((tmp_path / "found.json").read_text())["rows"]
    ] == [4]
    assert not (tmp_path / "found.partial.json").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--remove", "band:local"], "nothing here is called 'band:local'"),
        (["--remove", "fj:0", "--order", "1"], "both an order and names"),
        (["--data", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["--windows", "0"], "--windows"),
        (["--windows", "2", "--order", "7"], "order 7 is out of range"),
        (["--windows", "2", "--layer", "7"], "no layer 7"),
        (["--windows", "2", "--length", "9999999"], "9999999"),
        (["--batch", "2", "--length", "some"], "'some' is not a length"),
    ],
)
def test_unusable_options(capsys: Any, options: list[str], says: str) -> None:
    ran = run(capsys, "loo", *options, "--quiet")
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.count("\n") == 1
