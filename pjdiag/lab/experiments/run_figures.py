"""What is measured on one trained run: losses by length, shares, and what each part is worth.

Every length predicts the same bytes, the beginning of the stream's test part, so that lengths
differ in context alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pjdiag import api
from pjdiag.lab.experiments.base import Parts, Setting, mean_row, row
from pjdiag.lab.experiments.training_runs import TrainingRun, recipe_of, train_all
from pjdiag.lab.streams import read_stream
from pjdiag.results import Row
from pjdiag.terms import JET_SECTORS, Sector

TEST_BYTES = 32_768
"""Predicted bytes of each length."""
BUCKETS_FROM = 8192
"""Lengths whose losses are told by position in the window too."""
HIGH_ORDERS = "order:1+order:2+order:3"
"""Every jet order but 0: a removal's name, and the part of a share."""
POOLED = "fj+lc"

Figures = list[dict[str, Any]]
"""Rows without their experiment and run: figure, part, eval_length, value, interval, n, unit."""


@dataclass(frozen=True)
class Wanted:
    """What an experiment measures on its runs."""

    lengths: tuple[int, ...]
    """Tokens of a window whose loss is measured."""
    windows: tuple[int, ...]
    """Windows of lags for the kernel energy."""
    loo_length: int
    """Tokens of a window of the leave-one-out."""
    test_bytes: int = TEST_BYTES


def losses(
    run: TrainingRun, folder: Path, data: Path | None, length: int, size: int, buckets: bool
) -> Figures:
    """Mean NLL over windows of ``length`` tokens, of ``size`` bytes; with ``buckets`` by position
    in the window as well.
    """
    stream = read_stream(run.stream, data)
    ids = np.frombuffer(stream.test[: size + 1], dtype=np.uint8)
    found = api.nll(_model(run, folder), ids, [length], windows=max(1, size // length))
    return [
        {
            "figure": "nll",
            "part": None if each["bucket"] == "all" else f"bucket:{each['bucket']}",
            "eval_length": length,
            "value": each["nll"],
            "ci_low": each["ci_low"],
            "ci_high": each["ci_high"],
            "n": each["windows"],
            "unit": "nats/byte",
        }
        for each in found.select(scope="model")
        if each["nll"] is not None and (each["bucket"] == "all" or buckets)
    ]


def shares(run: TrainingRun, folder: Path, windows: Sequence[int]) -> Figures:
    """Shares of effective mass and of kernel energy; empty without a PJ-bias."""
    if not recipe_of(run).model.sectors:
        return []
    found: Figures = []
    for each in api.mass(_model(run, folder)).select(scope="model", family="additive"):
        part = _part(each["sector"], each["jet_order"])
        if part is None:
            continue
        for figure in ("sector_share", "order_share", "mean_order", "sector_gate"):
            if each[figure] is not None and not (figure == "mean_order" and part != POOLED):
                found.append({"figure": figure, "part": part, "value": each[figure]})
    found += _high(found, "order_share")
    for window in windows:
        energies: Figures = []
        table = api.energy(_model(run, folder), [window])
        for each in table.select(scope="model", bucket="all"):
            part = _part(each["sector"], each["jet_order"])
            for figure in ("energy_share", "kernel_energy"):
                if part not in (None, POOLED) and each[figure] is not None:
                    energies.append({"figure": figure, "part": part, "value": each[figure]})
        energies += _high(energies, "energy_share")
        found += [{**each, "eval_length": window} for each in energies]
    return found


def removals(run: TrainingRun, folder: Path, data: Path | None, length: int, size: int) -> Figures:
    """What the loss gains without each sector and each order; empty without a PJ-bias."""
    sectors = recipe_of(run).model.sectors
    if not sectors:
        return []
    names = [f"sector:{sector.value}" for sector in Sector if sector in sectors]
    if sectors.intersection(JET_SECTORS):
        orders = recipe_of(run).model.max_order + 1
        names += [*(f"order:{order}" for order in range(orders)), HIGH_ORDERS]
    stream = read_stream(run.stream, data)
    ids = np.frombuffer(stream.test[: size + 1], dtype=np.uint8)
    table = api.loo(
        _model(run, folder), ids, lengths=[length], windows=max(1, size // length), remove=names
    )
    ends = {
        "loo_delta_nll": ("ci_low", "ci_high"),
        "control_delta_nll": ("control_low", "control_high"),
    }
    return [
        {
            "figure": figure,
            "part": each["removed"],
            "eval_length": length,
            "value": each[figure],
            "ci_low": each[low],
            "ci_high": each[high],
            "n": each["windows"],
            "unit": "nats/byte",
        }
        for each in table.select(scope="model")
        for figure, (low, high) in ends.items()
    ]


def measured(
    experiment: str,
    runs: Sequence[TrainingRun],
    setting: Setting,
    parts: Parts,
    wanted: Wanted,
    kinds: Sequence[str] = ("nll", "shares", "loo"),
) -> list[Row]:
    """Train what is missing of ``runs`` and measure each; the rows, run after run.

    The figures of a run are kept beside those of the experiments, which share them.
    """
    seconds = train_all(runs, setting.folder, setting.data, setting.workers, setting.report)
    names = {run.stream: read_stream(run.stream, setting.data).digest for run in runs}
    kept = Parts(
        parts.folder.parent / "runs",
        {name: parts.identity[name] for name in ("quick", "tool_version")},
    )
    jobs: dict[str, Callable[[], Figures]] = {}
    of: dict[str, Any] = {}
    by_run: dict[TrainingRun, list[str]] = {}
    for run in runs:
        made = _jobs(run, setting, wanted, kinds)
        jobs |= made
        depends = {"recipe": recipe_of(run).to_dict(), "stream": names[run.stream]}
        of |= {name: {**depends, "bytes": wanted.test_bytes} for name in made}
        by_run[run] = list(made)
    total = len(jobs)
    finished: list[str] = []

    def done(name: str) -> None:
        finished.append(name)
        setting.report(f"{experiment}: {len(finished)} of at most {total}, {name}")

    found = kept.each(jobs, setting.workers, of, done)
    parts.seconds += kept.seconds + seconds
    return [
        row(
            experiment,
            run.stream,
            each["figure"],
            each["value"],
            variant=run.method,
            seed=run.seed,
            **{name: value for name, value in each.items() if name not in ("figure", "value")},
        )
        for run, names_of_run in by_run.items()
        for name in names_of_run
        for each in found[name]
    ]


def over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Mean and 95% interval over seeds of every figure that two seeds or more have.

    >>> rows = [row("language", "a", "nll", 1.0 + s, seed=s, variant="full") for s in range(3)]
    >>> [(each["value"], each["seed"], each["n"]) for each in over_seeds(rows)]
    [(2.0, None, 3)]
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    names = ("experiment", "subject", "variant", "eval_length", "part", "figure", "unit")
    for each in rows:
        groups.setdefault(tuple(each[name] for name in names), []).append(each)
    found = []
    for key, group in groups.items():
        if len(group) < 2:
            continue
        given = dict(zip(names, key, strict=True))
        where = (given.pop("experiment"), given.pop("subject"), given.pop("figure"))
        found.append(mean_row(*where, [each["value"] for each in group], **given))
    return found


def _jobs(
    run: TrainingRun, setting: Setting, wanted: Wanted, kinds: Sequence[str]
) -> Mapping[str, Callable[[], Figures]]:
    folder, data, size = setting.folder, setting.data, wanted.test_bytes
    made: dict[str, Callable[[], Figures]] = {}
    if "nll" in kinds:
        for length in wanted.lengths:
            made[f"nll/{run.key}/{length}"] = partial(
                losses, run, folder, data, length, size, length >= BUCKETS_FROM
            )
    if "shares" in kinds:
        windows = ",".join(map(str, wanted.windows))
        made[f"shares/{run.key}/{windows}"] = partial(shares, run, folder, wanted.windows)
    if "loo" in kinds:
        length = wanted.loo_length
        made[f"loo/{run.key}/{length}"] = partial(removals, run, folder, data, length, size)
    return made


def _model(run: TrainingRun, folder: Path) -> Path:
    return run.folder(folder) / "model.safetensors"


def _part(sector: str, order: int | None) -> str | None:
    """``sector:s``, or ``order:r`` of FJ and LC together; None for an order of one sector."""
    if sector == POOLED:
        return POOLED if order is None else f"order:{order}"
    return f"sector:{sector}" if order is None else None


def _high(figures: Figures, figure: str) -> Figures:
    """The orders above 0 together."""
    of = [each for each in figures if each["figure"] == figure]
    high = [e["value"] for e in of if e["part"].startswith("order:") and e["part"] != "order:0"]
    if not high:
        return []
    return [{"figure": figure, "part": HIGH_ORDERS, "value": sum(high)}]
