"""Synthetic query: which sectors a position-only learner needs for which teacher, and uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pjdiag.api import energy, mass
from pjdiag.diagnostics.in_model_rows import wilson
from pjdiag.lab.experiments.base import (
    Claim,
    Experiment,
    Parts,
    Setting,
    mean_row,
    row,
)
from pjdiag.lab.experiments.query_claims import (
    activated_by_energy,
    activated_by_mass,
    jets_need_jets,
    own_set_suffices,
    top_order,
)
from pjdiag.lab.experiments.query_task import (
    HEADS,
    MAX_ORDER,
    QUICK_STEPS,
    SECTOR_SETS,
    STEPS,
    TEACHERS,
    TEST,
    TRAIN_LENGTH,
    Teacher,
    aligned,
    bits_and_labels,
    train_learners,
)
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from pjdiag.position.parameters import SlopeForm
from pjdiag.results import Result, Row
from pjdiag.terms import Sector

NAME = "synthetic-query"
COMMAND = f"pjdiag reproduce {NAME}"
SEEDS = (0, 1, 2)
HOLDER = ModelConfig(
    method="full",
    vocab_size=2,
    train_length=TRAIN_LENGTH,
    embed_dim=2 * HEADS,
    num_heads=HEADS,
    layers=1,
    max_order=MAX_ORDER,
    mlp_ratio=1,
    slope_form=SlopeForm.SIGNED,
)
Measured = Mapping[str, Sequence[Mapping[str, Any]]]
"""By sector set, what ``learned`` gave."""


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Every teacher, sector set and seed."""
    steps, seeds = (QUICK_STEPS, SEEDS[:1]) if setting.quick else (STEPS, SEEDS)
    found = parts.each(
        {name: partial(learned, name, seeds, steps) for name in SECTOR_SETS},
        setting.workers,
        of={name: [steps, list(seeds), TEST] for name in SECTOR_SETS},
        done=lambda name: setting.report(f"{NAME}: sectors {name} done"),
    )
    return list(rows_of(found))


def learned(sector_set: str, seeds: Sequence[int], steps: int) -> list[dict[str, Any]]:
    """Train the learners of one sector set, and test them: one JSON object each."""
    learners = train_learners(SECTOR_SETS[sector_set], TEACHERS, seeds, steps)
    with torch.no_grad():
        weights = learners.weights()
    found = []
    pairs = [(teacher, seed) for teacher in TEACHERS for seed in seeds]
    for index, (teacher, seed) in enumerate(pairs):
        accuracy, trials = answered_share(teacher, weights[index], seed)
        parameters = learners.head_parameters(index)
        found.append(
            {
                "teacher": teacher.name,
                "seed": seed,
                "accuracy": accuracy,
                "trials": trials,
                "r2": aligned(weights[index].double().numpy(), teacher.weights()),
                "sectors": diagnosed(parameters) if sector_set == "full" else None,
            }
        )
    return found


def answered_share(teacher: Teacher, weights: Tensor, seed: int) -> tuple[float, int]:
    """Share of fresh queries that ``weights`` ``[L - 1]`` answer as the teacher, and how many."""
    wanted = torch.from_numpy(teacher.weights())[None]
    bits, labels = bits_and_labels(wanted, [torch.Generator().manual_seed(2_000 + seed)], TEST)
    told = labels[0] != 0
    right = ((bits[0] @ weights).sign() == labels[0])[told]
    return float(right.double().mean()), int(told.sum())


def diagnosed(parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """Shares of mass and of energy by sector, and of mass by order, of one learner's PJ-bias.

    The energy is that of the lags 0..L-1, their mean taken out as softmax does.
    """
    model = CausalLM(HOLDER)
    bias = model.get_submodule("blocks.0.attn.pj_bias")
    with torch.no_grad():
        for name, values in parameters.items():
            bias.get_parameter(name).copy_(values)
    by_mass = mass(model)
    by_energy = energy(model, centred=True)
    return {
        "sector_share": {s.value: _share(by_mass, s, "sector_share") for s in Sector},
        "energy_share": {
            s.value: _share(by_energy, s, "energy_share", bucket="all") for s in Sector
        },
        "order_share": [
            each["order_share"]
            for each in by_mass.select(scope="model", sector="fj+lc")
            if each["jet_order"] is not None
        ],
    }


def _share(result: Result, sector: Sector, figure: str, **where: Any) -> float:
    found = [
        each[figure]
        for each in result.select(scope="model", sector=sector.value, **where)
        if each[figure] is not None and (sector is Sector.AFFINE or each["jet_order"] is None)
    ]
    return float(found[0])


def rows_of(measured: Measured) -> Iterator[Row]:
    """Rows of every learner, then those over seeds."""
    for sector_set, values in measured.items():
        for teacher in TEACHERS:
            own = [value for value in values if value["teacher"] == teacher.name]
            for value in own:
                yield from _of_learner(sector_set, value)
            for figure in ("accuracy", "r2"):
                numbers = [value[figure] for value in own]
                yield _mean(teacher.name, sector_set, figure, numbers)
            for part, figure in _uses(own[0]):
                numbers = [_uses(value)[part, figure] for value in own]
                yield _mean(teacher.name, sector_set, figure, numbers, part)


def _of_learner(sector_set: str, value: Mapping[str, Any]) -> Iterator[Row]:
    of: dict[str, Any] = {"variant": sector_set, "seed": value["seed"]}
    of["eval_length"] = TRAIN_LENGTH
    low, high = wilson(value["accuracy"], value["trials"])
    rest: dict[str, Any] = {"ci_low": low, "ci_high": high, "n": value["trials"]}
    yield row(NAME, value["teacher"], "accuracy", value["accuracy"], **rest, **of)
    yield row(NAME, value["teacher"], "r2", value["r2"], **of)
    for (part, figure), share in _uses(value).items():
        yield row(NAME, value["teacher"], figure, share, part=part, **of)


def _mean(
    teacher: str, sector_set: str, figure: str, numbers: Sequence[float], part: str | None = None
) -> Row:
    rest = {"part": part, "eval_length": TRAIN_LENGTH}
    return mean_row(NAME, teacher, figure, numbers, variant=sector_set, **rest)


def _uses(value: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Shares by part and figure; none but of ``full``."""
    found: dict[tuple[str, str], float] = {}
    shares = value["sectors"] or {}
    for figure in ("sector_share", "energy_share"):
        for sector, share in shares.get(figure, {}).items():
            found[f"sector:{sector}", figure] = share
    for order, share in enumerate(shares.get("order_share", [])):
        found[f"order:{order}", "order_share"] = share
    return found


EXPERIMENT = Experiment(
    name=NAME,
    question=(
        f"Which sectors does a learner need to answer queries about {TRAIN_LENGTH - 1} bits as a "
        f"teacher kernel does, and which does it use? {HEADS} heads attend by a PJ-bias alone, "
        "their weighted sum is the answer; affine and light-cone teachers weigh by softmax(4 K), "
        "jets by K, signed"
    ),
    run=run,
    claims=(
        Claim(
            "the set with the teacher's sector is as good as full",
            "a teacher is answered by the sectors that hold it",
            COMMAND,
            own_set_suffices,
        ),
        Claim(
            "jet teachers need jets",
            "affine recency alone does not answer a jet teacher",
            COMMAND,
            jets_need_jets,
        ),
        Claim(
            "full activates the teacher's sector, by mass",
            "the teacher's sector has the largest effective mass",
            COMMAND,
            activated_by_mass,
        ),
        Claim(
            "full activates the teacher's sector, by energy",
            "the teacher's sector has the largest energy",
            COMMAND,
            activated_by_energy,
        ),
        Claim(
            "full activates the teacher's jet order",
            "the jets' mass is largest at the teacher's order",
            COMMAND,
            top_order,
        ),
    ),
    seeds=SEEDS,
)
