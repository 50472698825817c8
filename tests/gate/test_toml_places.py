"""Places of keys, against a text whose every key says where it is."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.gate.toml_places import Path, Spot, places

EVERYTHING = '''\
# a comment with [[rule]]
version = 1   # [run]
"quoted key" = "a # no comment"
[run]
length = [
  2048, # of [[rule]]
  32768,
]
data = """
[[rule]]
id = "not one"
"""
  spaced . dotted = true
[ run . kernel ]
windows = 3
[[rule]]
id = 'first'
bounds = { min = 1, text = "}" }

[[ rule ]]
  id = "second"
[rule.more]
deep = "\\"x\\""
[[rule.inner]]
a = 1
[[rule.inner]]
a = 2
[tool.pjdiag."gate"]
last = \'\'\'x
'\'\'\'
end = 1'''

EXPECTED = {
    ("version",): (2, 1),
    ("quoted key",): (3, 1),
    ("run",): (4, 1),
    ("run", "length"): (5, 1),
    ("run", "data"): (9, 1),
    ("run", "spaced"): (13, 3),
    ("run", "spaced", "dotted"): (13, 3),
    ("run", "kernel"): (14, 1),
    ("run", "kernel", "windows"): (15, 1),
    ("rule", 0): (16, 1),
    ("rule", 0, "id"): (17, 1),
    ("rule", 0, "bounds"): (18, 1),
    ("rule", 1): (20, 1),
    ("rule", 1, "id"): (21, 3),
    ("rule", 1, "more"): (22, 1),
    ("rule", 1, "more", "deep"): (23, 1),
    ("rule", 1, "inner", 0): (24, 1),
    ("rule", 1, "inner", 0, "a"): (25, 1),
    ("rule", 1, "inner", 1): (26, 1),
    ("rule", 1, "inner", 1, "a"): (27, 1),
    ("tool", "pjdiag", "gate"): (28, 1),
    ("tool", "pjdiag", "gate", "last"): (29, 1),
    ("tool", "pjdiag", "gate", "end"): (31, 1),
}


def resolved(found: Any, path: Path) -> Any:
    for part in path:
        found = found[part]
    return found


def test_every_key_has_its_place() -> None:
    parsed = tomllib.loads(EVERYTHING)
    for path in EXPECTED:
        resolved(parsed, path)
    found = places(EVERYTHING).keys
    assert {path: (spot.line, spot.column) for path, spot in found.items()} == EXPECTED


def test_values_have_theirs() -> None:
    found = places(EVERYTHING).values
    assert found["rule", 1, "id"] == Spot(21, 8)
    assert found["run", "length"] == Spot(5, 10)


def test_what_has_no_place_has_that_of_what_holds_it() -> None:
    found = places(EVERYTHING)
    assert found.nearest(("rule", 0, "bounds", "min")) == Spot(18, 1)
    assert found.nearest(("rule", 1, "missing")) == Spot(20, 1)
    assert found.nearest(("nowhere",)) == Spot(1, 1)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "   "])
def test_a_text_without_keys(text: str) -> None:
    assert places(text).keys == {}


NAMES = st.text("abcxyz019-_", min_size=1, max_size=4)
STRINGS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)


@given(
    st.lists(
        st.lists(st.tuples(NAMES, STRINGS, STRINGS), max_size=4, unique_by=lambda t: t[0]),
        max_size=4,
    )
)
def test_rules_with_any_strings_are_found(rules: list[list[tuple[str, str, str]]]) -> None:
    lines: list[str] = []
    expected: dict[Path, int] = {}
    for index, keys in enumerate(rules):
        lines.append("[[rule]]")
        expected["rule", index] = len(lines)
        for name, value, comment in keys:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'{name} = "{quoted}" # {comment}')
            expected["rule", index, name] = len(lines)
            lines += ["", "# [[rule]]"]
    text = "\n".join(lines)
    assert len(tomllib.loads(text).get("rule", [])) == len(rules)
    assert {path: spot.line for path, spot in places(text).keys.items()} == expected
