"""pjdiag reproduce as a person types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pjdiag.results import Result
from tests.cli.running import run


def test_an_experiment_opens_with_its_claims(capsys, tmp_path):
    ran = run(capsys, "reproduce", "fixed-recovery", "--folder", tmp_path)
    assert ran.code == 0
    assert ran.out.startswith("2 of 2 claims come out\n")
    assert "what the papers say" in ran.out
    assert "fixed-recovery: done" in ran.err
    assert (tmp_path / "results" / "fixed-recovery.json").is_file()


def test_every_format_is_written(capsys, tmp_path):
    outputs = [
        part
        for suffix in ("json", "csv", "md", "html", "parquet")
        for part in ("-o", tmp_path / f"r.{suffix}")
    ]
    ran = run(
        capsys, "reproduce", "fixed-recovery", "--folder", tmp_path, "--quick", "-q", *outputs
    )
    assert (ran.code, ran.err) == (0, "")
    result = Result.read(tmp_path / "r.json")
    assert result.provenance["quick"] is True
    assert result.provenance["command"].startswith("pjdiag reproduce fixed-recovery")
    assert len((tmp_path / "r.csv").read_text().splitlines()) == len(result.rows) + 1
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Quick run, no evidence" in page
    assert "fixed-recovery-r2_inside" in page
    again = run(capsys, "convert", tmp_path / "r.json")
    assert again.out == ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["opera"], "no experiment 'opera'. Next: pass one of fixed-recovery, "),
        (["adaptive_recovery"], "'adaptive_recovery'; near it: adaptive-recovery. Next: pass"),
        ([], "Missing argument"),
        (["music", "--data", "nowhere"], "jsb_chorales_16th.json"),
        (["fixed-recovery", "--workers", "0"], "--workers"),
        (["fixed-recovery", "-o", "x.docx"], "unknown output"),
        (["fixed-recovery", "-o", "sarif"], "format for checks"),
    ],
)
def test_bad_usage_is_one_line(capsys, tmp_path, arguments, says):
    ran = run(capsys, "reproduce", *arguments, *(["--folder", tmp_path] if arguments else []), "-q")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err


def test_a_folder_that_is_a_file_is_an_error(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    ran = run(capsys, "reproduce", "fixed-recovery", "--folder", tmp_path / "file", "-q")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "cannot be written" in ran.err


def test_a_run_that_was_stopped_goes_on(tmp_path):
    """Stopped by a signal in the midst of it, workers and all."""
    command = [sys.executable, "-m", "pjdiag", "reproduce", "adaptive-recovery", "--quick"]
    command += ["--folder", str(tmp_path), "--workers", "1"]
    started = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    parts = tmp_path / "quick" / "parts" / "adaptive-recovery"
    deadline = time.monotonic() + 120
    while not list(parts.glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert said.endswith("Stopped. The same command goes on from here.\n")
    kept = {path.name: json.loads(path.read_text())["value"] for path in parts.glob("*.json")}
    assert 1 <= len(kept) < 8
    assert all(set(value) == {"learned", "read"} for value in kept.values())
