"""Experiments one after another, and again."""

from __future__ import annotations

import json

import pytest

from pjdiag.errors import DataError
from pjdiag.lab.experiments.base import Setting
from pjdiag.lab.experiments.running import reproduce
from pjdiag.results import Result


def setting(folder, quick=True):
    return Setting(folder, data=None, quick=quick, workers=1, report=lambda line: None)


def test_a_second_run_gives_the_same_and_measures_nothing(tmp_path):
    first = reproduce(["fixed-recovery"], setting(tmp_path))
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("parts/*/*.json")}
    assert len(kept) == 8
    second = reproduce(["fixed-recovery"], setting(tmp_path))
    assert second.to_dict() == first.to_dict()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_quick_and_full_runs_never_meet(tmp_path):
    reproduce(["fixed-recovery"], setting(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["quick"]
    assert (
        reproduce(["fixed-recovery"], setting(tmp_path, quick=False)).provenance["quick"] is False
    )
    assert {"parts", "quick", "results"} == {path.name for path in tmp_path.iterdir()}


def test_each_experiment_leaves_its_own_result(tmp_path):
    reproduce(["fixed-recovery"], setting(tmp_path))
    left = Result.read(tmp_path / "quick" / "results" / "fixed-recovery.json")
    assert left.diagnostic == "reproduce"
    assert {row["experiment"] for row in left.rows} == {"fixed-recovery"}


def test_one_that_cannot_run_does_not_stop_the_others(tmp_path):
    result = reproduce(["music", "fixed-recovery"], setting(tmp_path))
    assert [each["name"] for each in result.provenance["experiments"]] == ["fixed-recovery"]
    (warning,) = result.warnings
    assert warning.startswith("music did not run: jsb_chorales")
    with pytest.raises(DataError):
        reproduce(["music"], setting(tmp_path))


def test_a_part_that_was_lost_is_measured_again(tmp_path):
    first = reproduce(["fixed-recovery"], setting(tmp_path))
    lost = tmp_path / "quick" / "parts" / "fixed-recovery" / "phase.json"
    lost.unlink()
    again = reproduce(["fixed-recovery"], setting(tmp_path))
    assert again.rows == first.rows
    assert json.loads(lost.read_text())["value"]["phase"]["r2_inside"] == pytest.approx(1)
