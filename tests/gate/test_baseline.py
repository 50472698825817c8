"""Baselines: written, read back, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.errors import PolicyError, UsageError
from pjdiag.gate.baseline import Entry, Tolerance, parse_tolerance, read_baseline, to_json
from tests.render.results import gate_result


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    result = gate_result()
    path = tmp_path / "b.json"
    path.write_text(to_json(result), encoding="utf-8")
    baseline = read_baseline(path)
    expected = {
        (row["rule"], row["metric"], row["layer"], row["head"]): Entry(row["value"], row["met"])
        for row in result.rows
        if row["value"] is not None
    }
    assert dict(baseline.entries) == expected
    assert len(expected) == 6
    assert baseline.source == str(path)


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [
        ("0", Tolerance()),
        ("0.02", Tolerance(absolute=0.02)),
        (" 1e-3 ", Tolerance(absolute=1e-3)),
        ("5%", Tolerance(relative=0.05)),
        ("0.5 %", Tolerance(relative=0.005)),
    ],
)
def test_tolerances(text: str, tolerance: Tolerance) -> None:
    assert parse_tolerance(text) == tolerance
    assert parse_tolerance(str(tolerance)) == tolerance


@pytest.mark.parametrize("text", ["", "%", "x", "-1", "nan", "inf", "1e999", "5%%", "5 percent"])
def test_what_is_no_tolerance(text: str) -> None:
    with pytest.raises(UsageError, match="tolerance"):
        parse_tolerance(text)


NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, st.floats(0, 10))
def test_both_directions_are_allowed_alike(old: float, slack: float) -> None:
    absolute, relative = Tolerance(absolute=slack), Tolerance(relative=slack)
    for tolerance in (absolute, relative):
        assert tolerance.allows(old, old)
        away = tolerance.slack(old)
        if away > abs(old) * 1e-6 + 1e-9:
            for sign in (-1, 1):
                assert tolerance.allows(old, old + sign * away)
                assert not tolerance.allows(old, old + sign * 1.01 * away)


CHECK = {"rule": "a", "metric": "m", "layer": None, "head": None, "value": 0.5, "met": True}


def document(**changes: Any) -> dict[str, Any]:
    return {"kind": "pjdiag gate baseline", "version": 1, "checks": [CHECK], **changes}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "[" * 100_000,
        json.dumps(document(version=2)),
        json.dumps(document(kind="something else")),
        json.dumps(document(checks=3)),
        json.dumps(document(checks=[3])),
        json.dumps(document(checks=[{}])),
        json.dumps(document(checks=[{**CHECK, "value": None}])),
        json.dumps(document(checks=[{**CHECK, "value": "x"}])),
        json.dumps(document(checks=[{**CHECK, "value": float("nan")}])),
        json.dumps(document(checks=[{**CHECK, "value": 10**400}])),
        json.dumps(document(checks=[{**CHECK, "met": 1}])),
        json.dumps(document(checks=[{**CHECK, "layer": "0"}])),
        json.dumps({"kind": "pjdiag gate baseline", "version": 1}),
    ],
    ids=range(17),
)
def test_what_is_no_baseline(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=r"b\.json") as caught:
        read_baseline(path)
    assert "--write-baseline" in caught.value.hint
    path.write_text(json.dumps(document()), encoding="utf-8")
    assert read_baseline(path).entries == {("a", "m", None, None): Entry(0.5, True)}


def test_a_baseline_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        read_baseline(tmp_path / "nowhere.json")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="cannot be read"):
        read_baseline(tmp_path / "b")
