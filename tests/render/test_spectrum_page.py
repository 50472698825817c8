"""What a person reads of a rotary spectrum."""

from __future__ import annotations

import math

import pytest

from pjdiag.render.sentences import headline, next_command
from pjdiag.render.tables import SCREEN_LINES, Table
from pjdiag.render.views import view
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import TURNS, result, scope, spectrum_result, spectrum_rows

BINS = "Rotary mass by wavelength"
BANDS = "Share of the rotary mass by band"
EVERY = "Every rotary channel"


def shown(made: Result, by: Scope = Scope.LAYER, *, all_rows: bool = False) -> dict[str, Table]:
    return {table.title: table for table in view(made, by, all_rows)}


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in line] for line in table.lines]


def titles(table: Table) -> list[str]:
    return [header.title.replace("\n", " ") for header in table.headers]


def model(masses, **shared) -> Result:
    return result("spectrum", list(spectrum_rows(scope(mechanism="rope"), masses, **shared)))


def test_the_sentence_says_which_wavelengths_are_used() -> None:
    assert headline(spectrum_result()) == (
        "20% of the RoPE mass turns in less than 16 tokens (2 of 5 channels), 60% more slowly (2), "
        "20% not once within the training length of 128 (1)"
    )


def test_the_sentence_about_a_head_names_it() -> None:
    said = headline(spectrum_result().restricted(layer=1, head=3))
    assert said.startswith("Layer 1 head 3: 20% of the RoPE mass")


def test_a_model_without_slow_channels_says_so() -> None:
    assert headline(model({6.28: [1.0], 100.0: [3.0]})) == (
        "25% of the RoPE mass turns in less than 16 tokens (1 of 2 channels), 75% more slowly (1), "
        "none longer than the training length of 128"
    )


def test_layers_with_two_thetas_have_no_channel_counts() -> None:
    said = headline(model({6.28: [1.0], 1000.0: [3.0]}, channel=None))
    assert said == (
        "25% of the RoPE mass turns in less than 16 tokens, 0% more slowly, "
        "75% not once within the training length of 128"
    )
    assert "frequencies" in titles(shown(model(TURNS, channel=None))[BINS])


def test_unknown_frequencies_are_unknown() -> None:
    made = model({math.nan: [2.0]})
    assert headline(made) == "The RoPE mass cannot be placed: the frequencies are unknown"
    assert texts(shown(made)[BINS]) == [["unknown", "unknown", "1", "2.00", "100%"]]
    mixed = headline(model({6.28: [1.0], math.nan: [3.0]}))
    assert mixed.endswith(", 75% at an unknown rate (1)")


def test_an_unknown_train_length_is_said() -> None:
    rows = [row for row in spectrum_rows(scope(), {6.28: [1.0], 40.0: [3.0]}) if row["share"]]
    made = result("spectrum", rows, checkpoint={"train_length": None})
    assert headline(made).endswith("75% more slowly (1); the training length is unknown")


def test_mass_that_is_zero_is_zero() -> None:
    assert headline(model({6.28: [0.0]})) == "The RoPE mass is zero"


def test_wavelengths_of_one_band_share_lines_by_powers_of_four() -> None:
    table = shown(spectrum_result())[BINS]
    assert titles(table) == ["band", "wavelength (tokens)", "channels", "mass", "share"]
    assert texts(table) == [
        ["local", "6.28 to 9.00", "2", "16.0", "20.0%"],
        ["mid", "40.0", "1", "32.0", "40.0%"],
        ["mid", "100", "1", "16.0", "20.0%"],
        ["beyond training", "1,000", "1", "16.0", "20.0%"],
    ]
    assert table.lines[1][4].share == pytest.approx(0.4)


def test_orders_have_columns_and_a_channel_may_not_turn() -> None:
    table = shown(model({20.0: [3.0, 1.0], math.inf: [4.0, 0.0]}))[BINS]
    assert titles(table)[-2:] == ["r=0", "r=1"]
    assert texts(table) == [
        ["mid", "20.0", "1", "4.00", "50.0%", "37.5%", "12.5%"],
        ["beyond training", "does not turn", "1", "4.00", "50.0%", "50.0%", "0%"],
    ]


def test_layers_are_one_line_each() -> None:
    table = shown(spectrum_result())[BANDS]
    assert titles(table) == ["scope", "local", "mid", "beyond training", "mass"]
    assert texts(table)[0] == ["model", "20.0%", "60.0%", "20.0%", "80.0"]
    assert [line[0] for line in texts(table)] == ["model", "layer 0", "layer 1"]


def test_a_mechanism_is_named_where_there_are_several() -> None:
    rows = [
        *spectrum_rows(scope(mechanism=None), TURNS),
        *spectrum_rows(scope(0, mechanism="rope"), TURNS),
        *spectrum_rows(scope(1, mechanism="jordan"), TURNS),
    ]
    table = shown(result("spectrum", rows))[BANDS]
    assert [line[1] for line in texts(table)] == ["several", "RoPE", "Jordan-RoPE"]
    assert "of the rotary mass" in headline(result("spectrum", rows))


@pytest.mark.parametrize("by", [Scope.LAYER, Scope.HEAD])
def test_a_large_model_fits_one_screen(by: Scope) -> None:
    turns = {6.28 * 1.2**channel: [1.0] for channel in range(64)}
    tables = shown(spectrum_result(turns, layers=32, heads=8), by)
    assert list(tables) == [BINS, BANDS]
    assert sum(len(table.lines) for table in tables.values()) == SCREEN_LINES
    assert tables[BINS].hidden == 0


def test_the_model_alone_needs_no_table_of_bands() -> None:
    assert list(shown(spectrum_result(), Scope.MODEL)) == [BINS]


def test_one_head_of_every_layer_is_a_table_of_bands() -> None:
    tables = shown(spectrum_result().restricted(head=1), Scope.HEAD)
    assert [line[0] for line in texts(tables[BANDS])] == ["layer 0 head 1", "layer 1 head 1"]
    assert BINS not in tables


def test_all_rows_has_every_channel() -> None:
    table = shown(spectrum_result(), all_rows=True)[EVERY]
    assert len(table.lines) == 5 * 3
    assert texts(table)[2] == ["model", "2", "0.157", "40.0", "mid", "32.0", "40.0%"]


def test_the_next_step_is_to_measure() -> None:
    assert next_command(spectrum_result()) == ("pjdiag kernel runs/model.safetensors --data FILE")


def test_norms_on_data_are_columns_and_shares() -> None:
    made = model(TURNS, norms=True)
    assert headline(made).endswith("(1); on the data 40%, 40% and 20%")
    table = shown(made)[BINS]
    assert titles(table)[-3:] == ["|q| on data", "|k| on data", "share on data"]
    assert [line[-3:] for line in texts(table)] == [
        ["4.24", "5.66", "40.0%"],
        ["3.00", "4.00", "20.0%"],
        ["3.00", "4.00", "20.0%"],
        ["3.00", "4.00", "20.0%"],
    ]
    every = shown(made, all_rows=True)[EVERY]
    assert texts(every)[0][-3:] == ["3.00", "4.00", "20.0%"]


def test_layers_with_two_thetas_have_shares_on_data_and_no_norms() -> None:
    table = shown(model(TURNS, norms=True, channel=None))[BINS]
    assert titles(table)[-2:] == ["share", "share on data"]


def test_a_layer_without_norms_is_blank() -> None:
    rows = [
        *spectrum_rows(scope(mechanism="rope"), TURNS, norms=True),
        *spectrum_rows(scope(0, mechanism="rope"), TURNS),
    ]
    every = shown(result("spectrum", rows), all_rows=True)[EVERY]
    assert texts(every)[-1][-3:] == ["", "", ""]
