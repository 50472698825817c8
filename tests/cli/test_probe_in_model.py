"""pjdiag probe --in-model as a person types it, and what becomes of its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pjdiag.samples import held_out_text
from tests.cli.running import run
from tests.diagnostics.retriever import retriever
from tests.diagnostics.runnable import runnable

SHORT = ("--length", "48,96", "--key-length", "2", "--trials", "8", "--depth", "0,1")


@pytest.fixture(scope="module")
def retrieving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return retriever(tmp_path_factory.mktemp("retriever") / "m.safetensors")


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(tmp_path_factory.mktemp("untrained") / "m.safetensors", "rope")


def ask(capsys: Any, path: Path, *more: Any) -> Any:
    return run(capsys, "probe", path, "--in-model", *SHORT, *more)


def test_what_is_found_is_a_grid(capsys: Any, monkeypatch: Any, retrieving: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = ask(capsys, retrieving)
    assert ran.code == 0
    sentence = "The model retrieves the right value in 100% of contexts of 48 tokens and 100% of 96"
    assert " ".join(ran.out.split()).startswith(f"{sentence} (chance 25%)")
    assert "8 contexts of each length and depth; chance is 25%" in ran.out
    assert "Mean rank of the right value" in ran.out
    lines = [line for line in ran.out.splitlines() if str(retrieving) not in line]
    assert max(map(len, lines)) <= 80


def test_chance_is_said_and_not_drawn(capsys: Any, untrained: Path) -> None:
    ran = ask(capsys, untrained)
    assert ran.code == 0
    assert ran.out.startswith(
        "The model does not retrieve at any length or depth: all at chance (25%)\n"
    )
    assert "Mean rank" not in ran.out
    assert "Retrieval by length and depth" in ask(capsys, untrained, "--all").out


def test_the_shipped_sample_with_its_held_out_text(capsys: Any) -> None:
    text = ("--data", held_out_text(), "--length", "64", "--trials", "4")
    ran = run(capsys, "probe", "--in-model", *text, "-o", "json", "-q")
    assert ran.code == 0
    loaded = json.loads(ran.out)
    assert loaded["provenance"]["data"] == str(held_out_text())
    assert [row["depth"] for row in loaded["rows"]] == [0, 0.25, 0.5, 0.75, 1, None]
    assert {row["variant"] for row in loaded["rows"]} == {None}


@pytest.mark.parametrize("form", ["table", "csv", "markdown", "json"])
def test_a_saved_result_in_other_formats(
    capsys: Any, tmp_path: Path, retrieving: Path, form: str
) -> None:
    target = tmp_path / "r.json"
    live = ask(capsys, retrieving, "-o", form, "-o", target, "-q")
    again = run(capsys, "convert", target, "-o", form, "-q")
    assert (live.code, again.code) == (0, 0)
    assert again.out == live.out


def test_two_saved_results_are_compared_by_length_and_depth(
    capsys: Any, tmp_path: Path, retrieving: Path, untrained: Path
) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, checkpoint in zip(paths, (untrained, retrieving), strict=True):
        ask(capsys, checkpoint, "-o", path, "-q")
    ran = run(capsys, "compare", *paths, "-o", "json", "-q")
    assert ran.code == 0
    rows = [row for row in json.loads(ran.out)["rows"] if row["figure"] == "top1"]
    assert {(row["eval_length"], row["depth"]) for row in rows} == {
        (length, depth) for length in (48, 96) for depth in (0, 1, None)
    }
    assert all(row["value_b"] == 1 and row["noise"] > 0 for row in rows)


def test_codes_and_the_running_model_are_never_compared(
    capsys: Any, tmp_path: Path, untrained: Path
) -> None:
    codes, asked = tmp_path / "codes.json", tmp_path / "asked.json"
    run(capsys, "probe", untrained, "--length", "96", "--no-decision", "-o", codes, "-q")
    ask(capsys, untrained, "-o", asked, "-q")
    ran = run(capsys, "compare", codes, asked)
    assert ran.code == 3
    assert "found nothing that the checkpoints share" in ran.out


def test_a_gate_tells_both_kinds_of_probe_apart(capsys: Any, untrained: Path) -> None:
    ran = run(capsys, "gate", untrained, "--require", "probe.top1[depth=0.5] >= 0", "-q")
    assert ran.code == 0, ran.err
    mixed = "probe.mean_rank[precision=fp32, bucket=train] >= 0"
    ran = run(capsys, "gate", untrained, "--require", mixed, "-q")
    assert ran.code in (2, 3), ran.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--trials", "3"), "--trials is for a running model. Next: add --in-model"),
        (("--depth", "0", "--data", "x"), "--depth, --data is for a running model"),
        (("--resume",), "--resume is for a running model"),
        (("--in-model", "--variants"), "--variants is about position codes"),
        (("--in-model", "--precision", "fp64"), "--precision is about position codes"),
        (("--in-model", "--head", "0"), "--head is about position codes"),
        (("--in-model", "--no-decision"), "--no-decision is about position codes"),
        (("--in-model", "--depth", "half"), "'half' is not a depth"),
        (("--in-model", "--depth", "1.5"), "depth is 1.5"),
        (("--in-model", "--length", "28"), "need at least 29"),
        (("--in-model", "--data", "missing.txt"), "missing.txt cannot be read"),
        (("--in-model", "--key-length", "1", "--length", "4096"), "keys of length 1 keep"),
    ],
)
def test_bad_input_is_one_line(
    capsys: Any, tmp_path: Path, monkeypatch: Any, untrained: Path, words: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "probe", untrained, *words)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_a_partial_result_is_taken_up(
    capsys: Any, tmp_path: Path, monkeypatch: Any, retrieving: Path
) -> None:
    from pjdiag.diagnostics import in_model

    monkeypatch.chdir(tmp_path)
    words = ("--batch", "2", "-o", "r.json", "-q")
    whole = ask(capsys, retrieving, *words)
    expected = json.loads(Path("r.json").read_text())
    done = 0
    measure = in_model.Questions.of

    def stopping(self: Any, part: Any) -> Any:
        nonlocal done
        done += 1
        if done == 4:
            raise KeyboardInterrupt
        return measure(self, part)

    monkeypatch.setattr(in_model.Questions, "of", stopping)
    assert ask(capsys, retrieving, *words).code == 130
    assert Path("r.partial.json").exists()
    assert ask(capsys, retrieving, *words, "--resume").code == whole.code == 0
    assert done == 4 + 16 - 3  # the parts that were finished are not measured again
    assert json.loads(Path("r.json").read_text())["rows"] == expected["rows"]
    assert not Path("r.partial.json").exists()
