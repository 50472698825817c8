"""SARIF 2.1.0: what code scanning services read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from pjdiag.gate.checks import Change, Status
from pjdiag.gate.policy import ERROR
from pjdiag.gate.verdict import exit_code, problems
from pjdiag.render.checks import RuleChecks, by_rule, in_file, location, place, sentence
from pjdiag.render.text import capitalised, visible
from pjdiag.results import Result, Row

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
FINGERPRINT = "pjdiagCheck/v1"


def to_sarif(result: Result) -> str:
    """A log with one run, ending in a newline.

    Checks that pass are left out. The place of a result is its rule in the policy file; of a rule
    of the command line it is the checkpoint. Fingerprints depend on rule, metric and place alone.
    """
    rules = by_rule(result.rows)
    run = {
        "tool": {"driver": _driver(result, rules)},
        "invocations": [_invocation(result)],
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(result, index, row)
            for index, checks in enumerate(rules)
            for row in checks.rows
            if row["status"] != Status.PASSED
        ],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _driver(result: Result, rules: Sequence[RuleChecks]) -> dict[str, Any]:
    version = result.provenance.get("tool_version")
    return {
        "name": "pjdiag",
        **({"version": str(version)} if version else {}),
        "rules": [_rule(checks) for checks in rules],
    }


def _rule(checks: RuleChecks) -> dict[str, Any]:
    first = checks.rows[0]
    text = visible(f"{first['metric']}: {first['requirement']}")
    whole = f"{text}. {visible(str(first['message']))}" if first.get("message") else text
    return {
        "id": visible(checks.rule),
        "shortDescription": {"text": text},
        "fullDescription": {"text": whole},
        "defaultConfiguration": {"level": _level(first)},
    }


def _result(result: Result, index: int, row: Row) -> dict[str, Any]:
    unsure = row["status"] == Status.INCONCLUSIVE
    where = place(row)
    text = f"{capitalised(where)}: {sentence(row)}" if where != "model" else sentence(row)
    found: dict[str, Any] = {
        "ruleId": visible(str(row["rule"])),
        "ruleIndex": index,
        "kind": "open" if unsure else "fail",
        "level": "none" if unsure else "note" if row["status"] == Status.KNOWN else _level(row),
        "message": {"text": visible(text)},
        "locations": [_location(result, row)],
        "partialFingerprints": {FINGERPRINT: str(row["fingerprint"])},
        "properties": {
            name: row[name]
            for name in ("layer", "head", "value", "minimum", "maximum", "baseline")
            if row.get(name) is not None
        },
    }
    if any(each.get("change") for each in result.rows):
        old = row["status"] == Status.KNOWN or row.get("change") == Change.UNCHANGED
        found["baselineState"] = "unchanged" if old else "new"
    if row["status"] == Status.SUPPRESSED:
        reason = visible(str(row["reason"]))
        found["suppressions"] = [{"kind": "external", "justification": reason}]
    return found


def _level(row: Row) -> str:
    return "error" if row["severity"] == ERROR else "warning"


def _location(result: Result, row: Row) -> dict[str, Any]:
    path = location(result, row)
    line = row["line"] if in_file(row) else 1
    physical = {"artifactLocation": _artifact(path), "region": {"startLine": line}}
    return {
        "physicalLocation": physical,
        "logicalLocations": [{"name": place(row)}],
    }


def _artifact(path: str) -> dict[str, str]:
    pure = PurePosixPath(path)
    if pure.is_absolute():
        return {"uri": f"file://{quote(path, errors='surrogateescape')}"}
    return {"uri": quote(path, errors="surrogateescape"), "uriBaseId": ROOT}


def _invocation(result: Result) -> dict[str, Any]:
    failure = result.provenance.get("failure")
    invocation: dict[str, Any] = {
        "executionSuccessful": not failure,
        "exitCode": exit_code(result),
        "toolExecutionNotifications": list(_notifications(result)),
    }
    command = result.provenance.get("command")
    return {**({"commandLine": visible(str(command))} if command else {}), **invocation}


def _notifications(result: Result) -> Iterator[dict[str, Any]]:
    found = problems(result)
    for problem in found:
        yield {"level": "error", "message": {"text": visible(problem)}}
    for warning in result.warnings:
        if warning not in found:
            yield {"level": "warning", "message": {"text": visible(warning)}}
