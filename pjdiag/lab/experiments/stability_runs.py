"""Scale and resolution of trained models, read from their checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjdiag.api import probe, read, stability
from pjdiag.lab.experiments.base import mean_row
from pjdiag.lab.run_state import STATE_NAME
from pjdiag.lab.task import MODEL_NAME
from pjdiag.models.config import ModelConfig
from pjdiag.results import Row
from pjdiag.terms import JET_SECTORS

LENGTH = 32768
BUCKET = "x16_32"
"""The lags in which coordinates are compared; of trained models the farthest ones as well."""
LONGEST_BUCKET = "x128_256"
DECIDED = ("hard_pair_accuracy", "random_pair_accuracy", "top1", "within_64")
OF_KERNEL = ("bias_max", "effective_support")


@dataclass(frozen=True)
class FinishedRun:
    """A trained model in the folder of runs."""

    key: str
    """Name of its folder."""
    path: Path
    subject: str
    """What it was trained on: its key without method and seed."""
    method: str
    digest: str


def finished_runs(folder: Path) -> list[FinishedRun]:
    """Every native checkpoint with a position method, from trainings that are over, by name."""
    found = []
    for path in sorted(folder.glob(f"*/{MODEL_NAME}")):
        if (path.parent / STATE_NAME).exists():
            continue
        checkpoint = read(path).checkpoint
        stated = json.loads(checkpoint.metadata["pjdiag"])
        method = ModelConfig.from_metadata(stated).method
        if method == "none":
            continue
        seed = stated["recipe"].get("seed")
        subject = path.parent.name.removesuffix(f"-s{seed}").removesuffix(f"-{method}")
        found.append(FinishedRun(path.parent.name, path, subject, method, checkpoint.digest()))
    return found


def measure_run(path: Path) -> dict[str, float]:
    """Its figures by name, a bucket's with its name behind: plain values."""
    reading = read(path)
    length = reading.train_length.value or 1
    grown = stability(reading, [length, LENGTH])
    figures: dict[str, Any] = {}
    for each in grown.select(scope="model", sector=None, eval_length=LENGTH):
        figures |= {name: each[name] for name in OF_KERNEL}
    for sector in JET_SECTORS:
        near, far = (
            [
                each["norm_max"]
                for each in grown.select(scope="model", sector=sector.value, eval_length=n)
            ]
            for n in (length, LENGTH)
        )
        if near and far:
            figures[f"norm_growth_{sector.value}"] = far[0] / near[0] if near[0] else 1.0
    probed = probe(reading, [LENGTH], precisions=["fp32"])
    for each in probed.select(scope="model"):
        if each["bucket"] in (BUCKET, LONGEST_BUCKET):
            figures |= {f"{name}/{each['bucket']}": each[name] for name in DECIDED}
    return {name: value for name, value in figures.items() if value is not None}


def run_rows(
    experiment: str, measured: Sequence[tuple[FinishedRun, dict[str, float]]]
) -> Iterator[Row]:
    """Means over the seeds of each subject and method, with their intervals."""
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for each, figures in measured:
        groups.setdefault((each.subject, each.method), []).append(figures)
    for (subject, method), found in groups.items():
        for name in dict.fromkeys(name for figures in found for name in figures):
            values = [figures[name] for figures in found if name in figures]
            figure, _, bucket = name.partition("/")
            where = {"eval_length": LENGTH, "part": f"bucket:{bucket}" if bucket else None}
            yield mean_row(experiment, subject, figure, values, variant=method, **where)
