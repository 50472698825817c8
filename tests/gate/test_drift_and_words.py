"""Rules that ask for a baseline only, and rules of columns that hold words."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pjdiag.errors import PolicyError
from pjdiag.gate.baseline import (
    KIND,
    VERSION,
    Baseline,
    Entry,
    Tolerance,
    read_baseline,
    to_json,
)
from pjdiag.gate.checks import Checked, Evaluation
from pjdiag.gate.metrics import ExpressionError, parse_requirement
from pjdiag.gate.policy import Policy
from pjdiag.gate.policy_file import parse_policy, required
from pjdiag.gate.verdict import exit_code
from pjdiag.render.checks import rule_sentence, sentence, value
from pjdiag.render.views.gate import tables
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import inspect_result, inspect_row, mass_result

TODAY = date(2026, 6, 1)
SHARE = '[[rule]]\nid = "share"\nmetric = "mass.sector_share[affine]"\n'
"""0.81 in ``mass_result``."""
PLACE = ("share", "mass.sector_share[affine]", None, None)
ROPE = '[[rule]]\nid = "type"\nmetric = "inspect.rope_type"\nscope = "every layer"\n'


def checked(text: str, result: Result, **judged_by: Any) -> Checked:
    policy = parse_policy(f"version = 1\n{text}", "p.toml", Path())
    return Evaluation(policy, TODAY, **judged_by).checked({result.diagnostic: result})


def baseline(figure: float, met: bool = True) -> Baseline:
    return Baseline({PLACE: Entry(figure, met)})


def code(found: Checked) -> int:
    return exit_code(Result("gate", {}, {}, found.rows))


@pytest.mark.parametrize(
    ("drift", "before", "status"),
    [
        ("0.02", 0.80, "passed"),
        ("0.02", 0.83, "passed"),
        ("0.005", 0.80, "violated"),
        ("'5%'", 0.80, "passed"),
        ("'1%'", 0.80, "violated"),
        ("1e-12", 0.81, "passed"),
    ],
)
def test_a_rule_may_ask_for_its_baseline_only(drift: str, before: float, status: str) -> None:
    found = checked(f"{SHARE}drift = {drift}\n", mass_result(), baseline=baseline(before))
    assert [row["status"] for row in found.rows] == [status]
    assert found.rows[0]["minimum"] is None
    assert code(found) == (1 if status == "violated" else 0)


def test_its_tolerance_goes_before_that_of_the_command() -> None:
    loose, strict = Tolerance(relative=0.5), Tolerance()
    far = baseline(0.7)
    assert code(checked(f"{SHARE}drift = 0.01\n", mass_result(), baseline=far, tolerance=loose))
    near = f"{SHARE}min = 0.1\ndrift = 0.2\n"
    assert not code(checked(near, mass_result(), baseline=far, tolerance=strict))
    (row,) = checked(near, mass_result(), baseline=far).rows
    assert row["requirement"] == "at least 0.1, within 0.2 of the baseline"


def test_without_a_baseline_it_is_inconclusive_and_says_so() -> None:
    text = f"{SHARE}drift = '5%'\n"
    found = checked(text, mass_result())
    assert (found.rows[0]["status"], code(found)) == ("inconclusive", 3)
    assert "--baseline" in found.rows[0]["reason"]
    assert found.rows[0]["value"] == pytest.approx(0.81)
    other = checked(text, mass_result(), baseline=Baseline({}))
    assert (other.rows[0]["reason"], code(other)) == ("the baseline has no such figure", 3)
    assert code(checked(text, mass_result(), recording=True)) == 0
    bounded = checked(f"{SHARE}min = 0.5\ndrift = '5%'\n", mass_result())
    assert code(bounded) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drift = -1\n", "drift is -1"),
        ('drift = "a lot"\n', "drift is 'a lot'"),
        ("drift = true\n", "drift is True"),
        ('drift = 0.1\nscope = "fraction:0.5"\n', "drift beside a fraction"),
        ("", "asks nothing of its metric"),
        ('equals = "rope"\n', "sector_share is a number"),
    ],
)
def test_what_cannot_be_meant_has_its_place(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=rf"p.toml:\d+:\d+: .*{message}"):
        checked(f"{SHARE}{text}", mass_result())


def layers(*types: str | None) -> Result:
    rows = [{**inspect_row(layer), "rope_type": word} for layer, word in enumerate(types)]
    return replace(inspect_result([]), rows=tuple(rows))


def test_words_must_be_equal() -> None:
    found = checked(f'{ROPE}equals = "llama3"\n', layers("llama3", "yarn"))
    assert [row["status"] for row in found.rows] == ["passed", "violated"]
    assert [value(row) for row in found.rows] == ["'llama3'", "'yarn'"]
    assert [(row["found"], row["value"]) for row in found.rows] == [("llama3", 1.0), ("yarn", 0.0)]
    assert sentence(found.rows[1]) == "inspect.rope_type is 'yarn'; required: equal to 'llama3'"
    assert rule_sentence(found.rows) == (
        "layers 0-1: inspect.rope_type is 'llama3', 'yarn'; required: equal to 'llama3'"
    )
    assert code(found) == 1


def test_a_missing_word_is_inconclusive() -> None:
    found = checked(f'{ROPE}equals = "llama3"\n', layers(None))
    assert (found.rows[0]["status"], code(found)) == ("inconclusive", 3)


def test_a_fraction_of_layers_may_hold_the_word() -> None:
    text = ROPE.replace("every layer", "fraction:0.6")
    found = checked(f'{text}equals = "yarn"\n', layers("yarn", "yarn", "default"))
    assert found.rows[0]["value"] == pytest.approx(2 / 3)
    assert code(found) == 0


@pytest.mark.parametrize("word", ["rope", "'rope'", '"rope"'])
def test_words_on_the_command_line(word: str) -> None:
    metric, bound = parse_requirement(f"inspect.mechanism[layer=0] == {word}")
    assert (metric.column, str(bound)) == ("mechanism", "equal to 'rope'")
    policy = replace(Policy(), rules=required([f"inspect.mechanism[layer=0] == {word}"]))
    found = Evaluation(policy, TODAY).checked({"inspect": inspect_result([inspect_row(0)])})
    assert [row["status"] for row in found.rows] == ["passed"]


def test_words_have_no_order() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_requirement("inspect.rope_type >= yarn")
    assert caught.value.message == ">= between words"
    with pytest.raises(PolicyError, match="rope_type holds words"):
        checked(f"{ROPE}min = 1\n", layers("yarn"))
    with pytest.raises(PolicyError, match="equals is missing"):
        checked(ROPE, layers("yarn"))


def recorded(text: str, result: Result, folder: Path) -> Baseline:
    rows = checked(text, result, recording=True).rows
    path = folder / "baseline.json"
    path.write_text(to_json(Result("gate", {}, {}, rows)))
    return read_baseline(path)


def test_words_must_be_those_of_the_baseline(tmp_path: Path) -> None:
    text = f"{ROPE}drift = 0\n"
    before = recorded(text, layers("llama3", "default"), tmp_path)
    same = checked(text, layers("llama3", "default"), baseline=before)
    assert [(row["status"], row["change"]) for row in same.rows] == [("passed", "unchanged")] * 2
    other = checked(text, layers("yarn", "default"), baseline=before)
    assert [row["status"] for row in other.rows] == ["violated", "passed"]
    assert other.rows[0]["found"] == "yarn"
    assert sentence(other.rows[0]) == (
        "inspect.rope_type is 'yarn'; required: the same as in the baseline; it was 'llama3'"
    )
    assert (code(same), code(other)) == (0, 1)


def test_words_without_a_baseline_are_inconclusive(tmp_path: Path) -> None:
    text = f"{ROPE}drift = 0\n"
    alone = checked(text, layers("yarn"))
    assert (code(alone), alone.rows[0]["found"]) == (3, "yarn")
    assert "--baseline" in alone.rows[0]["reason"]
    before = recorded(text, layers(None), tmp_path)
    assert code(checked(text, layers("yarn"), baseline=before)) == 3
    assert code(checked(text, layers(None), baseline=before)) == 3


def test_a_rule_may_change_from_one_kind_to_the_other(tmp_path: Path) -> None:
    drift, equals = f"{ROPE}drift = 0\n", f'{ROPE}equals = "yarn"\n'
    before = recorded(drift, layers("yarn"), tmp_path)
    assert code(checked(equals, layers("yarn"), baseline=before)) == 0
    assert code(checked(equals, layers("llama3"), baseline=before)) == 1
    before = recorded(equals, layers("yarn"), tmp_path)
    assert code(checked(drift, layers("llama3"), baseline=before)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drift = 0.1\n", "drift is 0.1, and words have no distance"),
        ("drift = false\n", "drift is False, and words have no distance"),
        ('drift = 0\nequals = "yarn"\n', "drift beside equals"),
        ('drift = 0\nscope = "fraction:0.5"\n', "drift beside a fraction"),
    ],
)
def test_how_words_cannot_drift(text: str, message: str) -> None:
    rule = ROPE.replace('scope = "every layer"\n', "") if "scope" in text else ROPE
    with pytest.raises(PolicyError, match=message):
        checked(rule + text, layers("yarn"))


@pytest.mark.parametrize("found", [5, ["yarn"]])
def test_damaged_words_of_a_baseline(found: Any, tmp_path: Path) -> None:
    entry = {"rule": "a", "metric": "b", "layer": None, "head": None, "value": None, "met": True}
    document = {"kind": KIND, "version": VERSION, "checks": [{**entry, "found": found}]}
    (tmp_path / "b.json").write_text(json.dumps(document))
    with pytest.raises(PolicyError, match="is damaged"):
        read_baseline(tmp_path / "b.json")


def test_words_reach_the_formats_of_rows() -> None:
    rows = checked(f'{ROPE}equals = "yarn"\n', layers("yarn", "default")).rows
    result = Result("gate", {}, {}, rows)
    lines = list(csv.DictReader(result.to_csv().splitlines()))
    assert [line["found"] for line in lines] == ["yarn", "default"]
    assert [row["found"] for row in Result.from_json(result.to_json()).rows] == ["yarn", "default"]
    (line,) = tables(result, Scope.MODEL, all_rows=False)[0].lines[:1]
    assert [cell.text for cell in line][3] == "'default'"
