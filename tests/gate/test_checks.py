"""The truth table of a gate: rule, figure, suppression and baseline to status and exit code."""

from __future__ import annotations

import hashlib
import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.errors import CheckpointError, PolicyError
from pjdiag.gate.baseline import Baseline, Tolerance, read_baseline, to_json
from pjdiag.gate.checks import Checked, Evaluation
from pjdiag.gate.policy_file import parse_policy
from pjdiag.gate.verdict import exit_code, failed, fails, problems
from pjdiag.results import Result, Row, Skipped
from tests.render.results import BAD_HEAD, FULL, check_row, gate_result, mass_result, scope

TODAY = date(2026, 6, 1)
RULE = '[[rule]]\nid = "floor"\nmetric = "mass.sector_share[affine]"\n'
"""Of ``mass_result`` this share is 0.81 at every place."""


def evaluated(text: str, result: Result, **changes: Any) -> Checked:
    policy = parse_policy(f"version = 1\n{text}", "p.toml", Path())
    evaluation = Evaluation(policy, changes.pop("today", TODAY), **changes)
    return evaluation.checked({result.diagnostic: result})


def judged(text: str, result: Result | None = None, **changes: Any) -> tuple[str, int]:
    """Status of the first check and the exit code of all."""
    checked = evaluated(text, result or mass_result(), **changes)
    return checked.rows[0]["status"], code(checked)


def code(checked: Checked, **changes: Any) -> int:
    return exit_code(Result("gate", {}, {}, checked.rows), **changes)


ABSENT = mass_result({**FULL, "affine": None})


@pytest.mark.parametrize(
    ("bounds", "status", "expected"),
    [
        ("min = 0.5", "passed", 0),
        ("max = 0.9", "passed", 0),
        ("min = 0.8\nmax = 0.9", "passed", 0),
        ("within = [0.8, 0.02]", "passed", 0),
        ("min = 0.9", "violated", 1),
        ("max = 0.5", "violated", 1),
        ("within = [0.5, 0.1]", "violated", 1),
        ('min = 0.9\nseverity = "warning"', "violated", 0),
        ('min = 0.5\nscope = "every layer"', "passed", 0),
        ('min = 0.9\nscope = "every head"', "violated", 1),
        ('min = 0.9\nscope = "fraction:0.5"', "violated", 1),
        ('min = 0.5\nscope = "fraction:1"', "passed", 0),
    ],
)
def test_bounds(bounds: str, status: str, expected: int) -> None:
    assert judged(f"{RULE}{bounds}\n") == (status, expected)


@pytest.mark.parametrize(
    "metric",
    [
        "mass.sector_share[affine, layer=9]",
        "mass.order_share[fj+lc]",
        "mass.sector_share[affine, family=multiplicative]",
    ],
)
@pytest.mark.parametrize("severity", ["error", "warning"])
def test_a_missing_metric_is_inconclusive(metric: str, severity: str) -> None:
    rule = f'[[rule]]\nid = "a"\nmetric = "{metric}"\nmin = 0\nseverity = "{severity}"\n'
    assert judged(rule) == ("inconclusive", 3)


def test_an_absent_sector_is_missing_not_small() -> None:
    assert judged(f"{RULE}max = 0.5\n", ABSENT) == ("inconclusive", 3)
    gate = '[[rule]]\nid = "a"\nmetric = "mass.sector_gate[affine]"\nmax = 0\n'
    assert judged(gate, ABSENT) == ("passed", 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bound", ["min = 0", "max = 0", "within = [0, 1]"])
def test_what_is_not_finite_is_inconclusive(value: float, bound: str) -> None:
    rows = [{**row, "sector_share": value} for row in mass_result().rows]
    result = Result("mass", {}, {}, tuple(rows))
    assert judged(f"{RULE}{bound}\n", result) == ("inconclusive", 3)


def test_a_violation_goes_before_what_is_inconclusive() -> None:
    missing = '[[rule]]\nid = "b"\nmetric = "mass.sector_share[affine, layer=9]"\nmin = 0\n'
    checked = evaluated(f"{RULE}min = 0.9\n{missing}", mass_result())
    assert [row["status"] for row in checked.rows] == ["violated", "inconclusive"]
    assert code(checked) == 1
    assert code(checked, exit_zero=True) == 3
    only = evaluated(f"{RULE}min = 0.9\n", mass_result())
    assert (code(only), code(only, exit_zero=True)) == (1, 0)


def suppressed(expires: str, place: str = "") -> str:
    return (
        f'{RULE}min = 0.9\nscope = "every layer"\n[[suppress]]\nrule = "floor"\n'
        f'reason = "known"\nexpires = {expires}\n{place}\n'
    )


@pytest.mark.parametrize(
    ("expires", "place", "statuses", "expected"),
    [
        ("2026-06-02", "", ["suppressed", "suppressed"], 0),
        ("2026-06-01", "", ["violated", "violated"], 1),
        ("2020-01-01", "", ["violated", "violated"], 1),
        ("2099-01-01", "layer = 1", ["violated", "suppressed"], 1),
        ("2099-01-01", "layer = 7", ["violated", "violated"], 1),
        ("2099-01-01", "head = 0", ["violated", "violated"], 1),
    ],
)
def test_suppressions(expires: str, place: str, statuses: list[str], expected: int) -> None:
    checked = evaluated(suppressed(expires, place), mass_result())
    assert [row["status"] for row in checked.rows] == statuses
    assert code(checked) == expected
    if "suppressed" in statuses:
        reasons = [r["reason"] for r in checked.rows if r["status"] == "suppressed"]
        assert reasons[0] == f"known (until {expires})"
        assert checked.warnings == ()
    elif expires <= "2026-06-01":
        assert f"expired on {expires}" in checked.warnings[0]
        assert checked.warnings[0].startswith("line 7: ")
    else:
        assert "covers no violation" in checked.warnings[0]


def test_a_suppression_hides_no_missing_figure() -> None:
    rule = suppressed("2099-01-01").replace("[affine]", "[affine, layer=9]")
    assert judged(rule) == ("inconclusive", 3)


def shares(*values: float | None) -> Result:
    """Heads of one layer with these shares of the affine sector."""
    rows: list[Row] = [
        {**scope(0, head), "sector": "affine", "sector_share": value}
        for head, value in enumerate(values)
    ]
    return Result("mass", {}, {}, tuple(rows))


@pytest.mark.parametrize(
    ("values", "status", "value"),
    [
        ((0.6, 0.6, 0.6, 0.4), "passed", 0.75),
        ((0.6, 0.6, 0.4, 0.4), "violated", 0.5),
        ((0.6, 0.6, 0.6, None), "passed", 0.75),
        ((0.6, 0.4, 0.4, None), "violated", 0.25),
        ((0.6, 0.6, 0.4, None), "inconclusive", None),
        ((None, None), "inconclusive", None),
        ((), "inconclusive", None),
    ],
)
def test_a_fraction_of_the_heads(
    values: tuple[float | None, ...], status: str, value: float | None
) -> None:
    (row,) = evaluated(f'{RULE}min = 0.5\nscope = "fraction:0.75"\n', shares(*values)).rows
    assert (row["status"], row["value"], row["layer"]) == (status, value, None)
    assert row["reason"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 30))
def test_a_fraction_is_exact(values: list[float], needed: int) -> None:
    needed = min(needed, len(values))
    fraction = needed / len(values)
    rule = f'{RULE}min = 0.5\nscope = "fraction:{fraction!r}"\n'
    met = sum(value >= 0.5 for value in values)
    assert judged(rule, shares(*values))[0] == ("passed" if met >= needed else "violated")


def test_an_ambiguous_rule_is_an_error_with_its_line() -> None:
    with pytest.raises(PolicyError, match=r"^p\.toml:2:1: .* matches 4 rows: head 0, 1, 2, 3"):
        evaluated(f"{RULE}min = 0\n", shares(0.1, 0.2, 0.3, 0.4))


def baseline_of(tmp_path: Path, text: str, result: Result) -> Baseline:
    checked = evaluated(text, result)
    (tmp_path / "b.json").write_text(to_json(Result("gate", {}, {}, checked.rows)))
    return read_baseline(tmp_path / "b.json")


WATCH = f"{RULE}min = 0.5\n"


@pytest.mark.parametrize(
    ("old", "new", "tolerance", "status", "change", "expected"),
    [
        (0.8, 0.8, Tolerance(), "passed", "unchanged", 0),
        (0.8, 0.81, Tolerance(absolute=0.02), "passed", "unchanged", 0),
        (0.8, 0.84, Tolerance(absolute=0.02), "violated", "new", 1),
        (0.8, 0.76, Tolerance(absolute=0.02), "violated", "new", 1),
        (0.8, 0.83, Tolerance(relative=0.05), "passed", "unchanged", 0),
        (0.8, 0.85, Tolerance(relative=0.05), "violated", "new", 1),
        (0.8, 0.75, Tolerance(relative=0.05), "violated", "new", 1),
        (0.8, 0.4, Tolerance(absolute=0.9), "violated", "new", 1),
        (0.4, 0.4, Tolerance(), "known", "unchanged", 0),
        (0.4, 0.45, Tolerance(), "known", "unchanged", 0),
        (0.4, 0.39, Tolerance(absolute=0.02), "known", "unchanged", 0),
        (0.4, 0.3, Tolerance(absolute=0.02), "violated", "new", 1),
        (0.4, 0.6, Tolerance(), "passed", "fixed", 0),
    ],
)
def test_baselines(
    tmp_path: Path,
    old: float,
    new: float,
    tolerance: Tolerance,
    status: str,
    change: str,
    expected: int,
) -> None:
    before = baseline_of(tmp_path, WATCH, shares(old))
    checked = evaluated(WATCH, shares(new), baseline=before, tolerance=tolerance)
    (row,) = checked.rows
    assert (row["status"], row["change"], code(checked)) == (status, change, expected)
    assert row["baseline"] == old


def test_what_the_baseline_does_not_know(tmp_path: Path) -> None:
    before = baseline_of(tmp_path, WATCH, shares(0.8))
    other = WATCH.replace("floor", "other")
    (row,) = evaluated(other, shares(0.8), baseline=before).rows
    assert (row["status"], row["change"], row["baseline"]) == ("passed", None, None)
    (row,) = evaluated(other, shares(0.4), baseline=before).rows
    assert (row["status"], row["change"]) == ("violated", "new")
    (row,) = evaluated(WATCH, shares(None), baseline=before).rows
    assert (row["status"], row["change"]) == ("inconclusive", None)


def test_a_tightened_rule_is_not_known(tmp_path: Path) -> None:
    before = baseline_of(tmp_path, WATCH, shares(0.6))
    tighter = WATCH.replace("0.5", "0.7")
    assert judged(tighter, shares(0.6), baseline=before) == ("violated", 1)


def test_places_that_are_gone_are_told(tmp_path: Path) -> None:
    every = f'{RULE}min = 0.5\nscope = "every head"\n'
    before = baseline_of(tmp_path, every, shares(0.8, 0.8))
    checked = evaluated(every, shares(0.8), baseline=before)
    assert checked.warnings == ("the baseline has 1 figures that this checkpoint lacks: floor",)


def test_a_fraction_drifts_too(tmp_path: Path) -> None:
    rule = f'{RULE}min = 0.5\nscope = "fraction:0.5"\n'
    before = baseline_of(tmp_path, rule, shares(0.6, 0.6, 0.6, 0.6))
    result = judged(rule, shares(0.6, 0.6, 0.6, 0.4), baseline=before)
    assert result == ("violated", 1)


def test_fingerprints_are_stable_and_distinct() -> None:
    every = f'{RULE}min = 0.5\nscope = "every head"\n'
    first = [row["fingerprint"] for row in evaluated(every, shares(0.8, 0.8)).rows]
    moved = [row["fingerprint"] for row in evaluated(f"\n\n{every}", shares(0.1, 0.9)).rows]
    assert first == moved
    assert len(set(first)) == 2
    identity = b'["floor", "mass.sector_share[affine]", 0, 0]'
    assert first[0] == hashlib.sha256(identity).hexdigest()[:32]


def test_diagnostics_without_a_result() -> None:
    policy = parse_policy(f"version = 1\n{WATCH}", "p.toml", Path())
    (row,) = Evaluation(policy, TODAY).checked({}, {"mass": "no layer"}).rows
    assert (row["status"], row["reason"]) == ("inconclusive", "no layer")


def test_the_whole_run_can_be_inconclusive() -> None:
    passed = (check_row(scope(), 0.8, status="passed"),)
    assert exit_code(gate_result(passed)) == 0
    low = gate_result(passed, provenance={"inconclusive": ["coverage is 50%, below 90%"]})
    assert (exit_code(low), problems(low)) == (3, ["coverage is 50%, below 90%"])
    spoilt = gate_result(passed, skipped=(BAD_HEAD, Skipped(0, "linear attention")))
    assert exit_code(spoilt) == 3
    assert problems(spoilt) == [f"layer 1 head 2 is left out: {BAD_HEAD.reason}"]
    violated = gate_result((check_row(scope()),), skipped=(BAD_HEAD,))
    assert exit_code(violated) == 1
    assert exit_code(violated, exit_zero=True) == 3


def test_a_run_that_failed_has_the_code_of_its_error() -> None:
    result = failed(CheckpointError("m.pt is empty", "copy it again"), {"path": "m.pt"}, {})
    assert (exit_code(result), exit_code(result, exit_zero=True)) == (2, 2)
    assert problems(result) == ["m.pt is empty"]
    assert Result.from_json(result.to_json()).to_dict() == result.to_dict()


def test_only_errors_fail() -> None:
    assert [row["rule"] for row in gate_result().rows if fails(row)] == ["affine-floor"]
