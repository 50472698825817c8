"""Claims of language and of length extrapolation, on rows made by hand."""

from __future__ import annotations

import pytest

from pjdiag.lab.experiments import language, length_extrapolation
from pjdiag.lab.experiments.base import row
from pjdiag.lab.experiments.run_figures import over_seeds
from pjdiag.lab.streams import LANGUAGES

from .trained import parts_of, quick_setting, use_small_streams

CLAIMS = {claim.name: claim.finding for claim in language.EXPERIMENT.claims}
FAR = {claim.name: claim.finding for claim in length_extrapolation.EXPERIMENT.claims}


def sectors(figure, affine, length, models=None, half=0.01):
    """Rows of the full models: ``affine``, and 0.2 and 0.1 for the others."""
    models = models or [(name, seed) for name in LANGUAGES for seed in range(3)]
    return [
        row(
            "language",
            subject,
            figure,
            value,
            variant="full",
            seed=seed,
            part=f"sector:{sector}",
            eval_length=length,
            ci_low=value - half,
            ci_high=value + half,
        )
        for subject, seed in models
        for sector, value in (("fj", 0.2), ("affine", affine), ("lc", 0.1))
    ]


@pytest.mark.parametrize(
    ("claim", "figure", "length"),
    [
        ("affine share of effective mass", "sector_share", None),
        ("affine share of kernel energy", "energy_share", 128),
        ("removal of the affine sector", "loo_delta_nll", 128),
    ],
)
def test_affine_leads_or_does_not(claim, figure, length):
    found = CLAIMS[claim](sectors(figure, 0.7, length))
    assert found.holds is True
    assert "in 9 of 9 models: 0.7; the larger of the other two 0.2" in found.text
    assert CLAIMS[claim](sectors(figure, 0.15, length)).holds is False
    some = sectors(figure, 0.7, length, [("wikitext2", 0)])
    assert CLAIMS[claim](some).holds is None
    assert "in 1 of 1 models" in CLAIMS[claim](some).text
    one_behind = sectors(figure, 0.7, length)
    one_behind[1] = {**one_behind[1], "value": 0.0}
    assert CLAIMS[claim](one_behind).holds is False
    assert CLAIMS[claim]([]).holds is None
    with_means = [*sectors(figure, 0.7, length), *over_seeds(sectors(figure, 0.7, length))]
    assert CLAIMS[claim](with_means) == found


def test_the_removal_says_whether_the_intervals_lie_apart():
    apart = CLAIMS["removal of the affine sector"](sectors("loo_delta_nll", 0.7, 128))
    assert apart.text.endswith("Its interval lies above the others' in 9 of 9.")
    near = CLAIMS["removal of the affine sector"](sectors("loo_delta_nll", 0.7, 128, half=0.3))
    assert near.holds is True
    assert near.text.endswith("in 0 of 9.")


def at_longest(values, subjects=LANGUAGES):
    return [
        row("language", name, "nll", value, variant=method, seed=seed, eval_length=32_768)
        for name in subjects
        for method, by_seed in values.items()
        for seed, value in enumerate(by_seed)
    ]


def test_the_best_at_the_longest_is_told_with_its_rival_and_seeds():
    claim = CLAIMS["best at 32,768"]
    found = claim(at_longest({"rope_ntk_affine": [1.5, 1.7], "full": [1.8], "rope": [9.0]}))
    assert found.holds is True
    assert "wikitext2: 1.600 (2 seeds), place 1 of 3; best of the others full 1.800" in found.text
    behind = claim(at_longest({"rope_ntk_affine": [1.9], "full": [1.8], "affine": [1.85]}))
    assert behind.holds is False
    assert "place 3 of 3; best of the others full 1.800 (1 seed)" in behind.text
    assert claim(at_longest({"rope_ntk_affine": [1.5], "full": [1.8]}, ["wikitext2"])).holds is None
    assert claim([]).holds is None


def test_a_bucket_is_not_taken_for_the_whole_window():
    rows = at_longest({"rope_ntk_affine": [1.5], "full": [1.8]})
    buckets = [{**each, "part": "bucket:train", "value": 0.0} for each in rows]
    claim = CLAIMS["best at 32,768"]
    assert claim([*rows, *buckets]) == claim(rows)


def by_length(growth):
    return [
        row(
            "length-extrapolation",
            "tinyshakespeare",
            "nll",
            2.0 * (1 if length == 128 else factor),
            variant=method,
            seed=seed,
            eval_length=length,
        )
        for method, factors in growth.items()
        for seed, factor in enumerate(factors)
        for length in (128, 1280, 32_768)
    ]


@pytest.mark.parametrize("claim", FAR)
def test_pope_reads_far_and_rope_does_not(claim):
    good = {"pope": [1.0, 1.04, 0.98], "rope": [1.5, 1.6, 1.4], "affine": [1.0]}
    found = FAR[claim](by_length(good))
    assert found.holds is True
    assert "pope 0.98 to 1.04, rope 1.4 to 1.6, affine 1" in found.text
    assert "PoPE reads, RoPE does not read" in found.text
    assert FAR[claim](by_length({**good, "pope": [1.0, 1.0, 1.06]})).holds is False
    assert FAR[claim](by_length({**good, "rope": [1.0, 1.0, 1.0]})).holds is False
    assert FAR[claim](by_length({**good, "pope": [1.0]})).holds is None
    assert FAR[claim]([]).holds is None


@pytest.mark.parametrize("module", [language, length_extrapolation])
def test_a_quick_run_has_rows_of_every_kind_and_decides_nothing(module, tmp_path, monkeypatch):
    use_small_streams(monkeypatch)
    small = language.Wanted((128, 256), windows=(128,), loo_length=128, test_bytes=512)
    monkeypatch.setattr(module, "QUICK", small)
    rows = module.run(quick_setting(tmp_path), parts_of(tmp_path))
    assert {each["experiment"] for each in rows} == {module.NAME}
    figures = {each["figure"] for each in rows}
    more = {"sector_share", "order_share", "energy_share", "loo_delta_nll"}
    assert figures >= ({"nll"} | (more if module is language else set()))
    assert all(claim.finding(rows).holds is None for claim in module.EXPERIMENT.claims)
    assert module.EXPERIMENT.seeds == (0, 1, 2)
