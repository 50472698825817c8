"""Values of a raw configuration: stated, filled in, null, or wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.errors import CheckpointError


def test_stated_then_filled_in_then_unknown() -> None:
    fields = ConfigFields({"a": 1, "null": None}, {"b": 2, "null": 3})
    assert (fields.count("a").value, fields.count("a").source) == (1, "config: a")
    assert (fields.count("b").value, fields.count("b").source) == (2, "transformers default")
    assert fields.get("c").source == "unknown"
    # A null is a statement: the default does not come back.
    assert fields.count("null").value is None


def test_the_first_name_that_is_stated_counts() -> None:
    fields = ConfigFields({"second": 2, "third": 3}, {"first": 1})
    assert fields.count("first", "second", "third").source == "config: second"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("count", 0, "a positive whole number"),
        ("count", -1, "a positive whole number"),
        ("count", 2.0, "a positive whole number"),
        ("count", True, "a positive whole number"),
        ("count", "8", "a positive whole number"),
        ("count", 2**31, "at most 2147483647"),
        ("whole", -1, "a positive whole number"),
        ("whole", 0.0, "a whole number"),
        ("whole", False, "a whole number"),
        ("number", math.nan, "a finite number"),
        ("number", math.inf, "a finite number"),
        ("number", 10**400, "a finite number"),
        ("number", True, "a finite number"),
        ("number", [1.0], "a finite number"),
        ("flag", "yes", "true or false"),
        ("entries", "abc", "a list"),
        ("entries", {"0": 1}, "a list"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(kind: str, value: Any, expected: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        getattr(ConfigFields({"field": value}, {}), kind)("field")
    assert raised.value.message.startswith("config: field is ")
    assert raised.value.message.endswith(f"expected {expected}")


def test_whole_numbers_and_flags() -> None:
    fields = ConfigFields({"zero": 0, "one": 1, "no": False}, {})
    assert fields.whole("zero").value == 0
    assert fields.whole("one").value == 1
    assert fields.flag("one").value is True
    assert fields.flag("no").value is False
    assert fields.flag("absent").value is False


def test_a_needed_field_that_is_missing_is_named() -> None:
    with pytest.raises(CheckpointError, match="states no heads or n_head"):
        ConfigFields({}, {}).needed("heads", "n_head")


@given(st.text(max_size=200) | st.integers() | st.lists(st.integers(), max_size=50))
def test_a_message_stays_short_and_on_one_line(value: Any) -> None:
    try:
        found = ConfigFields({"field": value}, {}).count("field").value
    except CheckpointError as error:
        assert len(error.message) < 150  # noqa: PT017
        assert "\n" not in error.message  # noqa: PT017
    else:
        assert found == value
