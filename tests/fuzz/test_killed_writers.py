"""Whatever kills a writer, the path holds what was there before or what is there now, whole."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.isolated import ROOT


def killed(place, kills: int, seed: int) -> dict[str, dict[str, int]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.writers", str(place), str(kills), str(seed)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    assert sum(sum(counts.values()) for counts in found.values()) == kills
    return found


def test_a_killed_writer_leaves_one_whole_file(tmp_path):
    found = killed(tmp_path, 14, 1)
    assert len(found) == 7
    assert all("broken" not in counts for counts in found.values()), found
    files = [counts for name, counts in found.items() if name != "write_folder"]
    assert all(set(counts) <= {"the one", "the other"} for counts in files), found


@pytest.mark.nightly
def test_two_hundred_killed_writers(tmp_path):
    found = killed(tmp_path, 210, 2)
    assert all("broken" not in counts for counts in found.values()), found
    both = [name for name, counts in found.items() if {"the one", "the other"} <= set(counts)]
    assert len(both) > 3, found
