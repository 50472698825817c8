"""Parts of an experiment: measured once, of one identity, whatever happens in between."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest

from pjdiag.lab.experiments.parts import Parts

IDENTITY = {"experiment": "x", "quick": False}


def never() -> float:
    raise AssertionError("a kept part was measured again")


def test_a_part_is_measured_once_and_survives_exactly(tmp_path):
    value = {"a": [0.1 + 0.2, 1e-300], "b": None}
    assert Parts(tmp_path, IDENTITY).part("name", lambda: value) == value
    assert Parts(tmp_path, IDENTITY).part("name", never) == value


@pytest.mark.parametrize("name", ["a/b", "offset:+3", "../out", "sector:affine, full", "."])
def test_any_name_is_a_file_in_the_folder(tmp_path, name):
    folder = tmp_path / "parts"
    Parts(folder, IDENTITY).part(name, lambda: 1)
    Parts(folder, IDENTITY).part(f"{name}x", lambda: 2)
    assert Parts(folder, IDENTITY).part(name, never) == 1
    assert len(list(folder.iterdir())) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_another_identity_is_another_part(tmp_path):
    Parts(tmp_path, IDENTITY).part("name", lambda: 1, {"steps": 5})
    assert Parts(tmp_path, {**IDENTITY, "quick": True}).part("name", lambda: 2, {"steps": 5}) == 2
    assert Parts(tmp_path, IDENTITY).part("name", lambda: 3, {"steps": 5}) == 3
    assert Parts(tmp_path, IDENTITY).part("name", lambda: 4, {"steps": 6}) == 4
    assert Parts(tmp_path, IDENTITY).part("name", never, {"steps": 6}) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"identity": {}}', "\udcff", "null"])
def test_a_damaged_file_is_measured_again(tmp_path, damage):
    parts = Parts(tmp_path, IDENTITY)
    parts.part("name", lambda: 1)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert Parts(tmp_path, IDENTITY).part("name", lambda: 2) == 2
    assert Parts(tmp_path, IDENTITY).part("name", never) == 2


def test_an_interrupted_part_leaves_the_others_and_no_file_of_its_own(tmp_path):
    parts = Parts(tmp_path, IDENTITY)
    parts.part("first", lambda: 1)

    def stopped() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parts.part("second", stopped)
    assert [path.name for path in tmp_path.iterdir()] == ["first.json"]
    again = Parts(tmp_path, IDENTITY)
    assert [again.part("first", never), again.part("second", lambda: 2)] == [1, 2]


def test_seconds_are_those_of_all_parts_whenever_they_were_measured(tmp_path):
    first = Parts(tmp_path, IDENTITY)
    first.part("work", lambda: sum(math.sqrt(i) for i in range(400_000)))
    again = Parts(tmp_path, IDENTITY)
    again.part("work", never)
    (file,) = tmp_path.iterdir()
    assert first.seconds == again.seconds == json.loads(file.read_text())["seconds"] > 0


def test_jobs_run_in_workers_and_only_those_that_are_missing(tmp_path):
    Parts(tmp_path, IDENTITY).part("four", lambda: 20.0)
    told: list[str] = []
    jobs = {name: partial(math.sqrt, value) for name, value in (("four", 4), ("nine", 9), ("1", 1))}
    found = Parts(tmp_path, IDENTITY).each(jobs, 2, done=told.append)
    assert found == {"four": 20.0, "nine": 3.0, "1": 1.0}
    assert list(found) == list(jobs)
    assert sorted(told) == ["1", "nine"]
    assert Parts(tmp_path, IDENTITY).each(dict.fromkeys(jobs, never), 2) == found


def test_a_job_that_fails_in_a_worker_costs_itself_only(tmp_path):
    jobs = {"bad": partial(math.sqrt, -1), "good": partial(math.sqrt, 4)}
    with pytest.raises(ValueError, match=r"nonnegative|math domain"):
        Parts(tmp_path, IDENTITY).each(jobs, 1)
    with pytest.raises(ValueError, match=r"nonnegative|math domain"):
        Parts(tmp_path, IDENTITY).each(jobs, 2)
    assert not (tmp_path / "bad.json").exists()
