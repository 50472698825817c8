"""What a person reads about a comparison."""

from __future__ import annotations

from pjdiag.comparison.comparing import compared
from pjdiag.comparison.inputs import Input
from pjdiag.render.sentences import headline, next_command
from pjdiag.render.views import view
from pjdiag.results import Result
from pjdiag.terms import Scope
from tests.render.results import compare_result, mass_result, nll_result, rotary_result


def pair(a: Result, b: Result) -> Result:
    named = (("a.pt", a), ("b.pt", b))
    return compared([Input(n, n, None, {r.diagnostic: r}, {}, ()) for n, r in named])


def test_what_rose_and_what_fell() -> None:
    before = mass_result({"fj": [2.0], "affine": [1.0], "lc": [1.0]})
    after = mass_result({"fj": [1.0], "affine": [2.0], "lc": [1.0]})
    assert headline(pair(before, after)) == (
        "Fourier-jet fell from 50% to 25% of the mass; affine recency rose from 25% to 50%; "
        "light-cone stayed at 25%; most in layer 0: Fourier-jet from 50% to 25%"
    )
    assert next_command(pair(before, after)) == "pjdiag mass b.pt --by head"


def test_a_sector_of_one_only() -> None:
    before = mass_result({"fj": [2.0], "affine": [2.0], "lc": None})
    after = mass_result({"fj": [1.0], "affine": [2.0], "lc": [1.0]})
    assert "light-cone is in the last only (25%)" in headline(pair(before, after))


def test_a_sector_without_mass_is_not_absent() -> None:
    silent = mass_result({"fj": None, "affine": None, "lc": [0.0]})
    after = mass_result({"fj": None, "affine": None, "lc": [1.0]})
    assert headline(pair(silent, after)).startswith("Light-cone rose from 0 to 100% of the mass")
    assert headline(pair(after, silent)).startswith("Light-cone fell from 100% to 0 of the mass")
    fewer = mass_result({"fj": None, "affine": None, "lc": [1.0]}, heads=2)
    assert headline(pair(silent, fewer)).startswith("Light-cone rose from 0 to 100% of the mass")


def test_mass_does_not_tell_rotations_of_different_sizes_apart() -> None:
    text = headline(pair(rotary_result([[1.0]], heads=4), rotary_result([[2.0]], heads=8)))
    assert text.startswith("Mass does not tell models with multiplicative positions (RoPE) apart")
    assert text.endswith("compare with --diagnostic spectrum")
    jets = headline(pair(rotary_result([[1.0, 1.0]]), rotary_result([[1.0, 1.0]], heads=8)))
    assert "are the same in a.pt and b.pt" in jets
    sizes = headline(pair(rotary_result([[1.0]]), rotary_result([[2.0]])))
    assert "does not tell" not in sizes
    assert "rose from" in sizes


def test_a_loss_says_whether_it_is_noise() -> None:
    made = pair(nll_result({128: 1.6}), nll_result({128: 1.601}))
    text = headline(made)
    assert text.startswith("Loss of 128 tokens rose from 1.60 to 1.60")
    assert ("within the noise" in text) is bool(made.rows[0]["within_noise"])


def test_a_trajectory_has_a_line_for_each_step() -> None:
    made = compare_result(0.6, 4.05, 8.1)
    assert headline(made).startswith("From step 0 to 200, affine recency rose from ")
    tables = {table.title: table for table in view(made, Scope.MODEL, False)}
    lines = [[cell.text for cell in line] for line in tables["Over training: model"].lines]
    assert [line[0] for line in lines] == ["0", "100", "200"]
    assert lines[2][2] == "81.0%"
    last = "The model: what moved from step-0 to step-200"
    assert [title for title in tables if "what moved" in title] == [last]
    everything = [table.title for table in view(made, Scope.MODEL, True)]
    assert last.replace("200", "100") in everything
