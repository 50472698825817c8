"""Adaptive recovery: does a learned PJ-bias land on the sector and the order of its teacher?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pjdiag.lab.experiments.adaptive_cards import write_teachers
from pjdiag.lab.experiments.adaptive_fit import STEPS, Learned, holder, learn
from pjdiag.lab.experiments.adaptive_reading import MEASURES, Read, fits, readings
from pjdiag.lab.experiments.base import Claim, Experiment, Finding, Parts, Setting, chosen, row
from pjdiag.lab.experiments.kernel_targets import TARGETS, TRAIN_LENGTH, Target
from pjdiag.lab.native import save_model
from pjdiag.results import Row

NAME = "adaptive-recovery"
SEED = 0
RESTARTS, QUICK_RESTARTS = 8, 2
QUICK_STEPS = 600
COMMAND = f"pjdiag reproduce {NAME}"


def measure(name: str, steps: int, restarts: int) -> dict[str, Any]:
    """Learn one teacher, and read every restart by every measure: plain values."""
    target = TARGETS[name]
    learned = learn(target, steps=steps, restarts=restarts, seed=SEED)
    read = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.safetensors")
        for parameters in learned.parameters:
            save_model(holder(parameters), path)
            read.append({of: asdict(each) for of, each in readings(path, target).items()})
    return {"learned": asdict(learned), "read": read}


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Every teacher; the best restart of each is left in ``adaptive_teachers/``."""
    steps = QUICK_STEPS if setting.quick else STEPS
    restarts = QUICK_RESTARTS if setting.quick else RESTARTS
    done = parts.each(
        {name: partial(measure, name, steps, restarts) for name in TARGETS},
        setting.workers,
        {n: {"steps": steps, "restarts": restarts, "seed": SEED} for n in TARGETS},
        lambda name: setting.report(f"{NAME}: {name} learned"),
    )
    rows, learned = [], {}
    for name, values in done.items():
        learned[name] = Learned(**values["learned"])
        read = [{of: Read(**each) for of, each in found.items()} for found in values["read"]]
        rows += list(_rows(TARGETS[name], learned[name], read))
    write_teachers(setting.folder / "adaptive_teachers", learned, rows, steps)
    return rows


def _rows(target: Target, learned: Learned, read: Sequence[dict[str, Read]]) -> list[Row]:
    best = read[learned.best]
    rows = [
        row(NAME, target.name, "r2_inside", learned.r2, n=TRAIN_LENGTH),
        row(NAME, target.name, "mse", min(learned.errors), unit="logit^2", n=TRAIN_LENGTH),
    ]
    for measure_name, (sector_figure, order_figure) in MEASURES.items():
        found = best[measure_name]
        landed = [fits(each[measure_name].found, target) for each in read]
        rows += [
            row(
                NAME,
                target.name,
                "recovered",
                float(fits(found.found, target)),
                variant=measure_name,
                part=found.found,
            ),
            row(
                NAME,
                target.name,
                "recovered_share",
                sum(landed) / len(landed),
                variant=measure_name,
                n=len(landed),
            ),
        ]
        rows += [
            row(
                NAME, target.name, sector_figure, value, variant=measure_name, part=f"sector:{name}"
            )
            for name, value in found.sectors.items()
        ]
        rows += [
            row(
                NAME,
                target.name,
                order_figure or "",
                value,
                variant=measure_name,
                part=f"{name}:{r}",
            )
            for name, values in found.orders.items()
            for r, value in enumerate(values)
        ]
    return rows


def _recovered(rows: Sequence[Row], measures: Sequence[str], sector_only: bool) -> Finding:
    parts_found, missed = [], []
    for name in measures:
        landed = chosen(rows, figure="recovered", variant=name)
        if not landed:
            return Finding("nothing was learned", None)
        parts_found.append(
            f"{sum(each['value'] == 1 for each in landed)} of {len(landed)} by {name}"
        )
        missed += [
            f"{each['subject']} reads {each['part']} by {name}"
            for each in landed
            if each["value"] != 1
        ]
    shares = [
        each["value"] for each in chosen(rows, figure="recovered_share", variant=tuple(measures))
    ]
    restarts = max(each["n"] for each in chosen(rows, figure="recovered_share"))
    text = ", ".join(parts_found)
    text += f"; not: {', '.join(missed)}" if missed else ""
    text += f"; of all {restarts} restarts {100 * sum(shares) / len(shares):.0f}%"
    text += " (sectors only)" if sector_only else ""
    return Finding(text, not missed and len(chosen(rows, figure="recovered")) >= len(TARGETS))


EXPERIMENT = Experiment(
    name=NAME,
    question="which sector and order does a learned PJ-bias land on, of eight teacher kernels",
    run=run,
    claims=(
        Claim(
            "sector and order are recovered by mass, energy and leave-one-out",
            "8 of 8 teachers: FJ/0, affine, FJ/1, FJ/2, FJ/3, affine, LC, LC",
            COMMAND,
            partial(_recovered, measures=("mass", "energy", "loo"), sector_only=False),
        ),
        Claim(
            "the gate lands on the teacher's sector",
            "the largest gate is that of the teacher's sector, 8 of 8",
            COMMAND,
            partial(_recovered, measures=("gate",), sector_only=True),
        ),
    ),
    seeds=(SEED,),
)
