"""A table on a width: nothing is cut off, figures stand below each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pjdiag.render.layout import ASCII_ONLY, BOX_DRAWING, bar, glyphs_for, laid_out
from pjdiag.render.tables import Cell, Header, Table

WIDE = 10_000


def table(*lines: tuple[Cell, ...], headers: tuple[Header, ...]) -> Table:
    return Table("title", headers, lines)


def column(*texts: str) -> list[str]:
    made = table(*((Cell(text),) for text in texts), headers=(Header("f", numeric=True),))
    (part,) = laid_out(made, WIDE, "utf-8")
    return [line[0].text for line in part.table.lines]


def test_decimal_points_stand_below_each_other() -> None:
    cells = column("13.4", "0.534", "1,000", "0", "unknown", "3.10e-4")
    points = {cell.find(".") for cell in cells if "." in cell}
    assert len(points) == 1
    units = [len(cell.rstrip()) for cell in cells if cell.strip() in ("1,000", "0")]
    assert {points.pop()} == set(units)
    assert len({len(cell) for cell in cells}) == 1


def test_percents_are_right_aligned_as_they_are() -> None:
    assert column("81.2%", "<0.1%", "100%") == ["81.2%", "<0.1%", " 100%"]


@given(st.floats(0, 1), st.integers(1, 20), st.sampled_from([BOX_DRAWING, ASCII_ONLY]))
def test_a_bar_fills_its_width_and_grows_with_the_share(share, width, glyphs) -> None:
    drawn = bar(share, width, glyphs)
    assert len(drawn) == width
    assert (drawn.strip() == "") == (share == 0)
    assert len(bar(1.0, width, glyphs).rstrip()) == width


def test_bars_and_rules_need_an_encoding_that_has_them() -> None:
    assert glyphs_for("utf-8") is BOX_DRAWING
    assert {glyphs_for(name) for name in ("cp1252", "ascii", "latin-1", "cp437")} == {ASCII_ONLY}


WIDE_TABLE = table(
    *(
        (Cell(f"layer {layer}"), Cell("affine"), *(Cell(f"{layer}.{k}23") for k in range(12)))
        for layer in range(3)
    ),
    headers=(
        Header("scope", key=True, group=True),
        Header("sector", key=True),
        *(Header(f"column {k}", numeric=True) for k in range(12)),
    ),
)


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120, 500])
def test_a_wide_table_is_split_and_its_keys_repeated(width: int) -> None:
    parts = list(laid_out(WIDE_TABLE, width, "utf-8"))
    shown = [header.title.strip() for part in parts for header in part.table.headers]
    assert [title for title in shown if title.startswith("column")] == [
        f"column {k}" for k in range(12)
    ]
    for part in parts:
        assert part.table.headers[0].title.strip() == "scope"
        assert all(cell_len(line) <= width for line in part.text_lines())
        assert all(cell_len(line) <= width for line in part.header_lines())


def test_what_cannot_fit_is_left_to_wrap_in_full() -> None:
    headers = (Header("k", key=True), Header("v"))
    (part,) = laid_out(table((Cell("key"), Cell("x" * 90)), headers=headers), 40, "utf-8")
    assert not part.fits
    assert part.table.lines[0][1].text == "x" * 90


def test_wide_characters_keep_the_columns_straight() -> None:
    made = table(
        (Cell("模型"), Cell("1.0")),
        (Cell("ab"), Cell("2.0")),
        headers=(Header("name", key=True), Header("f", numeric=True)),
    )
    (part,) = laid_out(made, WIDE, "utf-8")
    assert len({cell_len(line) for line in part.text_lines()}) == 1


def test_a_group_is_named_once_until_an_outer_group_changes() -> None:
    headers = (Header("scope", group=True), Header("sector", group=True), Header("order"))
    lines = [
        ("m", "fj", "0"), ("m", "fj", "1"), ("m", "lc", "0"), ("l", "lc", "0"), ("l", "lc", "1")
    ]  # fmt: skip
    made = table(*(tuple(map(Cell, line)) for line in lines), headers=headers)
    (part,) = laid_out(made, WIDE, "utf-8")
    assert [[cell.text.strip() for cell in line] for line in part.table.lines] == [
        ["m", "fj", "0"],
        ["", "", "1"],
        ["", "lc", "0"],
        ["l", "lc", "0"],
        ["", "", "1"],
    ]


def test_titles_of_several_lines_stand_on_the_last() -> None:
    made = table(
        (Cell("a"), Cell("1")), headers=(Header("scope"), Header("mean\norder", numeric=True))
    )
    (part,) = laid_out(made, WIDE, "utf-8")
    assert list(part.header_lines()) == ["        mean", "scope  order"]


def test_hostile_cells_are_visible() -> None:
    made = table((Cell("a\x1b[2J\n"),), headers=(Header("h\u202e\nb"),))
    (part,) = laid_out(made, WIDE, "cp1252")
    assert re.sub(r"\s+", " ", " ".join(part.header_lines())) == "h\\u202e b"
    assert list(part.text_lines()) == ["a\\x1b[2J\\n"]
