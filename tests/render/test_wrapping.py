"""Words over several lines on a narrow terminal; a figure or a word is never cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pjdiag.render.layout import laid_out
from pjdiag.render.tables import Cell, Header, Table
from pjdiag.render.wrapping import broken

RULE = "order-two-of-the-fourier-jet-stays-unused-in-every-single-layer"
REASON = "the long-context run is under way and we shall see (until 2027-01-01)"


@given(st.text("ab -_/.,=1", max_size=60), st.integers(1, 30))
def test_breaking_loses_nothing_but_spaces(text: str, width: int) -> None:
    assert broken(text, width).replace("\n", "").replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.sampled_from(["1,644", "-2.5e-30", "0.001", "99.9%"]), min_size=1, max_size=9))
def test_a_figure_among_words_stays_whole(figures: list[str]) -> None:
    assert broken(" ".join(figures), 4).split() == figures


def test_words_break_at_spaces_before_they_break_inside() -> None:
    assert broken("at most 1e-30 in 90% of its places", 16).split("\n") == [
        "at most 1e-30 in",
        "90% of its",
        "places",
    ]


def checks(reason: str) -> Table:
    headers = (
        Header("status", key=True, group=True),
        Header("rule", key=True, group=True),
        Header("where", key=True),
        Header("figure", numeric=True),
        Header("required"),
        Header("reason"),
    )
    lines = [
        (
            Cell("violated"),
            Cell(RULE),
            Cell(f"layer {layer} head {layer}"),
            Cell("6.54e-20"),
            Cell("at most 1e-30"),
            Cell(reason),
        )
        for layer in range(3)
    ]
    return Table("Checks", headers, tuple(lines))


@pytest.mark.parametrize("width", [72, 80, 100, 120, 300])
def test_long_rules_and_reasons_break_at_words_and_fit(width: int) -> None:
    parts = list(laid_out(checks(REASON), width, "utf-8"))
    assert all(part.fits for part in parts)
    lines = [line for part in parts for line in part.text_lines()]
    assert max(map(cell_len, lines)) <= width
    whole = "\n".join(lines)
    assert whole.count("6.54e-20") == 3
    words = set(whole.split())
    assert set(REASON.split()) <= words
    pieces = {piece for word in words for piece in word.split("-")}
    assert set(RULE.split("-")) <= pieces


def test_what_fits_is_left_on_one_line() -> None:
    (part,) = laid_out(checks(REASON), 300, "utf-8")
    assert len(list(part.text_lines())) == 3


def test_a_table_that_fits_with_two_line_cells_is_not_split() -> None:
    headers = (Header("of", key=True), Header("from", numeric=True), Header("to", numeric=True))
    made = Table(
        "t", headers, ((Cell("both jets, order 0, 128 tokens, train"), Cell("1"), Cell("2")),)
    )
    (part,) = laid_out(made, 36, "utf-8")
    assert [line.split() for line in part.text_lines()] == [
        ["both", "jets,", "order", "0,", "128", "1", "2"],
        ["tokens,", "train"],
    ]


def test_columns_are_split_evenly_without_a_lone_last_one() -> None:
    headers = (Header("k", key=True), *(Header(f"column {n}", numeric=True) for n in range(6)))
    made = Table("t", headers, ((Cell("a"), *(Cell("1") for _ in range(6))),))
    parts = list(laid_out(made, 50, "utf-8"))
    assert [len(part.table.headers) - 1 for part in parts] == [3, 3]


@pytest.mark.parametrize("width", [60, 80, 100, 100_000])
def test_sentences_break_in_a_pipe_too_and_lose_no_word(width: int) -> None:
    """The claims of a reproduced experiment; the longest takes more lines than other cells may."""
    found = "R^2 1.000 with both sectors, 0.8562 with affine alone; " * 6
    headers = (
        Header("claim", key=True, prose=True),
        Header("what came out here", prose=True),
        Header("holds"),
    )
    lines = (
        (Cell("recency with a weak jet needs both sectors"), Cell(found.strip()), Cell("yes")),
        (Cell("each kernel is held by its own basis"), Cell("8 of 8"), Cell("no")),
    )
    (part,) = laid_out(Table("Claims", headers, lines), width, "utf-8")
    assert part.fits
    assert part.gap == 2
    assert max(map(cell_len, part.text_lines())) <= min(width, 100)
    cells = [[each.text for each in line] for line in part.table.lines]
    assert [[" ".join(text.split()) for text in line] for line in cells] == [
        [" ".join(cell.text.split()) for cell in line] for line in lines
    ]
