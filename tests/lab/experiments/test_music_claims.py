"""Claims of music, on rows made by hand."""

from __future__ import annotations

import pytest

from pjdiag.lab.experiments import music
from pjdiag.lab.experiments.base import chosen, row
from pjdiag.lab.experiments.run_figures import HIGH_ORDERS, over_seeds
from pjdiag.lab.streams import LANGUAGES, MUSIC

from .trained import parts_of, quick_setting, use_small_streams

MASS, LOSS = (claim.finding for claim in music.EXPERIMENT.claims)
FIGURES = (music.SHARE, music.ENERGY, music.LOSS, (music.RELATIVE, 128))


def rows_of(in_music, in_language, subjects=(*MUSIC, *LANGUAGES), seeds=range(3)):
    """Rows of the full models; each seed adds a hundredth, each corpus a thousandth."""
    return [
        row(
            "music",
            subject,
            figure,
            (in_music if subject in MUSIC else in_language + 0.001 * place) + 0.01 * seed,
            variant="full",
            seed=seed,
            part=HIGH_ORDERS,
            eval_length=length,
        )
        for place, subject in enumerate(subjects)
        for seed in seeds
        for figure, length in FIGURES
    ]


@pytest.mark.parametrize("claim", [MASS, LOSS])
def test_music_exceeds_language_or_does_not(claim):
    found = claim(rows_of(0.6, 0.3))
    assert found.holds is True
    assert "difference 0.297 (95% interval 0.297 to 0.297, 3 seeds)" in found.text
    assert "0.6 to 0.62 against language's 0.302 to 0.324" in found.text
    assert claim(rows_of(0.3, 0.3)).holds is False
    assert claim(rows_of(0.2, 0.3)).holds is False
    assert claim(rows_of(0.6, 0.3, seeds=range(2))).holds is None
    assert claim(rows_of(0.6, 0.3, subjects=("chorales", "wikitext2"))).holds is None
    assert claim(rows_of(0.6, 0.3, subjects=("chorales",))).holds is None
    assert claim([]).holds is None


def test_what_is_next_to_nothing_is_told_so():
    rows = rows_of(0.6, 0.3)
    assert "next to nothing" not in MASS(rows).text
    small = [{**each, "value": each["value"] / 1000} for each in rows]
    assert MASS(small).holds is True
    assert MASS(small).text.count("(next to nothing)") == 2 * len(MUSIC)


def test_an_interval_that_holds_0_is_no_difference():
    rows = rows_of(0.31, 0.3)
    for each in rows:
        if each["subject"] == "folk" and each["seed"] == 2:
            each["value"] -= 0.2
    assert MASS(rows).holds is False


def test_both_musics_must_exceed():
    rows = rows_of(0.6, 0.3)
    for each in chosen(rows, subject="folk"):
        each["value"] -= 0.5
    assert MASS(rows).holds is False
    assert LOSS(rows).holds is False


def test_differences_are_rows_with_intervals():
    rows = rows_of(0.6, 0.3)
    found = music.differences([*rows, *over_seeds(rows)])
    assert len(found) == len(MUSIC) * len(FIGURES)
    assert {each["subject"] for each in found} == {f"{name} less language" for name in MUSIC}
    assert all(each["n"] == 3 and each["ci_low"] <= each["value"] for each in found)
    assert [each["value"] for each in found] == pytest.approx([0.297] * len(found))
    assert MASS([*rows, *over_seeds(rows), *found]) == MASS(rows)


def test_the_relative_loss_is_over_the_loss_of_the_same_model():
    named = {"variant": "full", "eval_length": 128}
    rows = [
        row("music", "folk", figure, value, seed=seed, part=part, **named)
        for seed, whole in enumerate((1.0, 2.0))
        for figure, value, part in (("nll", whole, None), ("loo_delta_nll", 0.5, HIGH_ORDERS))
    ]
    assert [each["value"] for each in music.relative(rows)] == [0.5, 0.25]


def test_a_quick_run_compares_and_decides_nothing(tmp_path, monkeypatch):
    use_small_streams(monkeypatch)
    small = music.Wanted((128,), windows=(128,), loo_length=128, test_bytes=512)
    monkeypatch.setattr(music, "QUICK", small)
    rows = music.run(quick_setting(tmp_path), parts_of(tmp_path))
    subjects = {each["subject"] for each in rows}
    assert subjects == {"chorales", "tinyshakespeare", "chorales less language"}
    assert {each["figure"] for each in chosen(rows, subject="chorales less language")} == {
        figure for figure, _ in FIGURES
    }
    for claim in (MASS, LOSS):
        assert claim(rows).holds is None
        assert claim(rows).text.startswith("chorales, ")
