"""Saved results from strangers: what comes back, and one error for everything else."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pjdiag
from pjdiag.errors import DataError
from pjdiag.result_checks import MAX_DEPTH, parsed
from pjdiag.results import Result
from pjdiag.samples import sample
from tests.render.results import EVERY_RESULT, mass_result

STATIC = ("inspect", "mass", "energy", "loo", "spectrum")
"""Of the sample none of their figures is infinite, which becomes null."""


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_a_result_made_by_hand_comes_back(name: str) -> None:
    made = EVERY_RESULT[name]
    assert Result.from_json(made.to_json()).to_json() == made.to_json()


@pytest.mark.parametrize("name", STATIC)
def test_a_measured_result_comes_back_equal(name: str) -> None:
    made = getattr(pjdiag, name)(sample())
    assert Result.from_json(made.to_json()) == made


ROW = {"layer": 0, "head": None, "scope": "layer", "mechanism": "pj_bias", "effective_mass": 1.0}


def changed(**changes: Any) -> dict[str, Any]:
    return {**mass_result().to_dict(), **changes}


def with_row(**changes: Any) -> dict[str, Any]:
    return changed(rows=[ROW, {**ROW, **changes}])


def without(name: str) -> dict[str, Any]:
    loaded = changed()
    del loaded[name]
    return loaded


DAMAGED: list[tuple[Any, str]] = [
    ([], "no JSON object"),
    (None, "no JSON object"),
    ("mass", "no JSON object"),
    ({}, "schema version 1: it states none"),
    (changed(schema_version=2), "schema version 1: it states 2"),
    (changed(schema_version="1"), "it states '1'"),
    (changed(schema_version=True), "it states True"),
    (changed(schema_version=1.0), "it states 1.0"),
    (changed(schema_version=[1]), "it states a list"),
    (changed(diagnostic="warp"), "unknown diagnostic 'warp'"),
    (changed(diagnostic=["mass"]), "unknown diagnostic a list"),
    (changed(diagnostic="\x1b[31m"), r"unknown diagnostic '\\x1b"),
    (without("rows"), "rows is None; expected a list"),
    (without("skipped"), "skipped is None"),
    (changed(rows={"a": 1}), "rows is an object; expected a list"),
    (changed(rows=[1]), "row 0 is 1; expected an object"),
    (changed(rows=[[]]), "row 0 is a list"),
    (changed(checkpoint="a.pt"), "checkpoint is 'a.pt'; expected an object"),
    (changed(provenance=None), "provenance is None"),
    (changed(warnings="x"), "warnings is 'x'"),
    (changed(warnings=[{}]), "a warning is an object"),
    (changed(skipped=[1]), "an entry of skipped is 1"),
    (changed(skipped=[{"layer": 0}]), "expected layer and reason"),
    (changed(skipped=[{"layer": "0", "reason": "x"}]), "by its number"),
    (changed(skipped=[{"layer": -1, "reason": "x"}]), "by its number"),
    (changed(skipped=[{"layer": 0, "reason": "x", "head": 1.5}]), "by its number"),
    (changed(skipped=[{"layer": 0, "reason": 1}]), "no reason in words"),
    (changed(skipped=[{"layer": 0, "reason": "x", "bad_values": 1}]), "is no flag"),
    (changed(skipped=[{"layer": 0, "reason": "x", "more": 1}]), "has the keys"),
    (with_row(scope="galaxy"), "row 1 has the scope 'galaxy'"),
    (with_row(scope=None), "row 1 has the scope None"),
    (with_row(scope=["model"]), "row 1 has the scope a list"),
    (with_row(warp=1), "unknown column 'warp'"),
    (with_row(layer="0"), "layer '0'; expected a whole number"),
    (with_row(layer=True), "expected a whole number"),
    (with_row(layer=0.5), "expected a whole number"),
    (with_row(layer=-1), "row 1 has layer -1"),
    (with_row(layer=2**63), "expected a whole number"),
    (with_row(jet_order=1000), "row 1 has jet_order 1000"),
    (with_row(effective_mass="1"), "expected a finite number"),
    (with_row(effective_mass=False), "expected a finite number"),
    (with_row(effective_mass=[1]), "expected a finite number"),
    (with_row(effective_mass=10**400), "expected a finite number"),
    (with_row(sector=3), "sector 3; expected text"),
]


@pytest.mark.parametrize(("loaded", "says"), DAMAGED)
def test_what_is_no_result(loaded: Any, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        Result.from_json(json.dumps(loaded))
    text = str(caught.value)
    assert caught.value.hint
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 300


TEXTS = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("schema_version: 1", "not JSON"),
    ('{"schema_version": 1} x', "not JSON"),
    ('{"a": NaN}', "NaN is not a JSON number"),
    ('{"a": -Infinity}', "-Infinity is not a JSON number"),
    ('{"a": 1, "a": 2}', "'a' occurs twice"),
    ("[" * 100_000, "nested deeper"),
    ('{"a":' * 100_000, "nested deeper"),
    ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested deeper than 64"),
    ('{"schema_version": ' + "9" * 5000 + "}", "not JSON"),
    ('{"schema_version": ' + "9" * 4000 + "}", "it states 999"),
]


@pytest.mark.parametrize(("text", "says"), TEXTS, ids=range(len(TEXTS)))
def test_what_is_no_json(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        Result.from_json(text)
    assert len(str(caught.value)) < 300


def test_a_figure_beyond_the_numbers() -> None:
    text = mass_result().to_json().replace('"effective_mass": 8.0', '"effective_mass": 1e999', 1)
    assert "1e999" in text
    with pytest.raises(DataError, match="inf; expected a finite number"):
        Result.from_json(text)


def test_as_deep_as_is_allowed() -> None:
    text = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert parsed(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json cannot be read"):
        Result.read(tmp_path / "nowhere.json")
    with pytest.raises(DataError, match="cannot be read"):
        Result.read(tmp_path)
    path = tmp_path / "r.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(DataError, match=r"r\.json: not UTF-8 at byte 7"):
        Result.read(path)
    path.write_text(mass_result().to_json())
    assert Result.read(path).to_json() == mass_result().to_json()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    loaded = copy.deepcopy(SMALL)
    place: Any = loaded
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(JSON)
    read = None
    with suppress(DataError):
        read = Result.from_json(json.dumps(loaded))
    if read is not None:
        assert Result.from_json(read.to_json()) == read
        assert read.to_csv().startswith("layer,head,scope")


SMALL = mass_result(layers=1, heads=1).to_dict()
