"""Leaving parts out of the running model for a report takes no longer than agreed."""

from __future__ import annotations

from pathlib import Path

import pytest

import pjdiag
from pjdiag.diagnostics.progress import Estimate, no_announcement
from pjdiag.diagnostics.survey_loo import LONGEST, _TooLongError, _within, loo_on_data
from pjdiag.samples import held_out_text


def test_whole_orders_and_sectors_are_removed_and_the_command_says_so(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(held_out_text().read_bytes()[:300])
    options, result = loo_on_data(
        pjdiag.read(pjdiag.sample()), text, seed=3, allow_pickle=False, announce=no_announcement
    )
    removed = {row["removed"] for row in result.rows}
    assert removed == {*(f"order:{r}" for r in range(4)), "sector:fj", "sector:affine", "sector:lc"}
    assert options[:2] == ("--remove", "order:0")
    assert options[-4:] == ("--windows", "32", "--seed", "3")
    assert {row["windows"] for row in result.rows} == {2}


def test_runs_are_announced_unless_they_take_too_long() -> None:
    told: list[Estimate] = []
    announce = _within(told.append)
    short = Estimate(LONGEST - 1, 1)
    announce(short)
    announce(Estimate(None, 1))
    with pytest.raises(_TooLongError):
        announce(Estimate(LONGEST + 1, 1))
    assert told == [short, Estimate(None, 1)]
