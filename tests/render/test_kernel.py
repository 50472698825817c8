"""Measured kernels as a person reads them."""

from __future__ import annotations

import pytest

from pjdiag.render.sentences import headline, next_command
from pjdiag.render.tables import Table
from pjdiag.render.views import view
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import kernel_result, result, row, scope


def shown(made: Result, by: Scope = Scope.MODEL, *, all_rows: bool = False) -> dict[str, Table]:
    return {table.title: table for table in view(made, by, all_rows)}


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.lines]


def titles(table: Table) -> list[str]:
    return [header.title.replace("\n", " ") for header in table.headers]


def test_the_sentence_names_the_shape_its_fit_and_the_controls() -> None:
    assert headline(kernel_result()) == (
        "Rapidity recency describes the measured kernels of 100% of the heads best (R2 75%, median "
        "of all); the lag moves the logits by a median of 12.0 and makes 43% of their variance; "
        "its R2 is 72% on shuffled tokens and 7.5% with fresh weights"
    )


def test_the_sentence_of_a_head() -> None:
    assert headline(kernel_result().restricted(layer=1, head=0)) == (
        "Layer 1 head 0: rapidity recency describes the measured kernel best (R2 75%); the lag "
        "moves the logits by 12.0 and makes 43% of their variance; its R2 is 72% on shuffled "
        "tokens and 7.5% with fresh weights"
    )


def test_the_sentence_without_controls() -> None:
    made = kernel_result()
    alone = Result("kernel", {}, {}, tuple(r for r in made.rows if r["control"] is None))
    assert headline(alone).endswith("makes 43% of their variance")


def test_a_kernel_that_does_not_vary() -> None:
    where = scope(0, 0)
    rows = [row("kernel", where, side="past"), row("kernel", where, side="past", shape="none")]
    assert "does not vary with the lag" in headline(result("kernel", rows))
    rows[1]["preferred"] = 1.0
    assert headline(result("kernel", rows)).endswith("nothing describes the measured kernel best")


def test_shapes_are_ranked_beside_their_controls() -> None:
    table = shown(kernel_result())["Shapes of the kernels of the model's heads"]
    assert titles(table) == [
        "shape",
        "R2 p10",
        "R2 median",
        "R2 p90",
        "scale (tokens)",
        "best (heads)",
        "R2, shuffled tokens",
        "R2, fresh weights",
    ]
    assert texts(table) == [
        ["rapidity recency", "75.0%", "75.0%", "75.0%", "11.0", "100%", "72.0%", "7.5%"],
        ["linear recency", "55.0%", "55.0%", "55.0%", "", "0%", "52.8%", "5.5%"],
    ]


def test_a_head_has_bic_and_no_percentiles() -> None:
    tables = shown(kernel_result().restricted(layer=0, head=0))
    table = tables["Shapes of the kernel"]
    assert titles(table)[:4] == ["shape", "R2", "scale (tokens)", "BIC"]
    assert texts(table)[0][:4] == ["rapidity recency", "75.0%", "11.0", "-700"]
    assert texts(tables["The kernel by lag"]) == [["0", "0", "0"], ["4", "-2.00", "0.0400"]]


def test_the_sector_fit() -> None:
    table = shown(kernel_result())["Sector fit (medians)"]
    assert titles(table) == ["group", "in order", "alone", "in order, shuffled", "in order, fresh"]
    assert texts(table)[0] == ["affine", "45.0%", "1.0%", "45.0%", "45.0%"]
    assert texts(table)[2] == ["total", "90.0%", "", "90.0%", "90.0%"]


def test_finer_scopes_take_one_line_each() -> None:
    tables = shown(kernel_result(), Scope.LAYER)
    assert "Sector fit (medians)" not in tables
    lines = texts(tables["Kernels by scope"])
    assert [line[0] for line in lines] == ["model", "layer 0", "layer 1"]
    assert lines[1][1:] == ["rapidity recency", "75.0%", "11.0", "12.0", "99.0%", "43.0%", "31.0%"]
    assert "Sector fit (medians)" in shown(kernel_result(), Scope.LAYER, all_rows=True)


def test_the_curve_is_shown_with_all_rows() -> None:
    table = shown(kernel_result(), all_rows=True)["The kernel by lag"]
    assert texts(table)[1] == ["4", "-2.00", "-2.00", "-2.00", "0.0400"]


def test_both_sides_of_an_encoder() -> None:
    made = kernel_result(sides=("past", "future"))
    assert headline(made).startswith("Towards earlier tokens rapidity recency describes the ")
    assert headline(made).endswith("; towards later ones rapidity recency (R2 75%)")
    tables = shown(made)
    assert [title for title in tables if title.startswith("Shapes")] == [
        "Shapes of the kernels of the model's heads, past side",
        "Shapes of the kernels of the model's heads, future side",
    ]


@pytest.mark.parametrize(
    ("mechanism", "command"),
    [("rope", "pjdiag mass runs/model.safetensors"), (None, "pjdiag mass runs/model.safetensors")],
)
def test_next(mechanism: str | None, command: str) -> None:
    made = result("kernel", [row("kernel", scope(mechanism=mechanism), side="past")])
    assert next_command(made) == command


def test_absolute_positions_have_no_mass() -> None:
    made = result("kernel", [row("kernel", scope(mechanism="learned_absolute"), side="past")])
    assert next_command(made) == "pjdiag inspect runs/model.safetensors"


def test_total_and_residual_stay_where_groups_are_left_out() -> None:
    fit = [
        row("kernel", scope(), side="past", group=group, statistic="median", incremental_r2=0.01)
        for group in (*(f"F{number}" for number in range(60)), "total", "residual")
    ]
    table = shown(result("kernel", [*kernel_result().rows[:3], *fit]))["Sector fit (medians)"]
    assert [line[0].text for line in table.lines][-2:] == ["total", "residual"]
    assert table.hidden > 30


@pytest.mark.parametrize(
    ("shape", "scale", "shown_as"),
    [
        ("rapidity_recency", 1024.0, ">=1,024"),
        ("rapidity_recency", 0.5, "<=0.500"),
        ("rapidity_recency", 11.0, "11.0"),
        ("damped", 4 * 60.0, ">=240"),
        ("damped", 239.0, "239"),
        ("step", 240.0, "240"),
    ],
)
def test_a_scale_at_the_end_of_its_search_is_a_bound(
    shape: str, scale: float, shown_as: str
) -> None:
    where = scope(0, 0)
    shared = {"side": "past", "shape": shape}
    rows = [row("kernel", where, **shared, r2=0.9, preferred=1.0, fitted_scale=scale)]
    made = result("kernel", rows, provenance={"length": 64, "skip_first": 4})
    for table in view(made, Scope.HEAD, all_rows=False)[:2]:
        at = titles(table).index("scale (tokens)")
        assert texts(table)[0][at].strip() == shown_as
        assert ("at the end of the range" in table.note) == (shown_as[0] in "<>")


def test_a_window_ends_the_search_earlier() -> None:
    shared = {"side": "past", "shape": "damped", "r2": 0.9, "preferred": 1.0, "fitted_scale": 64.0}
    rows = [row("kernel", scope(layer, 0), **shared) for layer in (0, 1)]
    windows = {"length": 64, "skip_first": 4, "sliding_windows": {"1": 16}}
    table = view(result("kernel", rows, provenance=windows), Scope.HEAD, all_rows=False)[1]
    assert [line[3].strip() for line in texts(table)] == ["64.0", ">=64.0"]
