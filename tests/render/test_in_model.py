"""How retrieval by a running model is told: a grid where it is found, one line where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pjdiag.errors import DataError
from pjdiag.render.html.behaviour import probe_figures, tradeoff_figures
from pjdiag.render.html.notebook import fragment
from pjdiag.render.sentences import headline, next_command
from pjdiag.render.views import view
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import probe_result, result, row, scope

Top1 = Mapping[int, Mapping[float | None, float]]

FOUND: Top1 = {512: {0.0: 0.9, 1.0: 1.0, None: 0.95}, 2048: {0.0: 0.2, 1.0: 0.8, None: 0.5}}
CHANCE: Top1 = {512: {0.0: 0.2, 1.0: 0.3, None: 0.25}, 2048: {0.0: 0.25, 1.0: 0.15, None: 0.2}}


def made(top1: Top1) -> Result:
    rows = [
        row(
            "probe",
            scope(mechanism=None),
            eval_length=length,
            depth=depth,
            top1=share,
            chance=0.25,
            trials=20 if depth is not None else 20 * (len(depths) - 1),
            ci_low=max(0.0, share - 0.15),
            ci_high=min(1.0, share + 0.15),
            mean_rank=4 - 3 * share,
            other_key_top1=0.1,
            retrieved=share > 0.45,
        )
        for length, depths in top1.items()
        for depth, share in depths.items()
    ]
    return result("probe", rows, provenance={"in_model": True, "lengths": list(top1)})


def test_a_grid_of_lengths_and_depths() -> None:
    top1, ranks = view(made(FOUND), Scope.MODEL, False)
    assert top1.title == "The right value ranks first (top-1)"
    titles = [header.title.replace("\n", " ") for header in top1.headers]
    assert titles == [
        "context (tokens)",
        "depth 0",
        "depth 1",
        "all depths",
        "95% interval",
        "other key",
    ]
    lines = [[cell.text for cell in line] for line in top1.lines]
    assert lines == [
        ["512", "90.0%", "100%", "95.0%", "80% to 100%", "10.0%"],
        ["2,048", "20.0%", "80.0%", "50.0%", "35% to 65%", "10.0%"],
    ]
    assert "20 contexts of each length and depth; chance is 25%" in top1.note
    assert [cell.text for cell in ranks.lines[1]] == ["2,048", "3.40", "1.60", "2.50"]
    assert ranks.note == "1 is first of 4 values; chance is 2.50"


def test_all_rows_are_printed_one_a_line() -> None:
    (table,) = view(made(FOUND), Scope.MODEL, True)
    assert len(table.lines) == 6
    assert [cell.text for cell in table.lines[3]] == [
        "2,048", "0", "20.0%", "5.0% to 35%", "10.0%", "20", "3.40", "no",
    ]  # fmt: skip
    assert [cell.text for cell in table.lines[5]][1:3] == ["all", "50.0%"]


def test_chance_is_one_line_for_each_length() -> None:
    (table,) = view(made(CHANCE), Scope.MODEL, False)
    lines = [[cell.text for cell in line] for line in table.lines]
    assert lines == [
        ["512", "25.0%", "10% to 40%", "10.0%", "40"],
        ["2,048", "20.0%", "5.0% to 35%", "10.0%", "40"],
    ]
    assert len(view(made(CHANCE), Scope.MODEL, True)[0].lines) == 6


@pytest.mark.parametrize(
    ("top1", "sentence"),
    [
        (
            FOUND,
            "The model retrieves the right value in 95% of contexts of 512 tokens and 50% of 2,048 "
            "(chance 25%); least at depth 0 of 2,048 tokens, 20%",
        ),
        (
            {512: FOUND[512]},
            "The model retrieves the right value in 95% of contexts of 512 tokens (chance 25%)",
        ),
        (
            CHANCE,
            "The model does not retrieve at any length or depth: all at chance (25%)",
        ),
        ({512: CHANCE[512]}, "The model does not retrieve at any depth: all at chance (25%)"),
        ({512: {0.5: 0.3}}, "The model does not retrieve at 512 tokens: all at chance (25%)"),
        (
            {512: {0.5: 0.3}, 2048: {0.5: 0.2}},
            "The model does not retrieve at any length: all at chance (25%)",
        ),
    ],
)
def test_the_sentence(top1: Top1, sentence: str) -> None:
    assert headline(made(top1)) == sentence


def not_retrieved(top1: Top1) -> Result:
    found = made(top1)
    rows = tuple({**row, "retrieved": False} for row in found.rows)
    return replace(found, rows=rows, _frame=[])


def test_a_preference_for_a_place_is_not_called_retrieval() -> None:
    place = not_retrieved({512: {0.0: 0.0, 1.0: 0.7, None: 0.35}})
    assert headline(place) == (
        "The model does not retrieve at any depth: 70% at depth 1 of 512 tokens, above chance "
        "(25%), do not depend on the key"
    )
    every = not_retrieved({512: {0.0: 0.45, 1.0: 0.75, None: 0.6}})
    assert headline(every) == (
        "The model does not retrieve at any depth: what is above chance (25%) does not depend on "
        "the key"
    )


def test_a_depth_that_is_above_chance_by_luck_is_not_called_so() -> None:
    """One of six rows may be; the table shows whole lengths, and none of them is above chance."""
    by_luck = made({512: {0.0: 0.44, 1.0: 0.2, None: 0.32}, 2048: CHANCE[2048]})
    assert any(row["ci_low"] > row["chance"] for row in by_luck.rows)
    (table,) = view(by_luck, Scope.MODEL, False)
    assert [line[1].text for line in table.lines] == ["32.0%", "20.0%"]
    assert headline(by_luck) == (
        "The model does not retrieve at any length or depth: all at chance (25%)"
    )


def test_a_figure_only_of_what_is_found() -> None:
    (figure,) = probe_figures(made(FOUND))
    assert figure.name == "probe-in-model"
    assert [trace["name"] for trace in figure.traces] == ["512 tokens", "2,048 tokens", "chance"]
    assert figure.traces[1]["y"] == [0.2, 0.8]
    assert "up to 95% over all depths, at 512 tokens" in figure.caption
    assert list(probe_figures(made(CHANCE))) == []
    with pytest.raises(DataError, match="no figure of this probe result"):
        made(CHANCE).plot()


def test_it_is_never_taken_for_position_codes() -> None:
    assert list(tradeoff_figures(made(FOUND), probe_result())) == []
    assert "chance (25%)" in fragment(made(CHANCE))
    assert next_command(made(FOUND)) == "pjdiag loo runs/model.safetensors --data FILE"
    assert next_command(made(CHANCE)) == "pjdiag nll runs/model.safetensors --data FILE"
    assert "position codes" in headline(probe_result(layers=1))
