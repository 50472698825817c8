"""Workflow commands, read as GitHub's runner reads them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.render.github import command, to_github
from pjdiag.results import Result
from tests.render.results import BAD_HEAD, HOSTILE, check_row, gate_result, scope

COMMAND = re.compile(r"::(error|warning|notice)(?: ([^:]*))?::(.*)")


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Level, properties and message of a command, unescaped."""
    found = COMMAND.fullmatch(line)
    assert found is not None, line
    level, shown, message = found.groups()
    properties = dict(part.split("=", 1) for part in (shown or "").split(",") if part)
    return level, {name: unescaped(value) for name, value in properties.items()}, unescaped(message)


def unescaped(text: str) -> str:
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def commands(result: Result) -> list[tuple[str, dict[str, str], str]]:
    return [read(line) for line in to_github(result).splitlines()]


def test_an_annotation_for_every_rule() -> None:
    found = commands(gate_result())
    assert [(level, properties["title"]) for level, properties, _ in found] == [
        ("error", "pjdiag gate: affine-floor"),
        ("error", "pjdiag gate: affine-floor"),
        ("warning", "pjdiag gate: soft"),
        ("notice", "pjdiag gate: late"),
        ("notice", "pjdiag gate: old"),
        ("notice", "pjdiag gate"),
    ]
    assert found[0][1] == {
        "file": "ci/gate.toml",
        "line": "3",
        "title": "pjdiag gate: affine-floor",
    }
    assert found[0][2] == ("layer 0: mass.sector_share[affine] is 0.300; required: at least 0.5")


def test_many_places_of_a_rule_are_one_annotation() -> None:
    rows = [check_row(scope(layer), layer / 100) for layer in range(32)]
    error, _ = commands(gate_result(rows))
    assert error[2] == (
        "layers 0-31: mass.sector_share[affine] is 0 to 0.310; required: at least 0.5"
    )


def test_a_rule_of_the_command_line_has_no_file() -> None:
    (_, properties, _), _ = commands(gate_result([check_row(scope(), policy="--require")]))
    assert set(properties) == {"title"}


def test_a_clean_run_says_so() -> None:
    clean = gate_result([check_row(scope(), 0.8, status="passed")])
    assert commands(clean) == [("notice", {"title": "pjdiag gate"}, "The check passes")]


def test_what_concerns_the_whole_run() -> None:
    first, *_ = commands(gate_result(skipped=(BAD_HEAD,)))
    assert first[0] == "error"
    assert BAD_HEAD.reason in first[2]


@pytest.mark.parametrize("field", ["rule", "metric", "reason", "message", "requirement"])
def test_nothing_starts_another_command(field: str) -> None:
    hostile = f"{HOSTILE}\n::set-output name=x::y\r\n##[command]\n::stop-commands::z"
    text = to_github(gate_result([check_row(scope(), **{field: hostile})]))
    assert len(text.splitlines()) == 2
    assert all(COMMAND.fullmatch(line) for line in text.splitlines())
    assert "\x1b" not in text


@given(st.text(), st.text())
def test_any_text_stays_in_its_command(title: str, message: str) -> None:
    line = command("error", message, title=title)
    assert len((line + "\n").splitlines()) == 1
    level, properties, said = read(line)
    assert level == "error"
    if title.isascii() and title.isprintable():
        assert properties == {"title": title}
    if message.isascii() and message.isprintable():
        assert said == message
