"""Spectra whose rotary channels, or whose masses, are not of the same kind."""

from __future__ import annotations

from pathlib import Path

import pytest

import pjdiag
from pjdiag.comparison.comparing import compare
from pjdiag.render.sentences import headline
from pjdiag.results import Result
from tests.diagnostics.runnable import runnable

APART = "spectrum: its channels are not the same ones (12 channels in the first, 24 channels in"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("spectra")
    (made / "text.txt").write_bytes(b"to be or not to be, that is the question. " * 20)
    return made


@pytest.fixture(scope="module")
def rope(folder: Path) -> Result:
    return on_data(folder, "rope")


@pytest.fixture(scope="module")
def pope(folder: Path) -> Result:
    return on_data(folder, "pope")


def on_data(folder: Path, method: str) -> Result:
    path = runnable(folder / f"{method}.safetensors", method)
    return pjdiag.spectrum(path, folder / "text.txt", windows=1)


def test_channels_of_other_numbers_are_not_matched(rope: Result, pope: Result) -> None:
    made = compare(rope, pope)
    assert sum(APART in text for text in made.warnings) == 1
    assert made.rows
    assert {row["channel"] for row in made.rows} == {None}
    assert "Wavelength" not in headline(made)
    assert "channel" not in headline(made)
    assert "rows only the" not in " ".join(made.warnings)


def test_the_mass_on_data_stands_beside_the_mass_on_data(rope: Result, pope: Result) -> None:
    for a, b in ((rope, pope), (pope, rope)):
        made = compare(a, b)
        assert {"mass", "share"}.isdisjoint(row["figure"] for row in made.rows)
        assert any("not compared; the mass on the data is" in text for text in made.warnings)
        (beyond,) = made.select(scope="model", figure="data_mass", band="beyond")
        bands = [each.select(scope="model", band="beyond", channel=None)[0] for each in (a, b)]
        assert [beyond["value_a"], beyond["value_b"]] == [row["data_mass"] for row in bands]


def test_without_data_on_one_side_nothing_is_compared(folder: Path, pope: Result) -> None:
    made = compare(folder / "rope.safetensors", pope)
    assert made.rows == ()
    assert any("save both with `pjdiag spectrum --data FILE -o" in text for text in made.warnings)


def test_other_frequencies_under_the_same_numbers_come_last(folder: Path) -> None:
    paths = [
        runnable(folder / f"{base}.safetensors", "rope", seed, rope_base=base)
        for seed, base in enumerate((1e4, 2e4))
    ]
    made = compare(*paths, diagnostics=["spectrum"])
    told = [text for text in made.warnings if "turn at other frequencies" in text]
    assert len(told) == 1
    assert "11 of 12, matched by number" in told[0]  # the first turns by 1 rad in both
    figures = [row["figure"] for row in made.rows if row["difference"]]
    ranks = [figure in ("inv_freq", "wavelength") for figure in figures]
    assert ranks == sorted(ranks)
    assert True in ranks
    assert "avelength" not in headline(made)
    assert headline(made).startswith("Mass of")


def test_the_same_channels_are_compared_as_before(folder: Path, rope: Result) -> None:
    other = runnable(folder / "other.safetensors", "rope", 5)
    second = pjdiag.spectrum(other, folder / "text.txt", windows=1)
    made = compare(rope, second)
    assert made.warnings == ()
    assert len(made.select(scope="model", figure="mass", jet_order=0)) == 12
    assert {"mass", "share", "data_mass"} <= {row["figure"] for row in made.rows}


def test_two_of_pope_are_compared_by_channel(pope: Result, folder: Path) -> None:
    other = runnable(folder / "second.safetensors", "pope", 5)
    made = compare(pope, pjdiag.spectrum(other, folder / "text.txt", windows=1))
    assert not [text for text in made.warnings if "channels" in text or "not compared" in text]
    assert len(made.select(scope="model", figure="mass", jet_order=0)) == 24
