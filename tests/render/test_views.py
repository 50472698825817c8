"""Rows of a Result to what a person reads."""

from __future__ import annotations

from typing import Any

import pytest

from pjdiag.errors import DataError
from pjdiag.render.tables import SCREEN_LINES, Table
from pjdiag.render.views import VIEWS, view
from pjdiag.results import Result
from pjdiag.terms import DIAGNOSTICS, Scope
from tests.render.results import (
    EVERY_RESULT,
    HOSTILE,
    JETS,
    bias_rows,
    energy_result,
    fit_result,
    inspect_result,
    inspect_row,
    loo_result,
    mass_result,
    nll_result,
    probe_result,
    probe_rows,
    result,
    rotary_result,
    rotary_rows,
    scope,
)

DETAIL = "Effective mass of the position bias"
COMPACT = "Share of the effective mass by scope"
ROTARY = "Query-key mass of the rotary channels"


def shown(made: Result, by: Scope = Scope.LAYER, *, all_rows: bool = False) -> dict[str, Table]:
    return {table.title: table for table in view(made, by, all_rows)}


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.lines]


def titles(table: Table) -> list[str]:
    return [header.title.replace("\n", " ") for header in table.headers]


def test_every_diagnostic_has_a_view() -> None:
    assert set(VIEWS) == set(EVERY_RESULT)
    assert set(VIEWS) <= set(DIAGNOSTICS)


@pytest.mark.parametrize("name", EVERY_RESULT)
@pytest.mark.parametrize("by", Scope)
@pytest.mark.parametrize("all_rows", [False, True])
def test_every_line_has_a_cell_for_every_header(name: str, by: Scope, all_rows: bool) -> None:
    tables = view(EVERY_RESULT[name], by, all_rows)
    assert tables
    for table in tables:
        assert table.lines
        assert {len(line) for line in table.lines} == {len(table.headers)}


@pytest.mark.parametrize("name", EVERY_RESULT)
def test_a_saved_result_is_shown_like_the_live_one(name: str) -> None:
    live = EVERY_RESULT[name]
    saved = Result.from_json(live.to_json())
    assert view(saved, Scope.HEAD, True) == view(live, Scope.HEAD, True)


def test_mass_has_one_line_per_scope_and_sector() -> None:
    table = shown(mass_result())[DETAIL]
    assert titles(table)[:6] == ["scope", "sector", "share", "gate", "mass", "mean order"]
    assert titles(table)[6:] == ["r=0", "r=1", "r=2", "r=3"]
    lines = texts(table)
    assert [line[:2] for line in lines[:4]] == [
        ["model", "Fourier-jet"],
        ["model", "affine recency"],
        ["model", "light-cone"],
        ["model", "both jets"],
    ]
    assert lines[0][2:] == ["12.0%", "0.33", "9.60", "0.29", "52.6%", "5.3%", "2.6%", "2.6%"]
    assert lines[1][2:] == ["81.0%", "0.33", "64.8", "", "", "", "", ""]
    assert lines[3][2:] == ["", "", "", "0.27", "84.2%", "8.4%", "3.7%", "3.7%"]
    assert [line[0] for line in lines[4::4]] == ["layer 0", "layer 1"]


def test_the_orders_of_both_jets_add_up_in_every_column() -> None:
    lines = texts(shown(mass_result())[DETAIL])
    for column in range(6, 10):
        fj, lc, both = (float(lines[line][column].strip("%")) for line in (0, 2, 3))
        assert fj + lc == pytest.approx(both, abs=0.11)


def test_a_disabled_sector_is_absent_and_a_zero_is_zero() -> None:
    masses = {"fj": [1.0, 0.0], "affine": None, "lc": [0.0, 0.0]}
    lines = texts(shown(mass_result(masses), Scope.MODEL)[DETAIL])
    assert lines[1][1:] == ["affine recency", "absent", "", "", "", "", ""]
    assert lines[2][1:] == ["light-cone", "0%", "0.50", "0", "undefined", "0%", "0%"]
    assert lines[0][2:] == ["100%", "0.50", "8.00", "0", "100%", "0%"]


def test_a_gate_that_rounds_to_zero_does_not_make_a_sector_absent() -> None:
    rows = list(bias_rows(scope(), {"fj": [1.0], "affine": [0.0], "lc": None}))
    for row in rows:
        if row["sector"] == "affine" and row["jet_order"] is None:
            row["sector_gate"] = 0.0
    lines = texts(shown(result("mass", rows), Scope.MODEL)[DETAIL])
    assert lines[1][2:5] == ["0%", "0", "0"]


def test_the_share_of_a_kernel_that_is_zero_is_undefined() -> None:
    masses = {"fj": [0.0, 0.0], "affine": [0.0], "lc": None}
    lines = texts(shown(mass_result(masses), Scope.MODEL, all_rows=True)[DETAIL])
    assert lines[0][2:] == ["undefined", "0.50", "0", "undefined", "undefined", "undefined"]
    assert lines[1][2] == "undefined"


def test_a_figure_that_is_not_finite_is_unknown() -> None:
    rows = [dict(row) for row in bias_rows(scope(), {"fj": [1.0], "affine": [1.0], "lc": None})]
    for row in rows:
        if row["sector_share"] is not None:
            row["sector_share"] = float("nan")
    lines = texts(shown(result("mass", rows), Scope.MODEL)[DETAIL])
    assert [line[2] for line in lines] == ["unknown", "unknown", "absent"]


def test_one_sector_alone_shows_its_masses_and_claims_nothing_about_the_others() -> None:
    table = shown(mass_result().restricted(sector="fj"))[DETAIL]
    assert {line[1] for line in texts(table)} == {"Fourier-jet"}
    assert texts(table)[0][6:] == ["8.00", "0.800", "0.400", "0.400"]
    assert "in logits" in table.note


def test_families_never_share_a_table() -> None:
    rows = [*bias_rows(scope(), {"fj": None, "affine": [2.0], "lc": None})]
    rows += rotary_rows(scope(mechanism="rope"), [40.0])
    tables = shown(result("mass", rows))
    assert set(tables) == {DETAIL, ROTARY}
    assert texts(tables[DETAIL])[1][2] == "100%"
    assert texts(tables[ROTARY]) == [["model", "RoPE", "40.0"]]


def test_rotary_layers_show_their_part_of_the_model() -> None:
    table = shown(rotary_result([[1.0], [3.0]]))[ROTARY]
    assert titles(table) == ["scope", "mechanism", "mass", "of the model"]
    assert texts(table) == [
        ["model", "RoPE", "16.0", "100%"],
        ["layer 0", "RoPE", "4.00", "25.0%"],
        ["layer 1", "RoPE", "12.0", "75.0%"],
    ]
    assert texts(shown(rotary_result([[0.0], [0.0]]))[ROTARY])[1][3] == "undefined"


def test_rotary_orders_are_shares_of_the_rotary_mass() -> None:
    rows = list(rotary_rows(scope(mechanism="pj_rotary"), [3.0, 1.0]))
    table = shown(result("mass", rows))[ROTARY]
    assert texts(table) == [["model", "PJ-rotary", "4.00", "0.25", "75.0%", "25.0%"]]


@pytest.mark.parametrize("by", [Scope.LAYER, Scope.HEAD])
def test_a_large_model_fits_one_screen(by: Scope) -> None:
    tables = shown(mass_result(layers=32, heads=32), by)
    assert sum(len(table.lines) for table in tables.values()) == SCREEN_LINES
    assert [line[0] for line in texts(tables[DETAIL])] == ["model"] * 4
    lines = texts(tables[COMPACT])
    assert lines[0] == [
        "layer 0", "12.0%", "81.0%", "7.0%", "0.27", "84.2%", "8.4%", "3.7%", "3.7%"
    ]  # fmt: skip
    assert tables[COMPACT].hidden == 32 + (1024 if by == Scope.HEAD else 0) - len(lines)


def test_all_rows_shows_everything() -> None:
    tables = shown(mass_result(layers=32, heads=32), Scope.HEAD, all_rows=True)
    assert list(tables) == [DETAIL]
    assert len(tables[DETAIL].lines) == 4 * (1 + 32 + 1024)
    assert tables[DETAIL].hidden == 0


def test_alibi_layers_are_side_by_side_too() -> None:
    tables = shown(mass_result({"fj": None, "affine": [4.0], "lc": None}, layers=32))
    assert texts(tables[COMPACT])[0][:4] == ["layer 0", "absent", "100%", "absent"]


def test_by_picks_the_finest_scope() -> None:
    for by, labels in (
        (Scope.MODEL, {"model"}),
        (Scope.LAYER, {"model", "layer 0"}),
        (Scope.HEAD, {"model", "layer 0", "layer 0 head 0"}),
    ):
        table = shown(mass_result(layers=1, heads=1), by)[DETAIL]
        assert {line[0] for line in texts(table)} == labels


def test_a_head_alone_is_shown_although_by_stops_at_the_model() -> None:
    table = shown(mass_result().restricted(head=1), Scope.MODEL)[DETAIL]
    assert {line[0] for line in texts(table)} == {"layer 0 head 1", "layer 1 head 1"}


def test_energy_has_a_column_per_window_and_ends_in_the_sum() -> None:
    table = shown(energy_result(layers=0))["Functional energy by jet order"]
    assert titles(table) == [
        "scope", "sector", "jet order", "energy at 2,048", "energy at 32,768", "share",
        "kernel energy",
    ]  # fmt: skip
    lines = texts(table)
    assert [line[1] for line in lines] == (
        ["both jets"] * 5 + ["Fourier-jet"] * 5 + ["affine recency"] + ["light-cone"] * 5
    )
    assert lines[0][2:5] == ["0", "0.950", "0.950"]
    assert lines[4][2:] == ["all", "", "", "100%", "0.500"]
    assert lines[10][2:] == ["all", "", "", "100%", "0.500"]


def test_a_degenerate_denominator_is_named_and_not_printed_as_a_number() -> None:
    cancelling: dict[str, Any] = {"fj": [None, None], "lc": [0.5, 0.5], "fj+lc": [0.9, 0.8]}
    lines = texts(shown(energy_result(cancelling, layers=0))["Functional energy by jet order"])
    assert [line[4] for line in lines if line[1] == "Fourier-jet"][:2] == ["degenerate"] * 2


def test_energy_of_many_layers_is_one_line_each() -> None:
    tables = shown(energy_result(layers=32))
    assert sum(len(table.lines) for table in tables.values()) == SCREEN_LINES
    (compact,) = (table for title, table in tables.items() if "by scope" in title)
    assert texts(compact)[0] == ["layer 0", "0.950", "0.250", "0.100", "0.0500", "0.500"]


def test_lag_buckets_are_columns_in_words() -> None:
    tables = shown(energy_result(layers=0))
    table = tables["Functional energy by lag bucket, 32,768 tokens"]
    assert titles(table)[3:] == ["train", "1-4 L"]
    assert texts(table)[0] == ["model", "both jets", "0", "0.950", "0.950"]


def test_a_fit_has_a_table_of_its_own() -> None:
    made = fit_result({128: (0.5, [0.1, 0.7, 0.0]), 512: (None, [None] * 3)}, layers=0)
    (table,) = view(made, Scope.MODEL, False)
    assert titles(table) == [
        "scope", "lags", "explained", "affine recency kernel energy", "Fourier-jet kernel energy",
        "light-cone kernel energy",
    ]  # fmt: skip
    assert texts(table) == [
        ["model", "128", "50.0%", "0.100", "0.700", "0"],
        ["model", "512", "undefined", "degenerate", "degenerate", "degenerate"],
    ]
    both = (*energy_result(layers=0).rows, *made.rows)
    assert [table.title for table in view(result("energy", both), Scope.MODEL, False)] == [
        "Functional energy by jet order",
        "Functional energy by lag bucket, 32,768 tokens",
        "Sectors fitted to the tabulated bias",
    ]


def test_one_jet_sector_is_not_shown_twice() -> None:
    only_fj = {"fj": [1.0, 0.5], "fj+lc": [1.0, 0.5], "affine": [1.0]}
    table = shown(energy_result(only_fj, layers=0))["Functional energy by jet order"]
    assert {line[1] for line in texts(table)} == {"Fourier-jet", "affine recency"}


REMOVALS = {
    **{f"order:{r}": 0.1 / 10**r for r in range(4)},
    **{f"{s}:{r}": 0.05 / 10**r for s in ("fj", "lc") for r in range(4)},
    **{f"sector:{s}": 0.4 for s in ("fj", "affine", "lc")},
}


def test_loo_has_one_line_per_removal_and_scope() -> None:
    made = loo_result({"order:2": 3.1e-4, "fj:2": 1e-4, "lc:2": 0.0}, layers=2)
    (table,) = view(made, Scope.LAYER, False)
    assert titles(table) == ["scope", "removed", "prior KL at 32,768", "delta MSE at 32,768"]
    assert texts(table)[0] == ["model", "order:2", "3.10e-4", "0.0100"]
    assert texts(table)[2] == ["model", "lc:2", "0", "0.0100"]
    assert len(table.lines) == 9
    assert "delta MSE restates energy; prior KL is the figure to read" in table.note


def test_loo_with_a_target_of_its_own_does_not_restate_energy() -> None:
    made = loo_result({"order:2": 3.1e-4})
    own = Result.from_dict({**made.to_dict(), "provenance": {"target": "given"}})
    (table,) = view(own, Scope.LAYER, False)
    assert "restates" not in table.note


def test_loo_over_many_layers_is_one_line_each() -> None:
    full, compact = view(loo_result(REMOVALS, layers=32), Scope.LAYER, False)
    assert len(full.lines) + len(compact.lines) == SCREEN_LINES
    assert titles(compact)[1:] == [
        "order 0", "order 1", "order 2", "order 3", "sector fj", "sector affine", "sector lc"
    ]  # fmt: skip
    assert compact.hidden == 32 - len(compact.lines)


def test_probe_has_a_column_per_bucket() -> None:
    top1, margin = view(probe_result(), Scope.LAYER, False)
    assert titles(top1) == ["scope", "precision", "train", "1-4 L", "16-32 L", "32-64 L"]
    assert texts(top1) == [
        ["model", "fp32", "100.0%".replace(".0", ""), "90.0%", "70.0%", "50.0%"],
        ["model", "int8", "100%", "80.0%", "40.0%", "0%"],
    ]
    assert texts(margin)[0] == ["model", "fp32", *["0.0123"] * 4]
    assert "chance is 1 in 32,767" in top1.note


def test_probe_shows_more_figures_with_all() -> None:
    names = [table.title for table in view(probe_result(), Scope.LAYER, True)]
    assert len(names) == 4  # no trained decision in these rows
    assert any("64 lags" in name for name in names)


def test_probe_shows_the_trained_decision_of_the_model_alone() -> None:
    rows = probe_result(layers=1).rows
    decided = tuple(
        {**row, "hard_pair_accuracy": 0.5, "random_pair_accuracy": 0.9}
        if row["scope"] == "model" and row["precision"] == "fp32"
        else row
        for row in rows
    )
    _, _, decision = view(result("probe", decided), Scope.LAYER, False)
    assert texts(decision) == [
        ["model", "nearest confuser", "50.0%", "50.0%", "50.0%", "50.0%"],
        ["model", "random lag", "90.0%", "90.0%", "90.0%", "90.0%"],
    ]
    assert "chance is 50%" in decision.note


def test_an_unknown_hit_rate_keeps_its_line() -> None:
    rows = list(probe_rows(scope(), {"fp32": {"train": None}}))
    top1, _ = view(result("probe", rows), Scope.MODEL, False)
    assert texts(top1) == [["model", "fp32", "unknown"]]


def test_probe_names_variants_and_families_only_where_they_differ() -> None:
    buckets = {"fp32": {"train": 1.0}}
    rows = [
        *probe_rows(scope(), buckets, variant="raw", family="additive"),
        *probe_rows(scope(), buckets, variant="lc", family="multiplicative"),
    ]
    _, top1, *_ = view(result("probe", rows), Scope.MODEL, True)
    assert [line[1:3] for line in texts(top1)] == [["raw", "additive"], ["lc", "multiplicative"]]


def test_coordinates_open_with_scale_against_resolution() -> None:
    buckets = {"fp32": {"train": 1.0, "x1_4": 0.9, "x16_32": 0.25}, "int8": {"x16_32": 0.0}}
    figures = {"norm_growth": 7.5, "hard_pair_accuracy": 0.5, "random_pair_accuracy": 1.0}
    rows = [
        {**made, **figures}
        for variant in ("raw", "lc")
        for made in probe_rows(scope(), buckets, variant=variant)
    ]
    (trade_off,) = view(result("probe", rows), Scope.MODEL, False)
    assert trade_off.title.startswith("Scale against resolution")
    lines = texts(trade_off)
    assert [line[0] for line in lines] == ["raw", "lc"]
    assert lines[0][1:4] == ["7.50", "90.0%", "25.0%"]
    assert lines[0][-2:] == ["50.0%", "100%"]


def test_names_stay_raw_in_a_view() -> None:
    layers, _ = view(inspect_result([inspect_row(0, HOSTILE)]), Scope.LAYER, False)
    assert texts(layers)[0][1] == HOSTILE


def test_a_diagnostic_without_a_view_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="no table is known for the diagnostic 'other'"):
        view(Result("other", {}, {}, ()), Scope.MODEL, False)


def test_a_result_without_rows_has_no_tables() -> None:
    for name in VIEWS:
        assert view(result(name, []), Scope.HEAD, False) == []


def test_energy_shares_the_buckets_with_orders_that_exist() -> None:
    affine_only = {"affine": JETS["affine"]}
    tables = shown(energy_result(affine_only, layers=0))
    assert list(tables) == ["Functional energy by jet order"]


def test_nll_by_length_and_position_and_attention() -> None:
    tables = shown(nll_result({128: 1.61, 512: 1.7}), Scope.MODEL)
    assert texts(tables["Loss per byte by context length"]) == [
        ["128", "1.610", "1.590 to 1.630", "3", "384"],
        ["512", "1.700", "1.680 to 1.720", "3", "1,536"],
    ]
    by_position = tables["Loss by position in the window"]
    assert titles(by_position) == ["context (tokens)", "train", "1-4 L"]
    assert texts(by_position) == [["128", "1.610", ""], ["512", "1.700", "1.870"]]
    looks = ["2.00", "7.39", "31.5", "4.0%"]
    assert texts(tables["Where attention looks"]) == [
        ["model", "128", *looks],
        ["model", "512", *looks],
    ]
    every = shown(nll_result({128: 1.61, 512: 1.7}), Scope.HEAD, all_rows=True)
    lines = texts(every["Where attention looks"])
    assert len(lines) == 5 * (2 + 3)
    assert lines[-1] == ["layer 1 head 0", "512", "1-4 L", *looks]


def test_nll_within_training_has_one_table() -> None:
    assert list(shown(nll_result({128: 1.61}, attention=False))) == [
        "Loss per byte by context length"
    ]
