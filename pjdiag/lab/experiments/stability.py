"""Scale against resolution: the eight coordinates at 32,768 tokens, and the trained models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pjdiag.diagnostics.retrieval import probe_variants
from pjdiag.diagnostics.stability import stability_variants
from pjdiag.lab.experiments.base import (
    Claim,
    Experiment,
    Finding,
    Parts,
    Setting,
    chosen,
    mean_row,
    row,
)
from pjdiag.lab.experiments.run_claims import spread
from pjdiag.lab.experiments.stability_runs import (
    BUCKET,
    DECIDED,
    LENGTH,
    LONGEST_BUCKET,
    finished_runs,
    measure_run,
    run_rows,
)
from pjdiag.position.variants import VARIANTS
from pjdiag.results import Row

NAME = "stability"
SUBJECT = "named coordinates"
LENGTHS = (1024, 4096, LENGTH)
GROWN = (
    "bias_max",
    "effective_support",
    "norm_max",
    "norm_final",
    "int8_error_order",
    "int4_error_order",
    "local_phase_ratio",
    "wrapped_collision",
    "condition_number",
)
KEPT, LOST = 0.97, 0.55
"""Hard-negative accuracy from which positions are resolved, and up to which they are not."""
RESOLVING = ("raw", "scaled", "log", "lc_phase_only")
COMPACT = ("lc", "lc_amp_only", "clipped", "lc_wrong_scale")
BOUND = 2.0
"""Norm of four orders of amplitude 1, which beta approaches."""
SEEDS = (0, 1, 2)
QUICK_METHODS = ("full", "lc_affine")


def grown() -> list[dict[str, Any]]:
    """Rows of ``pjdiag stability --variants``: the figures by variant and length."""
    names = ("variant", "eval_length", *GROWN)
    return [{name: each[name] for name in names} for each in stability_variants(LENGTHS).rows]


def resolved(seed: int) -> list[dict[str, Any]]:
    """Rows of ``pjdiag probe --variants --precision fp32`` in the compared bucket."""
    found = probe_variants([LENGTH], precisions=["fp32"], seed=seed)
    names = ("variant", *DECIDED)
    return [{name: each[name] for name in names} for each in found.select(bucket=BUCKET)]


def run(setting: Setting, parts: Parts) -> list[Row]:
    """The named coordinates, then every finished training in the folder."""
    seeds = SEEDS[:1] if setting.quick else SEEDS
    rows = list(_grown_rows(parts.part("grown", grown, list(LENGTHS))))
    decided = parts.each(
        {f"resolved-s{seed}": partial(resolved, seed) for seed in seeds},
        setting.workers,
        done=lambda name: setting.report(f"{NAME}: {name}"),
    )
    rows += _resolved_rows(list(decided.values()))
    runs = finished_runs(setting.runs)
    if setting.quick:
        runs = [each for each in runs if each.method in QUICK_METHODS][: len(QUICK_METHODS)]
    measured = parts.each(
        {each.key: partial(measure_run, each.path) for each in runs},
        setting.workers,
        {each.key: each.digest for each in runs},
        lambda name: setting.report(f"{NAME}: {name}"),
    )
    for key in (each.key for each in runs if not measured[each.key]):
        setting.report(f"{NAME}: {key} has no kernel and no codes in its weights")
    return [*rows, *run_rows(NAME, [(each, measured[each.key]) for each in runs])]


def _grown_rows(found: Sequence[dict[str, Any]]) -> Iterator[Row]:
    for each in found:
        for name in GROWN:
            length, variant = each["eval_length"], each["variant"]
            yield row(NAME, SUBJECT, name, each[name], variant=variant, eval_length=length)


def _resolved_rows(by_seed: Sequence[Sequence[dict[str, Any]]]) -> Iterator[Row]:
    for variant in VARIANTS:
        for name in DECIDED:
            values = [e[name] for rows in by_seed for e in rows if e["variant"] == variant]
            where = {"eval_length": LENGTH, "part": f"bucket:{BUCKET}"}
            yield mean_row(NAME, SUBJECT, name, values, variant=variant, **where)


def _figures(rows: Sequence[Row], figure: str) -> dict[str, float]:
    found = chosen(rows, subject=SUBJECT, figure=figure, eval_length=LENGTH)
    return {each["variant"]: each["value"] for each in found}


def _bounded(rows: Sequence[Row]) -> Finding:
    norms = _figures(rows, "norm_max")
    if not norms:
        return Finding("nothing was measured", None)
    others = ", ".join(f"{name} {norms[name]:,.3g}" for name in ("scaled", "lc_phase_only", "raw"))
    text = f"largest norm over the orders at {LENGTH:,} tokens: lc {norms['lc']:.3g}; {others}"
    return Finding(text, norms["lc"] <= BOUND)


def _lost(rows: Sequence[Row]) -> Finding:
    hard = _figures(rows, "hard_pair_accuracy")
    easy = _figures(rows, "random_pair_accuracy")
    if not hard:
        return Finding("nothing was measured", None)
    text = "; ".join(
        f"{title} {', '.join(f'{name} {hard[name]:.2f}' for name in names)}"
        for title, names in (("compact:", COMPACT), ("growing:", RESOLVING))
    )
    text += f" (0.5 is chance; lc against random lags {easy['lc']:.2f})"
    lost = all(hard[name] <= LOST for name in COMPACT)
    return Finding(text, lost and all(hard[name] >= KEPT for name in RESOLVING))


def _in_trained(rows: Sequence[Row]) -> Finding:
    norms = chosen(rows, figure="norm_growth_lc")
    models = {(each["subject"], each["variant"]): each["value"] for each in norms}
    if not models:
        return Finding("no trained model with a light cone was in the folder", None)
    worst = max(models.values())
    hard = {
        (each["subject"], each["variant"]): each["value"]
        for each in chosen(rows, figure="hard_pair_accuracy", part=f"bucket:{LONGEST_BUCKET}")
    }
    alone = [value for (_, method), value in hard.items() if method == "lc_affine"]
    both = [value for (_, method), value in hard.items() if method == "full"]
    text = (
        f"norms of the light-cone orders grow at most {worst:.2f}-fold from L to {LENGTH:,} tokens "
        f"in {len(models)} kinds of model"
    )
    for title, values in (("lc_affine", alone), ("full", both)):
        if values:
            text += f"; hard-negative accuracy at 128-256 L, {title}: {spread(values)}"
    if not alone:
        return Finding(text, None)
    return Finding(text, worst <= BOUND and max(alone) <= LOST)


COMMAND = f"pjdiag reproduce {NAME}"
EXPERIMENT = Experiment(
    name=NAME,
    question="what a coordinate of the lag costs in norm, and what it still resolves, at 32,768",
    run=run,
    claims=(
        Claim(
            "light-cone norms stay bounded at 32,768 tokens",
            "bounded; raw and scaled jets grow without bound",
            COMMAND,
            _bounded,
        ),
        Claim(
            "the bound costs resolution",
            "hard-negative accuracy is lost with compact amplitudes (chance), kept with growing "
            "ones (at least 0.97)",
            COMMAND,
            _lost,
        ),
        Claim(
            "the same trade-off in trained models",
            "said of the coordinate, not of trained models; those with a light cone only "
            "(lc_affine) should share it",
            COMMAND,
            _in_trained,
        ),
    ),
    seeds=SEEDS,
)
