"""`pjdiag spectrum` as a person types it."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import run
from tests.diagnostics.kernels import DATA
from tests.diagnostics.runnable import runnable
from tests.native import full_native, write_native


def test_a_sentence_two_tables_and_the_next_command(capsys, tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope")
    ran = run(capsys, "spectrum", path)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "of the RoPE mass turns in less than 16 tokens" in lines[0]
    assert "Rotary mass by wavelength" in lines
    assert "Share of the rotary mass by band" in lines
    assert lines[-1] == f"Next: pjdiag kernel {path} --data FILE"


def test_json_carries_every_channel_of_every_head(capsys):
    ran = run(capsys, "spectrum", DATA / "pj_rotary.pt", "--allow-pickle", "-o", "json")
    loaded = json.loads(ran.out)
    assert {row["scope"] for row in loaded["rows"]} == {"model", "layer", "head"}
    heads = [row for row in loaded["rows"] if row["scope"] == "head" and row["channel"] is not None]
    assert {row["jet_order"] for row in heads} == {0, 1}
    assert len(heads) == loaded["provenance"]["heads"] * 6 * 2


def test_layer_head_and_all(capsys, tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope")
    ran = run(capsys, "spectrum", path, "--layer", "0", "--head", "1", "--all")
    assert ran.code == 0
    assert "Layer 0 head 1: " in ran.out
    assert ran.out.count("layer 0 head 1") == 2  # its bands, and its first channel
    assert "Every rotary channel" in ran.out


def test_length_moves_the_wavelengths(capsys, tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope_ntk")
    turns = []
    for length in (128, 1024):
        loaded = json.loads(run(capsys, "spectrum", path, "--length", length, "-o", "json").out)
        assert loaded["provenance"]["eval_length"] == length
        turns.append(next(row["wavelength"] for row in loaded["rows"] if row["channel"] == 3))
    assert turns[1] > 2 * turns[0]


def test_the_train_length_moves_the_band(capsys, tmp_path):
    path = write_native(tmp_path / "m.safetensors", method="rope")
    found = {}
    for length in (128, 10_000):
        ran = run(capsys, "spectrum", path, "--train-length", length, "-o", "json")
        rows = json.loads(ran.out)["rows"]
        found[length] = next(
            row["share"] for row in rows if row["band"] == "beyond" and row["channel"] is None
        )
    assert found[128] > 0.3
    assert found[10_000] == 0.0


@pytest.mark.parametrize("make", ["bias", "pope"])
def test_nothing_to_show_is_inconclusive_and_says_why(capsys, tmp_path, make):
    path = tmp_path / "m.safetensors"
    path = full_native(path) if make == "bias" else write_native(path, method="pope")
    ran = run(capsys, "spectrum", path)
    assert ran.code == 3
    reason = {"bias": "which has no frequencies", "pope": "its mass needs data"}[make]
    assert reason in " ".join(ran.out.split())


def test_data_adds_the_norms_of_queries_and_keys(capsys, tmp_path):
    path = runnable(tmp_path / "m.safetensors", "rope")
    text = tmp_path / "text.txt"
    text.write_bytes(b"to be or not to be, " * 20)
    ran = run(capsys, "spectrum", path, "--data", text, "--length", "64", "--windows", "1")
    assert ran.code == 0
    assert "; on the data " in " ".join(ran.out.split())
    assert "|q|" in ran.out
    by_head = run(capsys, "spectrum", path, "--data", text, "--by", "head").out
    loaded = json.loads(run(capsys, "spectrum", path, "--data", text, "-o", "json").out)
    assert "flat" in by_head
    assert all(0 < row["flatness"] <= 1 for row in loaded["rows"])
    assert loaded["provenance"]["unit"] == "byte"
    assert all(row["data_mass"] > 0 for row in loaded["rows"])


def test_a_text_for_a_model_without_a_tokenizer_is_one_line(capsys, tmp_path):
    ran = run(
        capsys, "spectrum", DATA / "rope_alibi.pt", "--allow-pickle", "--data", DATA / "full.pt"
    )
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "a jordan checkpoint has no tokenizer to read" in ran.err


def test_the_mass_of_pope_is_said_to_be_from_the_data_and_once(capsys, tmp_path):
    path = runnable(tmp_path / "m.safetensors", "pope")
    text = tmp_path / "text.txt"
    text.write_bytes(b"to be or not to be, " * 20)
    for more in ((), ("--all",)):
        ran = run(capsys, "spectrum", path, "--data", text, *more)
        out = " ".join(ran.out.split())
        assert ran.code == 0
        assert "; measured on the data" in out
        assert "; on the data " not in out
        assert "mass in logits, on the data" in out
        assert "from the weights" not in out
        (headers,) = [line for line in ran.out.splitlines() if "|q|" in line][:1]
        assert "share" not in headers
