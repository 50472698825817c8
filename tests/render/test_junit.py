"""JUnit XML, read back by a JUnit parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase

from pjdiag.errors import CheckpointError
from pjdiag.gate.verdict import failed
from pjdiag.render.junit import to_junit
from pjdiag.results import Result
from tests.render.results import BAD_HEAD, HOSTILE, check_row, gate_result, scope


def suite(result: Result) -> Any:
    """The one suite of the document; its counts agree with its cases."""
    document = JUnitXml.fromstring(to_junit(result).encode())
    (only,) = document
    cases = list(only)
    for parent in (document, only):
        assert (parent.tests, parent.failures, parent.errors) == (
            len(cases),
            sum(isinstance(r, Failure) for case in cases for r in case.result),
            sum(isinstance(r, Error) for case in cases for r in case.result),
        )
    assert only.skipped == sum(isinstance(r, Skipped) for case in cases for r in case.result)
    return only


def cases(result: Result) -> dict[tuple[str, str], TestCase]:
    return {(case.classname, case.name): case for case in suite(result)}


def test_a_case_for_every_rule_and_layer() -> None:
    found = cases(gate_result())
    assert list(found) == [
        ("affine-floor", "layer 0"),
        ("affine-floor", "layer 1"),
        ("affine-floor", "layer 2"),
        ("affine-floor", "layer 3"),
        ("soft", "model"),
        ("late", "model"),
        ("old", "model"),
    ]
    kinds = [[type(each) for each in case.result] for case in found.values()]
    assert kinds == [[Failure], [], [], [Error], [], [Skipped], [Skipped]]


def test_what_the_cases_say() -> None:
    found = cases(gate_result())
    (failure,) = found["affine-floor", "layer 0"].result
    text = "layer 0: mass.sector_share[affine] is 0.300; required: at least 0.5"
    assert (failure.message, failure.type, failure.text) == (text, "violated", text)
    (error,) = found["affine-floor", "layer 3"].result
    assert "is missing; required: at least 0.5; the sector is absent" in error.message
    assert found["soft", "model"].system_out.startswith("warning: model: ")
    (skipped,) = found["late", "model"].result
    assert skipped.message.endswith("; a reason")
    assert found["affine-floor", "layer 1"].system_out.startswith("passed: layer 1: ")
    element = found["affine-floor", "layer 0"]._elem
    assert (element.get("file"), element.get("line")) == ("ci/gate.toml", "3")


def test_heads_of_a_layer_are_one_case() -> None:
    rows = [
        check_row(scope(layer, head), 0.9, status="passed") for layer in (0, 1) for head in (0, 1)
    ]
    rows[2:] = [check_row(scope(1, 0)), check_row(scope(1, 1))]
    found = cases(gate_result(rows))
    assert list(found) == [("affine-floor", "layer 0"), ("affine-floor", "layer 1")]
    (failure,) = found["affine-floor", "layer 1"].result
    assert failure.message.endswith(" and 1 more")
    assert [line.partition(":")[0] for line in failure.text.splitlines()] == [
        "layer 1 head 0",
        "layer 1 head 1",
    ]
    alone = cases(gate_result([check_row(scope(1, 0))]))
    assert list(alone) == [("affine-floor", "layer 1 head 0")]


def test_a_rule_of_the_command_line_has_no_file() -> None:
    (case,) = suite(gate_result([check_row(scope(), policy="--require")]))
    assert case._elem.get("file") is None


def test_what_concerns_the_whole_run_is_an_error() -> None:
    passed = [check_row(scope(), 0.8, status="passed")]
    found = cases(gate_result(passed, skipped=(BAD_HEAD,)))
    (error,) = found["pjdiag gate", "whole checkpoint"].result
    assert isinstance(error, Error)
    assert BAD_HEAD.reason in error.message
    broken = failed(CheckpointError("m.pt is empty", "copy it"), {"path": "m.pt"}, {})
    assert [case.name for case in suite(broken)] == ["whole checkpoint"]


def test_a_clean_run_has_cases_without_results() -> None:
    clean = gate_result([check_row(scope(), 0.8, status="passed")])
    assert [case.result for case in suite(clean)] == [[]]


@pytest.mark.parametrize("field", ["rule", "metric", "reason", "message", "requirement"])
def test_hostile_text(field: str) -> None:
    hostile = f"{HOSTILE}]]>\x00\x08\ufffe&amp;\"'</testcase>"
    result = gate_result([check_row(scope(), **{field: hostile})])
    text = to_junit(result)
    assert "\x1b" not in text
    assert "\u202e" not in text
    (case,) = suite(result)
    assert "</testcase>" in (case.classname if field == "rule" else case.result[0].message)


@given(st.text(), st.text())
def test_any_text_is_well_formed(rule: str, reason: str) -> None:
    result = gate_result([check_row(scope(), rule=rule, reason=reason)])
    assert len(suite(result)) == 1
