"""Rows, intervals and claims of experiments."""

from __future__ import annotations

import math

import pytest

from pjdiag.errors import UsageError
from pjdiag.lab.experiments.base import Setting, chosen, interval, outcome, row
from pjdiag.lab.experiments.registry import NAMES, available, experiment
from pjdiag.results import Result
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS

T_975 = {2: 12.7062047, 3: 4.30265273, 11: 2.22813885, 12: 2.20098516, 31: 2.04227246}
"""Of Student's t with n - 1 degrees of freedom, from a table."""


@pytest.mark.parametrize("count", T_975)
def test_the_interval_is_that_of_students_t(count):
    values = [math.sin(i) for i in range(count)]
    mean, low, high = interval(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1))
    assert mean == pytest.approx(sum(values) / count)
    half = T_975[count] * deviation / math.sqrt(count)
    assert (mean - low, high - mean) == pytest.approx((half, half), rel=1e-4)


def test_one_value_has_no_interval():
    assert interval([2.5]) == (2.5, None, None)


def test_a_row_has_every_column_and_six_digits():
    made = row("language", "wikitext2", "nll", 1.23456789, variant="full", seed=2, ci_low=math.nan)
    assert set(made) == {c.name for c in (*SCOPE_COLUMNS, *DIAGNOSTICS["reproduce"])}
    assert (made["value"], made["ci_low"], made["seed"]) == (1.23457, None, 2)
    assert row("a", "b", "c", 0.0, layer=1)["scope"] == "layer"
    assert row("a", "b", "c", 0.0, layer=1, head=0)["scope"] == "head"
    with pytest.raises(KeyError, match="sector"):
        row("a", "b", "c", 0.0, sector="fj")


def test_rows_are_chosen_by_value_or_by_any_of_several():
    rows = [row("a", "b", "nll", float(n), variant=v) for n, v in enumerate("xyz")]
    assert [each["value"] for each in chosen(rows, variant="y")] == [1.0]
    assert [each["value"] for each in chosen(rows, variant={"x", "z"})] == [0.0, 2.0]


def test_a_missing_text_is_named(tmp_path):
    def setting(data):
        return Setting(tmp_path, data, quick=True, workers=1, report=print)

    with pytest.raises(UsageError, match=r"no texts.*a\.txt"):
        setting(None).require_data("a.txt")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=r"has no b\.txt"):
        setting(tmp_path).require_data("a.txt", "b.txt")
    assert setting(tmp_path).require_data("a.txt") == (tmp_path / "a.txt",)


def test_every_experiment_is_there():
    assert available() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_says_what_it_asks_and_claims(name):
    made = experiment(name)
    assert made.name == name
    assert made.question
    assert made.claims
    assert len({claim.name for claim in made.claims}) == len(made.claims)
    for claim in made.claims:
        assert claim.paper
        assert claim.command.startswith(f"pjdiag reproduce {name}")


@pytest.mark.parametrize("name", NAMES)
def test_no_claim_holds_of_nothing(name):
    for claim in experiment(name).claims:
        finding = claim.finding([])
        assert finding.holds is None
        assert finding.text


def test_an_unknown_experiment_is_an_error_that_names_the_others():
    with pytest.raises(UsageError, match=r"no experiment 'opera'.*fixed-recovery.*all"):
        experiment("opera")


def test_an_outcome_is_a_result_like_any_other():
    made = experiment("fixed-recovery")
    rows = [row("fixed-recovery", "phase", "r2_inside", 1.0, variant="phase")]
    result = outcome([(made, rows, 0.5)], quick=True, warnings=("one did not run",))
    assert Result.from_json(result.to_json()).to_dict() == result.to_dict()
    assert result.provenance["experiments"][0]["minutes"] == 0.5
    assert [claim["claim"] for claim in result.provenance["claims"]] == [
        claim.name for claim in made.claims
    ]
