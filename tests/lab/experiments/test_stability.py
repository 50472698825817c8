"""The trade-off between scale and resolution: of the coordinates, and read from checkpoints."""

from __future__ import annotations

from functools import partial

import pytest

from pjdiag.lab.experiments import stability
from pjdiag.lab.experiments.base import Setting, chosen, row
from pjdiag.lab.experiments.parts import Parts
from pjdiag.lab.experiments.stability_runs import FinishedRun, finished_runs, measure_run, run_rows
from pjdiag.lab.native import save_model
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

CLAIMS = {claim.name: claim for claim in stability.EXPERIMENT.claims}
BOUNDED, LOST, TRAINED = CLAIMS


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A quick run in a folder without trained models."""
    folder = tmp_path_factory.mktemp("reproduce")
    setting = Setting(folder, None, quick=True, workers=1, report=lambda line: None)
    return stability.EXPERIMENT.run(setting, Parts(folder / "parts", {}))


def value(rows, figure, variant):
    (found,) = chosen(rows, figure=figure, variant=variant, eval_length=32768)
    return found["value"]


def test_the_light_cone_trades_resolution_for_scale(rows):
    assert CLAIMS[BOUNDED].finding(rows).holds is True
    assert CLAIMS[LOST].finding(rows).holds is True
    assert value(rows, "norm_max", "lc") < 2 < 200 < value(rows, "norm_max", "scaled")
    for name in ("lc", "lc_amp_only", "clipped", "lc_wrong_scale"):
        assert value(rows, "hard_pair_accuracy", name) == pytest.approx(0.5, abs=0.05)
        assert value(rows, "random_pair_accuracy", name) > 0.9
    for name in ("raw", "scaled", "log", "lc_phase_only"):
        assert value(rows, "hard_pair_accuracy", name) >= 0.97


def test_without_trained_models_nothing_is_said_of_them(rows):
    assert CLAIMS[TRAINED].finding(rows).holds is None


@pytest.mark.parametrize(
    ("claim", "figure", "variant", "wrong"),
    [
        (BOUNDED, "norm_max", "lc", 80.0),
        (LOST, "hard_pair_accuracy", "lc", 0.9),
        (LOST, "hard_pair_accuracy", "log", 0.6),
    ],
)
def test_a_claim_that_does_not_come_out_says_so(rows, claim, figure, variant, wrong):
    spoilt = [
        {**each, "value": wrong} if (each["figure"], each["variant"]) == (figure, variant) else each
        for each in rows
    ]
    assert CLAIMS[claim].finding(spoilt).holds is False


def saved(folder, method, seed, state=False):
    config = ModelConfig(method, layers=1, num_heads=1, embed_dim=16, train_length=64)
    run = folder / f"corpus-{method}-s{seed}"
    save_model(CausalLM(config, seed=seed), run / "model.safetensors", {"seed": seed})
    if state:
        (run / "state.safetensors").write_bytes(b"")
    return run


def test_finished_runs_are_found_and_named(tmp_path):
    for method, seed in (("full", 0), ("full", 1), ("lc_affine", 0), ("none", 0)):
        saved(tmp_path, method, seed)
    saved(tmp_path, "rope", 0, state=True)
    (tmp_path / "else").mkdir()
    found = finished_runs(tmp_path)
    assert [(each.key, each.subject, each.method) for each in found] == [
        ("corpus-full-s0", "corpus", "full"),
        ("corpus-full-s1", "corpus", "full"),
        ("corpus-lc_affine-s0", "corpus", "lc_affine"),
    ]
    assert len({each.digest for each in found}) == 3
    assert finished_runs(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("method", "has", "lacks"),
    [
        (
            "lc_affine",
            {"bias_max", "norm_growth_lc", "hard_pair_accuracy/x16_32"},
            "norm_growth_fj",
        ),
        ("affine", {"bias_max", "effective_support"}, "hard_pair_accuracy/x16_32"),
        ("rope", {"hard_pair_accuracy/x16_32"}, "bias_max"),
    ],
)
def test_a_checkpoint_has_the_figures_of_its_mechanism(tmp_path, monkeypatch, method, has, lacks):
    monkeypatch.setattr("pjdiag.lab.experiments.stability_runs.LENGTH", 64 * 32)
    figures = measure_run(saved(tmp_path, method, 2) / "model.safetensors")
    assert has <= set(figures)
    assert lacks not in figures


def test_rows_of_runs_are_means_over_seeds():
    of = partial(FinishedRun, path=None, subject="corpus", method="full", digest="")
    measured = [(of(f"s{n}"), {"bias_max": float(n), "top1/x16_32": 1.0}) for n in (1, 2, 3)]
    first, second = run_rows("stability", measured)
    assert (first["figure"], first["value"], first["n"]) == ("bias_max", 2.0, 3)
    assert first["ci_low"] == pytest.approx(2 - 2.48414, abs=1e-4)
    assert (second["figure"], second["part"]) == ("top1", "bucket:x16_32")


@pytest.mark.parametrize(("hard", "growth", "holds"), [(0.5, 1.2, True), (0.9, 1.2, False)])
def test_trained_models_are_judged_by_their_light_cone(hard, growth, holds):
    of = {"variant": "lc_affine", "eval_length": 32768}
    rows = [
        row("stability", "corpus", "norm_growth_lc", growth, **of),
        row("stability", "corpus", "hard_pair_accuracy", hard, part="bucket:x128_256", **of),
    ]
    finding = CLAIMS[TRAINED].finding(rows)
    assert finding.holds is holds
    assert "1.20-fold" in finding.text
