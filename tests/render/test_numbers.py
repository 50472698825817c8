"""Digits: what is printed must not claim more, or less, than the figure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.render import numbers


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0%"),
        (0.0, "0%"),
        (1, "100%"),
        (1e-12, "<0.1%"),
        (0.00099, "<0.1%"),
        (0.001, "0.1%"),
        (0.0996, "10%"),
        (0.5, "50%"),
        (0.994, "99.4%"),
        (0.99999, ">99.9%"),
        (float("nan"), "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert numbers.percent(share) == text


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_a_share_between_the_ends_is_never_printed_as_an_end(share: float) -> None:
    for text in (numbers.percent(share), numbers.share_cell(share)):
        assert text not in ("0%", "0.0%", "100%", "100.0%")


@given(st.floats(min_value=0.001, max_value=0.999))
def test_a_share_is_within_half_a_unit_of_what_is_printed(share: float) -> None:
    assert float(numbers.share_cell(share).strip("%")) / 100 == pytest.approx(share, abs=5.1e-4)
    assert float(numbers.percent(share).strip("%")) / 100 == pytest.approx(share, abs=5.1e-3)


@given(st.floats(-1e300, 1e300), st.integers(2, 5))
def test_a_figure_keeps_its_significant_digits(value: float, digits: int) -> None:
    text = numbers.figure(value, digits)
    if value == 0:
        assert text == "0"
        return
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
    assert float(text.replace(",", "")) != 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.996, "10.0"),
        (0.0009996, "0.00100"),
        (999.6, "1,000"),
        (9_999_999.0, "1.00e7"),
        (-3.1e-10, "-3.10e-10"),
        (None, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_figure_at_the_edges(value: float | None, text: str) -> None:
    assert numbers.figure(value) == text


def test_settings_are_not_padded_and_not_rounded_to_nothing() -> None:
    assert [numbers.setting(x) for x in (1e4, 1_000_000.0, 0.0883883476, 1e-6, 0.0)] == [
        "10,000",
        "1,000,000",
        "0.0883883",
        "1e-06",
        "0",
    ]
