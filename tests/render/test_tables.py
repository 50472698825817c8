"""One screen for all tables together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pjdiag.render.tables import BLANK, SCREEN_LINES, Cell, Header, Table, shorten


def of_length(number: int) -> Table:
    return Table("t", (Header("a"),), ((BLANK,),) * number)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_what_is_shown_and_what_is_hidden_are_all_lines(lengths: list[int]) -> None:
    short = shorten([of_length(number) for number in lengths])
    assert [len(table.lines) + table.hidden for table in short] == lengths
    assert sum(len(table.lines) for table in short) == min(sum(lengths), SCREEN_LINES)


def test_two_long_tables_share_the_screen() -> None:
    short = shorten([of_length(99), of_length(99)])
    assert [len(table.lines) for table in short] == [12, 12]


def test_a_total_at_the_end_stays() -> None:
    lines = tuple((Cell(str(number)),) for number in range(100))
    (short,) = shorten([Table("t", (Header("a"),), lines, last=2)])
    assert [line[0].text for line in short.lines][-3:] == ["21", "98", "99"]
    assert short.left_out == "76 of 100 rows left out"
    assert Table("t", (Header("a"),), lines).left_out == ""
