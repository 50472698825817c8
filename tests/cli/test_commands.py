"""Commands as a person types them."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import pytest

import pjdiag
from pjdiag.samples import sample
from tests.cli.running import run
from tests.diagnostics.kernels import DATA
from tests.native import full_native

DIAGNOSTICS = ["inspect", "mass", "energy", "loo", "probe"]


@pytest.mark.parametrize("command", DIAGNOSTICS)
def test_a_sentence_a_table_and_the_next_command(capsys, tmp_path, command):
    path = full_native(tmp_path / "m.safetensors")
    ran = run(capsys, command, path)
    assert ran.code == 0
    first, *rest = ran.out.splitlines()
    assert len(first) > 20
    assert len(rest) < 45
    assert "Next: pjdiag" in ran.out + ran.err


@pytest.mark.parametrize("command", DIAGNOSTICS)
def test_json_is_canonical_and_comes_back(capsys, tmp_path, command):
    path = full_native(tmp_path / "m.safetensors")
    ran = run(capsys, command, path, "-o", "json")
    assert ran.code == 0
    loaded = json.loads(ran.out)
    assert loaded["diagnostic"] == command
    assert loaded["checkpoint"]["digest"].startswith("sha256:")
    assert {row["scope"] for row in loaded["rows"]} == (
        {"layer"} if command == "inspect" else {"model", "layer", "head"}
    )
    assert pjdiag.Result.from_json(ran.out).to_json() == ran.out


def test_csv_and_markdown_and_files(capsys, tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    ran = run(capsys, "mass", path, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert {row["sector"] for row in rows} == {"fj", "affine", "lc", "fj+lc"}
    targets = [tmp_path / name for name in ("a.json", "b.csv", "c.md")]
    ran = run(capsys, "mass", path, *(part for t in targets for part in ("-o", t)))
    assert ran.code == 0
    assert "Affine" in ran.out or "affine" in ran.out
    assert all(target.stat().st_size > 100 for target in targets)
    assert "|" in targets[2].read_text()


def test_loo_and_probe_work_without_a_file(capsys):
    ran = run(capsys, "loo", "--order", "2")
    assert ran.code == 0
    assert "order 2" in ran.out.splitlines()[0]
    assert "shipped sample" in ran.err
    ran = run(capsys, "probe", "--length", "32768")
    assert ran.code == 0
    assert "32,768" in ran.out


def test_quiet_is_quiet(capsys):
    ran = run(capsys, "loo", "--order", "2", "--quiet")
    assert ran.err == ""


def test_the_environment_names_a_checkpoint(capsys, tmp_path, monkeypatch):
    path = full_native(tmp_path / "named.safetensors")
    monkeypatch.setenv("PJDIAG_CHECKPOINT", str(path))
    assert "named.safetensors" in run(capsys, "mass").out


def test_settings_files(capsys, tmp_path, monkeypatch):
    full_native(tmp_path / "here.safetensors")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pjdiag]\ncheckpoint = "nowhere"\n[tool.pjdiag.loo]\norder = 1\n'
    )
    (tmp_path / "pjdiag.toml").write_text('checkpoint = "here.safetensors"\n')
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    loaded = json.loads(run(capsys, "loo", "-o", "json").out)
    assert loaded["checkpoint"]["path"].endswith("here.safetensors")
    assert {row["removed"] for row in loaded["rows"]} == {"order:1", "fj:1", "lc:1"}
    loaded = json.loads(run(capsys, "loo", "--order", "3", "-o", "json").out)
    assert {row["removed"] for row in loaded["rows"]} == {"order:3", "fj:3", "lc:3"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("allow_pickle = true", "allow_pickle"),
        ("order = 1", "order"),
        ("[mass]\nwarp = 1", "mass.warp"),
        ("= 3", "TOML"),
        ("checkpoint = [1]", "checkpoint"),
    ],
)
def test_unusable_settings(capsys, tmp_path, monkeypatch, text, says):
    (tmp_path / "pjdiag.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "mass")
    assert ran.code == 2
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert run(capsys, "--help").code == 0


def test_strings_of_lengths_in_settings(capsys, tmp_path, monkeypatch):
    (tmp_path / "pjdiag.toml").write_text("[energy]\nlength = [64, 256]\n")
    monkeypatch.chdir(tmp_path)
    loaded = json.loads(run(capsys, "energy", sample(), "-o", "json").out)
    assert {row["window"] for row in loaded["rows"]} == {64, 256}


def test_layer_and_head(capsys, tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    loaded = json.loads(run(capsys, "mass", path, "--layer", "1", "-o", "json").out)
    assert {row["layer"] for row in loaded["rows"]} == {1}
    loaded = json.loads(run(capsys, "mass", path, "--layer", "1", "--head", "0", "-o", "json").out)
    assert {(row["layer"], row["head"]) for row in loaded["rows"]} == {(1, 0)}
    loaded = json.loads(run(capsys, "mass", path, "--sector", "lc", "-o", "json").out)
    assert {row["sector"] for row in loaded["rows"]} == {"lc"}


def test_research_file_needs_the_flag(capsys):
    assert run(capsys, "mass", DATA / "full.pt").code == 2
    ran = run(capsys, "mass", DATA / "full.pt", "--allow-pickle")
    assert ran.code == 0
    assert "86%" in ran.out


def test_min_coverage_and_strict_pass_where_everything_is_read(capsys, tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    assert run(capsys, "mass", path, "--strict", "--min-coverage", "1.0").code == 0


def test_doctor_and_plugins(capsys):
    ran = run(capsys, "doctor")
    assert ran.code == 0
    assert "torch" in ran.out
    names = [entry["item"] for entry in json.loads(run(capsys, "doctor", "--json").out)]
    assert "shipped sample" in names
    assert {"gguf", "accelerate", "plotly", "pandas", "pyarrow", "tokenizers"} <= set(names)
    assert {"safetensors", "transformers", "torch"} <= set(names)
    assert "pjrope" in run(capsys, "plugins").out
    entries = {entry["name"]: entry for entry in json.loads(run(capsys, "plugins", "--json").out)}
    assert entries["pjrope"]["usable"]
    assert entries["llama"]["model_types"] == ["llama"]


def test_maps_are_folded_until_all_are_asked_for(capsys):
    folded, every = run(capsys, "plugins").out, run(capsys, "plugins", "--all").out
    assert "Architecture maps" in folded
    assert len(folded.splitlines()) < 60
    assert all(len(line) <= 120 for line in folded.splitlines())
    assert "\nllama " in every
    assert "\nllama " not in folded
    assert " llama," in folded


def test_version(capsys):
    assert run(capsys, "--version").out.startswith("pjdiag 0.")


def pjdiag_process(*arguments, **settings):
    return subprocess.run(
        [sys.executable, "-m", "pjdiag", *map(str, arguments)],
        capture_output=True,
        check=False,
        **settings,
    )


def test_an_unexpected_error_is_one_line_unless_debugging(capsys, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("disc on fire")

    monkeypatch.setattr("pjdiag.api.mass", fail)
    ran = run(capsys, "mass")
    assert ran.code == 2
    assert "unexpected RuntimeError: disc on fire" in ran.err
    assert "PJDIAG_DEBUG=1" in ran.err
    monkeypatch.setenv("PJDIAG_DEBUG", "1")
    with pytest.raises(RuntimeError):
        run(capsys, "mass")


def test_a_closed_pipe_is_no_error():
    shell = f"{sys.executable} -m pjdiag mass -o json | head -1"
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"], capture_output=True, check=False
    )
    assert ran.stderr.count(b"\n") <= 1
    assert b"Traceback" not in ran.stderr
    assert ran.returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_that_cannot_encode_boxes(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    ran = pjdiag_process("mass", env=environment)
    assert ran.returncode == 0
    assert ran.stdout.decode(encoding)
    help_text = pjdiag_process("mass", "--help", env=environment)
    assert help_text.returncode == 0
