"""The rows and claims of the synthetic query experiment, and a tiny run of it."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import pjdiag
from pjdiag.lab.experiments.base import Parts, Setting, chosen, stated
from pjdiag.lab.experiments.query_claims import (
    activated_by_energy,
    activated_by_mass,
    jets_need_jets,
    own_set_suffices,
    top_order,
)
from pjdiag.lab.experiments.query_task import QUICK_STEPS, SECTOR_SETS, TEACHERS, TEST, Learners
from pjdiag.lab.experiments.synthetic_query import (
    EXPERIMENT,
    answered_share,
    diagnosed,
    learned,
    rows_of,
)

BY_NAME = {teacher.name: teacher for teacher in TEACHERS}


def crafted(
    accuracy: dict[tuple[str, str], float] | None = None, sectors: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Rows where each teacher is held by the sets with its sector, and activates that sector."""
    measured: dict[str, list[dict[str, Any]]] = {}
    for name, sector_set in SECTOR_SETS.items():
        for teacher in TEACHERS:
            used = (sectors or {}).get(teacher.name, teacher.sector.value)
            shares = {s: 0.8 if s == used else 0.1 for s in ("fj", "affine", "lc")}
            orders = [0.7 if order == teacher.order else 0.1 for order in range(4)]
            usual = 0.95 if teacher.sector in sector_set else 0.6
            for seed in range(3):
                value = (accuracy or {}).get((teacher.name, name), usual)
                measured.setdefault(name, []).append(
                    {
                        "teacher": teacher.name,
                        "seed": seed,
                        "accuracy": value + 0.001 * seed,
                        "trials": 1000,
                        "r2": value,
                        "sectors": {
                            "sector_share": shares,
                            "energy_share": shares,
                            "order_share": orders,
                        }
                        if name == "full"
                        else None,
                    }
                )
    return list(rows_of(measured))


def test_rows_are_of_every_learner_and_over_seeds() -> None:
    rows = crafted()
    accuracies = chosen(rows, figure="accuracy")
    assert len(accuracies) == 6 * 5 * (3 + 1)
    mean = chosen(accuracies, subject="jet_2", variant="fj", seed=None)[0]
    assert (mean["value"], mean["n"]) == (pytest.approx(0.951), 3)
    assert mean["ci_low"] == pytest.approx(0.951 - 4.30265 * 0.001 / 3**0.5, abs=1e-6)
    assert {each["variant"] for each in chosen(rows, figure="sector_share")} == {"full"}
    share = chosen(rows, subject="affine", figure="energy_share", part="sector:affine", seed=2)
    assert [each["value"] for each in share] == [0.8]


def test_all_claims_hold_where_every_teacher_is_found() -> None:
    assert [claim["holds"] for claim in stated(EXPERIMENT, crafted())] == [True] * 5


def test_a_set_that_falls_short_is_told() -> None:
    short = crafted({("jet_3", "fj"): 0.9})
    finding = own_set_suffices(short)
    assert finding.holds is False
    assert finding.text.startswith("4 of 5 teachers")
    no_better = crafted({("light_cone", name): 0.7 for name in SECTOR_SETS})
    assert own_set_suffices(no_better).holds is False
    assert jets_need_jets(crafted({("jet_1", "affine"): 0.949})).holds is False


def test_another_sector_or_order_is_told() -> None:
    rows = crafted(sectors={"light_cone": "fj"})
    for claim in (activated_by_mass, activated_by_energy):
        finding = claim(rows)
        assert finding.holds is False
        assert finding.text.startswith("4 of 5 teachers")
        assert "light_cone: fj 80%" in finding.text
    for each in chosen(rows, subject="jet_1", figure="order_share", part="order:2"):
        each["value"] = 0.9
    assert top_order(rows).text.startswith("2 of 3 jet teachers; jet_1: order 2")


def test_no_rows_tell_nothing() -> None:
    assert {claim["holds"] for claim in stated(EXPERIMENT, [])} == {None}


def test_the_teachers_own_weights_answer_every_query() -> None:
    for teacher in TEACHERS:
        weights = torch.from_numpy(teacher.weights()).float()
        share, trials = answered_share(teacher, weights, 0)
        assert trials == TEST
        assert share > 0.999
        assert answered_share(teacher, -weights, 0)[0] < 0.001


def test_the_diagnosis_is_that_of_the_commands(tmp_path: Path) -> None:
    learners = Learners(SECTOR_SETS["full"], [1])
    with torch.no_grad():
        assert learners.bias is not None
        gates = learners.bias.get_parameter("gate_logits")
        gates.copy_(torch.tensor([0.0, 6.0, 0.0]).expand_as(gates))
        learners.bias.get_parameter("raw_affine_slope").fill_(3.0)
    found = diagnosed(learners.head_parameters(0))
    assert sum(found["sector_share"].values()) == pytest.approx(1)
    assert sum(found["energy_share"].values()) == pytest.approx(1)
    assert sum(found["order_share"]) == pytest.approx(1)
    assert len(found["order_share"]) == 4
    assert found["sector_share"]["affine"] > 0.95
    assert found["energy_share"]["affine"] > 0.95


def test_a_tiny_run_is_kept_and_not_repeated(tmp_path: Path) -> None:
    found = learned("full", (0,), 2)
    assert [each["teacher"] for each in found] == list(BY_NAME)
    assert all(0.3 < each["accuracy"] <= 1 for each in found)
    parts = Parts(tmp_path / "parts", {"tiny": True})
    of = [QUICK_STEPS, [0], TEST]
    used = found[0]["sectors"]
    for name in SECTOR_SETS:
        kept = [{**each, "sectors": used if name == "full" else None} for each in found]
        parts.part(name, partial(list, kept), of)
    said: list[str] = []
    setting = Setting(tmp_path, None, quick=True, workers=1, report=said.append)
    rows = EXPERIMENT.run(setting, parts)
    assert said == [], "everything was measured before"
    assert {each["subject"] for each in rows} == set(BY_NAME)
    assert {each["seed"] for each in rows} == {None, 0}
    assert pjdiag.Result("reproduce", {}, {}, tuple(rows)).to_json()
