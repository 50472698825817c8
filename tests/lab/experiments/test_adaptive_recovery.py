"""Adaptive recovery: small runs land on their teachers; what reads them is the diagnostics."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch

import pjdiag
from pjdiag.lab.experiments.adaptive_cards import write_teachers
from pjdiag.lab.experiments.adaptive_fit import Learned, holder, learn, start
from pjdiag.lab.experiments.adaptive_reading import MEASURES, Read, fits, readings
from pjdiag.lab.experiments.adaptive_recovery import EXPERIMENT, QUICK_STEPS, measure
from pjdiag.lab.experiments.kernel_targets import OMEGA, TARGETS
from pjdiag.lab.native import save_model
from pjdiag.samples import sample

EXPECTED = {
    "phase": "fj:0",
    "linear": "affine",
    "first_jet": "fj:1",
    "second_jet": "fj:2",
    "third_jet": "fj:3",
    "recency_weak_jet": "affine",
    "lc_core": "lc",
    "lc_affine": "lc",
}


@cache
def quick(name: str) -> dict[str, Any]:
    """One restart of the quick run."""
    return measure(name, QUICK_STEPS, restarts=1)


@pytest.mark.parametrize("name", TARGETS)
def test_sector_and_order_of_every_teacher_are_recovered_by_every_measure(name):
    values = quick(name)
    assert Learned(**values["learned"]).r2 > 0.999
    sector = EXPECTED[name].partition(":")[0]
    for of, figures in values["read"][0].items():
        found = Read(**figures).found
        whole = of != "gate" and sector == "fj"
        assert found.startswith(EXPECTED[name] if whole else sector), of


def test_the_teachers_are_the_eight_that_are_expected():
    stated = {
        name: target.sector.value + ("" if target.order is None else f":{target.order}")
        for name, target in TARGETS.items()
    }
    assert stated == EXPECTED


@pytest.mark.parametrize(
    ("found", "name", "right"),
    [
        ("fj:2", "second_jet", True),
        ("fj:1", "second_jet", False),
        ("lc:2", "second_jet", False),
        ("fj", "second_jet", True),
        ("lc:3", "lc_core", True),
        ("affine", "lc_affine", False),
    ],
)
def test_a_wrong_sector_or_order_is_no_recovery(found, name, right):
    assert fits(found, TARGETS[name]) is right


def test_restarts_share_nothing():
    """Each restart is a head: alone it comes to the same."""
    both = learn(TARGETS["phase"], steps=30, restarts=2, seed=4)
    again = learn(TARGETS["phase"], steps=30, restarts=2, seed=4)
    assert both.errors == again.errors
    assert len(both.parameters) == 2
    assert both.parameters[0] != both.parameters[1]
    assert both.best == min((0, 1), key=lambda head: both.errors[head])


def test_only_the_frequency_is_given():
    bias = start(3, seed=0)
    kernel = bias.kernel()
    assert kernel.omega.tolist() == [OMEGA] * 3
    assert kernel.slope.tolist() == [0.0] * 3
    assert kernel.gates.detach().numpy() == pytest.approx(1 / 3)


def test_the_checkpoint_holds_the_learned_kernel(tmp_path):
    learned = Learned(**quick("second_jet")["learned"])
    model = holder(learned.parameters[0])
    lags = torch.arange(1024.0)
    found = model.blocks[0].attn.pj_bias(lags)[0].detach().double().numpy()
    error = ((found - TARGETS["second_jet"].kernel(lags.double().numpy())) ** 2).mean()
    assert error == pytest.approx(learned.errors[0], rel=0.02)


def test_leave_one_out_is_against_the_teacher(tmp_path):
    """Removing everything costs the teacher's mean square, less what the fit misses."""
    path = tmp_path / "model.safetensors"
    save_model(holder(Learned(**quick("linear")["learned"]).parameters[0]), path)
    read = readings(path, TARGETS["linear"])
    assert set(read) == set(MEASURES)
    assert read["loo"].sectors["affine"] == pytest.approx(1 / 3, rel=0.02)


def test_claims_tell_hits_from_misses():
    rows = _rows({"first_jet": "fj:2"})
    finding = EXPERIMENT.claims[0].finding(rows)
    assert finding.holds is False
    assert "first_jet reads fj:2 by mass" in finding.text
    assert "7 of 8 by mass" in finding.text
    assert EXPERIMENT.claims[0].finding(_rows({})).holds is True


def _rows(misread: dict[str, str]) -> list[dict[str, Any]]:
    from pjdiag.lab.experiments.base import row

    found = []
    for name, target in TARGETS.items():
        for of in MEASURES:
            part = misread.get(name, EXPECTED[name])
            hit = float(fits(part, target))
            found.append(row("adaptive-recovery", name, "recovered", hit, variant=of, part=part))
            found.append(row("adaptive-recovery", name, "recovered_share", hit, variant=of, n=3))
    return found


def test_teachers_are_written_with_their_card(tmp_path):
    learned = {name: Learned(**quick(name)["learned"]) for name in ("phase", "linear")}
    write_teachers(tmp_path, learned, _rows({}), QUICK_STEPS)
    assert {path.name for path in tmp_path.iterdir()} == {
        "phase.safetensors",
        "linear.safetensors",
        "card.json",
        "README.md",
    }
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["teachers"]["phase"]["expected"] == "fj:0"
    assert "| `linear` | x | affine | affine |" in (tmp_path / "README.md").read_text()


SHIPPED = sample().parent.parent / "adaptive_teachers"


@pytest.mark.parametrize("name", TARGETS)
def test_the_shipped_teachers_are_read_right(name):
    path = SHIPPED / f"{name}.safetensors"
    assert path.stat().st_size < 100_000
    for of, read in readings(path, TARGETS[name]).items():
        assert fits(read.found, TARGETS[name]), of


def test_mass_names_order_1_of_the_shipped_first_jet():
    rows = pjdiag.mass(SHIPPED / "first_jet.safetensors").select(scope="model", sector="fj+lc")
    shares = {row["jet_order"]: row["order_share"] for row in rows if row["jet_order"] is not None}
    assert max(shares, key=lambda order: shares[order]) == 1
    assert shares[1] > 0.5


def test_the_card_says_what_the_shipped_teachers_are():
    card = json.loads((SHIPPED / "card.json").read_text(encoding="utf-8"))
    assert card["recipe"]["steps"] == 1500
    assert {name: each["expected"] for name, each in card["teachers"].items()} == EXPECTED
    for name, each in card["teachers"].items():
        read = readings(SHIPPED / f"{name}.safetensors", TARGETS[name])
        assert each["found"] == {of: found.found for of, found in read.items()}
        assert each["r2"] > 0.9999
