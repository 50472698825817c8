"""Real signals to a real process: what it leaves, and the command that goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from pjdiag.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from pjdiag.samples import held_out_text

COMMAND = (sys.executable, "-m", "pjdiag", "nll", "--length", "512,2048", "--attention")
PARTS = ("--windows", "60", "--batch", "1")
PATIENCE = 60.0
REPORT = (sys.executable, "-m", "pjdiag", "report", "--length", "64,128", "-o", "found.html")
KERNEL = (sys.executable, "-m", "pjdiag", "kernel", "--length", "1024", "-o", "found.json")


def kill(
    folder: Path,
    number: signal.Signals,
    *more: str,
    times: int = 1,
    command: tuple[str, ...] = (*COMMAND, *PARTS),
) -> subprocess.CompletedProcess[str]:
    """The command, with a signal as soon as it has said that it will take a while."""
    process = subprocess.Popen(
        [*command, *more],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # whoever runs the tests in the background has SIGINT ignored, and so would this
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    said = ""
    while "This will take" not in said and process.poll() is None:
        said += process.stderr.readline()
    time.sleep(0.3)
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.02 if times > 1 else 0.0)
    out, error = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, said + error)


def finish(
    folder: Path, *more: str, command: tuple[str, ...] = (*COMMAND, *PARTS)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *more],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def left_behind(folder: Path, ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.stdout == ""
    assert "parts are finished and kept in found.partial.json" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path.name for path in folder.iterdir()] == ["found.partial.json"]
    partial = json.loads((folder / "found.partial.json").read_text())
    assert partial["warnings"][0].startswith("interrupted: ")


def test_a_terminated_run_keeps_what_it_has(tmp_path: Path) -> None:
    ended = kill(tmp_path, signal.SIGTERM, "--windows", "200", "-o", "found.json")
    assert ended.returncode == EXIT_TERMINATED, ended.stderr
    left_behind(tmp_path, ended)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    ended = kill(tmp_path, signal.SIGINT, "-o", "found.json")
    assert ended.returncode == EXIT_INTERRUPTED, ended.stderr
    assert ended.stderr.endswith("Next: the same command with --resume goes on from there\n")
    left_behind(tmp_path, ended)
    again = finish(tmp_path, "-o", "found.json", "--resume")
    assert again.returncode == 0, again.stderr
    (where,) = re.findall(r"\d+ of \d+ parts", ended.stderr)
    assert f"pjdiag: going on from {where}\n" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    found = json.loads((tmp_path / "found.json").read_text())
    fresh = json.loads(finish(tmp_path, "-o", "json").stdout)
    assert found["rows"] == fresh["rows"]
    assert "partial" not in found["provenance"]


def test_what_is_stopped_twice_is_kept_all_the_same(tmp_path: Path) -> None:
    """Whatever comes after the first signal does not disturb what is written for it."""
    ended = kill(tmp_path, signal.SIGTERM, "--windows", "200", "-o", "found.json", times=20)
    # a shell sees 143 either way: the last signals may come when the run has ended
    assert ended.returncode in (EXIT_TERMINATED, -signal.SIGTERM), ended.stderr
    left_behind(tmp_path, ended)


def test_a_run_stopped_in_its_first_part_keeps_nothing(tmp_path: Path) -> None:
    one_part = ("--length", "4096", "--windows", "60", "--batch", "60")
    ended = kill(tmp_path, signal.SIGTERM, *one_part)
    assert ended.returncode == EXIT_TERMINATED, ended.stderr
    assert "stopped in the first of 1 parts, and nothing is kept" in ended.stderr
    assert not list(tmp_path.iterdir())


def test_without_a_file_to_go_on_from_the_run_starts(tmp_path: Path) -> None:
    ran = finish(tmp_path, "--resume", "--length", "128", "--windows", "2")
    assert ran.returncode == 0, ran.stderr
    assert "no pjdiag-nll.partial.json to go on from: starting" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_partial_result(tmp_path: Path) -> None:
    (tmp_path / "pjdiag-nll.partial.json").write_text("{}")
    ran = finish(tmp_path, "--resume")
    assert ran.returncode == 2
    assert "pjdiag-nll.partial.json" in ran.stderr
    assert ran.stderr.count("\n") <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["pjdiag-nll.partial.json"]


def test_a_stopped_report_leaves_no_page_and_goes_on(tmp_path: Path) -> None:
    """Measured twice and stopped twice; what it comes to in the end is a test of the survey."""
    command = (*REPORT, "--data", str(held_out_text()))
    ended = kill(tmp_path, signal.SIGTERM, command=command)
    assert ended.returncode == EXIT_TERMINATED, ended.stderr
    assert "7 of 10 parts are finished and kept in found.partial.json" in ended.stderr
    assert "Next: the same command with --resume goes on from there" in ended.stderr
    assert "Traceback" not in ended.stderr
    again = kill(tmp_path, signal.SIGINT, "--resume", command=command)
    assert again.returncode == EXIT_INTERRUPTED, again.stderr
    assert "pjdiag: going on from 7 of 10 parts\n" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["found.partial.json"]
    other = finish(tmp_path, "--resume", "--seed", "1", command=command)
    assert other.returncode == 2
    assert "the partial result is of another run: seed differ" in other.stderr


def test_a_stopped_kernel_goes_on(tmp_path: Path) -> None:
    """The estimate comes while the first of the three measurements is being made."""
    ended = kill(tmp_path, signal.SIGTERM, "--windows", "30", command=KERNEL)
    assert ended.returncode == EXIT_TERMINATED, ended.stderr
    assert "Traceback" not in ended.stderr
    left = [path.name for path in tmp_path.iterdir()]
    if left:  # the first measurement was through
        left_behind(tmp_path, ended)
    else:
        assert "Next: fewer --windows make the parts small" in ended.stderr
    again = finish(tmp_path, "--windows", "30", "--resume", command=KERNEL)
    assert again.returncode == 0, again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    found = json.loads((tmp_path / "found.json").read_text())
    assert {row["control"] for row in found["rows"]} == {None, "shuffled", "fresh"}
