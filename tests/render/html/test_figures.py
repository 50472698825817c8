"""Figures from rows that are not as usual."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pjdiag
from pjdiag.render.html.drawers import figures_of
from pjdiag.render.html.figure import UNSEEN, heat, rounded
from pjdiag.render.html.lags import removal_figures
from pjdiag.render.html.measured import kernel_figures, loss_figures, spectrum_figures
from pjdiag.render.html.weights import energy_figures, energy_left_out, share_figures
from pjdiag.results import Result
from pjdiag.terms import DIAGNOSTICS, FIGURE_KINDS, KEYS
from tests.render.results import EVERY_RESULT

SAMPLES = Path(pjdiag.sample()).parent.parent


def loss(length, nll, low=None, high=None, bucket="all"):
    return {
        "scope": "model",
        "eval_length": length,
        "bucket": bucket,
        "nll": nll,
        "ci_low": low,
        "ci_high": high,
        "windows": 1,
        "tokens": length,
    }


def test_a_point_without_an_interval_does_not_cost_the_others_theirs():
    result = Result("nll", {}, {}, (loss(128, 1.5, 1.4, 1.7), loss(512, 1.6)))
    figure = next(loss_figures(result))
    bars = figure.traces[0]["error_y"]
    assert bars["array"] == pytest.approx([0.2, 0.0])
    assert bars["arrayminus"] == pytest.approx([0.1, 0.0])


def test_no_interval_is_drawn_where_there_is_none():
    result = Result("nll", {}, {}, (loss(128, 1.5), loss(512, 1.6)))
    assert "error_y" not in next(loss_figures(result)).traces[0]


@pytest.mark.parametrize(
    ("diagnostic", "draw"),
    [
        ("nll", loss_figures),
        ("kernel", kernel_figures),
        ("spectrum", spectrum_figures),
        ("energy", energy_figures),
        ("mass", share_figures),
    ],
)
def test_nothing_is_drawn_of_nothing(diagnostic, draw):
    assert list(draw(Result(diagnostic, {}, {}, ()))) == []


def test_a_cell_without_a_figure_is_empty_in_the_map():
    cells = {(0, 0): 0.25, (0, 1): None, (2, 1): float("nan")}
    (trace,), _ = heat(cells, unit="share", share=True)
    assert trace["z"] == [[0.25, None], [None, None]]
    assert trace["text"] == [["25%", ""], ["", ""]]
    assert trace["y"] == ["0", "2"]


def test_layers_and_heads_are_in_order_in_a_map():
    cells = {(layer, head): 0.0 for layer in (10, 2, 1) for head in (3, 11, 0)}
    (trace,), _ = heat(cells, unit="logit")
    assert trace["y"] == ["1", "2", "10"]
    assert trace["x"] == ["0", "3", "11"]
    assert (trace["zmin"], trace["zmax"]) == (-0.5, 0.5)


def test_labels_in_two_inks_are_of_one_size_and_each_is_seen_once():
    cells = {(0, head): value for head, value in enumerate((0.0078, 1.9, None, 0.11))}
    (dark, bright), layout = heat(cells, unit="nats")
    assert dark["z"] == [[0.0078, 1.9, None, 0.11]]
    assert bright["z"] == [[None, 1.9, None, None]]
    assert (dark["zmin"], dark["zmax"]) == (bright["zmin"], bright["zmax"]) == (0.0078, 1.9)
    assert [text.strip(UNSEEN) for text in dark["text"][0]] == ["0.0078", "", "", "0.11"]
    assert [text.strip(UNSEEN) for text in bright["text"][0]] == ["", "1.9", "", ""]
    assert [len(text) for text in dark["text"][0]] == [len(text) for text in bright["text"][0]]
    assert (bright["showscale"], bright["hoverinfo"], layout["showlegend"]) == (
        False,
        "skip",
        False,
    )


def removed(*sizes: float) -> Result:
    rows = [
        {"scope": "model", "removed": f"order:{r}", "eval_length": 128, "prior_kl": size}
        for r, size in enumerate(sizes)
    ]
    return Result("loo", {}, {}, tuple({**row, "loo_delta_mse": 1.0} for row in rows))


@pytest.mark.parametrize(
    ("sizes", "kind"), [((0.7, 1.5), None), ((1e-5, 0.7), "log"), ((0.0, 0.7), None)]
)
def test_the_scale_of_removals_is_logarithmic_where_bars_else_vanish(sizes, kind):
    (figure,) = removal_figures(removed(*sizes))
    assert figure.layout["yaxis"].get("type") == kind
    assert figure.switch == "y"


def test_an_energy_without_orders_has_no_figure_of_them_and_says_why():
    """ALiBi is one sector of one order; its ratio to the sector's sum is not defined."""
    alibi = pjdiag.energy(SAMPLES / "language_alibi")
    drawn = list(energy_figures(alibi))
    assert [figure.name for figure in drawn] == ["energy-window", "energy-bucket"]
    assert energy_left_out(alibi, drawn) == (
        "no figure by jet order: no sector here has several orders",
    )
    full = pjdiag.energy(pjdiag.sample())
    drawn = list(energy_figures(full))
    assert "energy-order" in [figure.name for figure in drawn]
    assert energy_left_out(full, drawn) == ()


def test_figures_are_json_numbers():
    assert [rounded(value) for value in (float("inf"), float("nan"), True, None)] == [
        None,
        None,
        True,
        None,
    ]


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_a_figure_that_is_missing_somewhere_is_left_out_of_the_pictures(name: str) -> None:
    result = EVERY_RESULT[name]
    for column in DIAGNOSTICS[name]:
        if column.kind in FIGURE_KINDS and column.name not in KEYS.get(name, ()):
            for every in (1, 3):
                rows = [
                    {**row, column.name: None} if number % every == 0 else row
                    for number, row in enumerate(result.rows)
                ]
                drawn = figures_of(replace(result, rows=tuple(rows)))
                assert len({figure.name for figure in drawn}) == len(drawn)
