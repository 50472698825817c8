"""SARIF, held by the official schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, ValidationError

from pjdiag.errors import CheckpointError
from pjdiag.gate.verdict import failed
from pjdiag.render.sarif import to_sarif
from pjdiag.results import Result
from tests.render.results import BAD_HEAD, HOSTILE, check_row, gate_result, scope

DATA = Path(__file__).resolve().parent.parent / "data"
SCHEMA = json.loads((DATA / "sarif-2.1.0-rtm.5.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft4Validator(SCHEMA)


def only_run(result: Result) -> dict[str, Any]:
    """The run of a log that the schema accepts."""
    text = to_sarif(result)
    log = json.loads(text)
    VALIDATOR.validate(log)
    assert text.isascii()
    (run,) = log["runs"]
    for found in run["results"]:
        assert run["tool"]["driver"]["rules"][found["ruleIndex"]]["id"] == found["ruleId"]
    return dict(run)


def test_the_schema_is_itself_valid_and_strict() -> None:
    Draft4Validator.check_schema(SCHEMA)
    log = json.loads(to_sarif(gate_result()))
    log["runs"][0]["results"][0]["severity"] = "high"
    with pytest.raises(ValidationError):
        VALIDATOR.validate(log)
    with pytest.raises(ValidationError):
        VALIDATOR.validate({"version": "2.1.0"})


def test_what_does_not_pass_is_a_result() -> None:
    run = only_run(gate_result())
    assert [(r["ruleId"], r["kind"], r["level"]) for r in run["results"]] == [
        ("affine-floor", "fail", "error"),
        ("affine-floor", "open", "none"),
        ("soft", "fail", "warning"),
        ("late", "fail", "error"),
        ("old", "fail", "note"),
    ]
    assert run["results"][0]["message"]["text"] == (
        "Layer 0: mass.sector_share[affine] is 0.300; required: at least 0.5"
    )
    assert run["results"][0]["properties"] == {"layer": 0, "value": 0.3, "minimum": 0.5}


def test_the_place_is_the_rule_in_the_policy() -> None:
    (first, *_) = only_run(gate_result())["results"]
    (location,) = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "ci/gate.toml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 3},
    }
    assert location["logicalLocations"] == [{"name": "layer 0"}]


@pytest.mark.parametrize(
    ("path", "artifact"),
    [
        ("runs/m 1.pt", {"uri": "runs/m%201.pt", "uriBaseId": "%SRCROOT%"}),
        ("/models/\u00e9.pt", {"uri": "file:///models/%C3%A9.pt"}),
        ("a#b?c%d", {"uri": "a%23b%3Fc%25d", "uriBaseId": "%SRCROOT%"}),
        ("bad\udce9", {"uri": "bad%E9", "uriBaseId": "%SRCROOT%"}),
    ],
)
def test_a_rule_of_the_command_line_stands_at_the_checkpoint(
    path: str, artifact: dict[str, str]
) -> None:
    rows = [check_row(scope(), policy="--require")]
    result = gate_result(rows, provenance={"checkpoint_uri": path})
    (found,) = only_run(result)["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"] == artifact


def test_suppressions_and_baselines() -> None:
    late, old = only_run(gate_result())["results"][3:]
    (suppression,) = late["suppressions"]
    assert suppression == {"kind": "external", "justification": "a reason"}
    assert (late["baselineState"], old["baselineState"]) == ("new", "unchanged")
    plain = gate_result([check_row(scope())])
    assert "baselineState" not in only_run(plain)["results"][0]


def test_fingerprints_are_those_of_the_checks() -> None:
    rows = [check_row(scope(0)), check_row(scope(1))]
    found = only_run(gate_result(rows))["results"]
    assert [each["partialFingerprints"] for each in found] == [
        {"pjdiagCheck/v1": row["fingerprint"]} for row in rows
    ]


def test_a_clean_run_is_a_log_without_results() -> None:
    run = only_run(gate_result([check_row(scope(), 0.8, status="passed")]))
    assert run["results"] == []
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["affine-floor"]
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 0)


def test_what_concerns_the_whole_run_is_a_notification() -> None:
    (invocation,) = only_run(gate_result(skipped=(BAD_HEAD,), warnings=("careful",)))["invocations"]
    found = invocation["toolExecutionNotifications"]
    assert [each["level"] for each in found] == ["error", "warning"]
    assert BAD_HEAD.reason in found[0]["message"]["text"]
    broken = failed(CheckpointError("m.pt is empty", "copy it"), {"path": "m.pt"}, {})
    run = only_run(broken)
    assert run["results"] == run["tool"]["driver"]["rules"] == []
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)


def test_a_result_read_back_gives_the_same() -> None:
    result = gate_result()
    assert to_sarif(Result.from_json(result.to_json())) == to_sarif(result)


@pytest.mark.parametrize("field", ["rule", "metric", "reason", "message", "requirement", "policy"])
def test_hostile_text(field: str) -> None:
    result = gate_result([check_row(scope(), **{"fingerprint": "0", field: HOSTILE})])
    only_run(result)
    assert "\\u001b" not in to_sarif(result)
    assert "\u202e" not in json.dumps(json.loads(to_sarif(result)), ensure_ascii=False)


@settings(max_examples=25)
@given(st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_and_any_figure_is_valid(rule: str, reason: str, value: float) -> None:
    rows = [check_row(scope(), value, rule=rule, reason=reason, status="violated")]
    only_run(gate_result(rows))
