"""Byte-level language models: which sectors they use, and how far each method reaches."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.lab.experiments.base import Claim, Experiment, Finding, Parts, Setting, chosen
from pjdiag.lab.experiments.run_claims import Models, by_model, leading, spread
from pjdiag.lab.experiments.run_figures import Wanted, measured, over_seeds
from pjdiag.lab.experiments.training_runs import LANGUAGE_RUNS, TrainingRun
from pjdiag.lab.streams import LANGUAGES
from pjdiag.render.text import counted
from pjdiag.results import Row
from pjdiag.terms import Sector

NAME = "language"
COMMAND = "pjdiag reproduce language --data DIR"
L = 128
LONGEST = 32_768
FULL = Wanted((L, 512, 2048, 8192, LONGEST), windows=(L,), loo_length=L)
QUICK = Wanted((L, 512), windows=(L,), loo_length=L, test_bytes=4096)
QUICK_RUNS = tuple(
    TrainingRun("tinyshakespeare", method, 0, quick=True) for method in ("full", "rope_ntk_affine")
)
CONTENDER = "rope_ntk_affine"
EXPECTED = tuple((name, seed) for name in LANGUAGES for seed in range(3))
"""The ``full`` models that the claims speak of."""


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Train and measure every language model."""
    runs = QUICK_RUNS if setting.quick else LANGUAGE_RUNS
    rows = measured(NAME, runs, setting, parts, QUICK if setting.quick else FULL)
    return rows + over_seeds(rows)


def affine_mass(rows: Sequence[Row]) -> Finding:
    """Whether the affine sector has the largest share of effective mass."""
    return _largest(rows, "sector_share", None, "share of effective mass")


def affine_energy(rows: Sequence[Row]) -> Finding:
    """Whether the affine sector has the largest share of kernel energy."""
    return _largest(rows, "energy_share", L, f"share of kernel energy over {L} lags")


def affine_removed(rows: Sequence[Row]) -> Finding:
    """Whether the loss gains most where the affine sector is removed."""
    models = _full(rows, "loo_delta_nll", L)
    found = _largest(rows, "loo_delta_nll", L, "loss gained by its removal, in nats a byte,")
    ends = [(m["sector:affine"]["ci_low"], m) for m in models.values() if "sector:affine" in m]
    apart = sum(
        low is not None and all(low > m[name]["ci_high"] for name in m if name != "sector:affine")
        for low, m in ends
    )
    text = f"{found.text} Its interval lies above the others' in {apart} of {len(models)}."
    return Finding(text, found.holds) if models else found


def best_at_longest(rows: Sequence[Row]) -> Finding:
    """Whether ``rope_ntk_affine`` has the lowest loss at 32,768 tokens, on every corpus."""
    places, words = [], []
    for subject in LANGUAGES:
        found: dict[str, list[float]] = {}
        picked = chosen(rows, subject=subject, figure="nll", eval_length=LONGEST, part=None)
        for each in picked:
            if each["seed"] is not None:
                found.setdefault(each["variant"], []).append(each["value"])
        means = {method: sum(values) / len(values) for method, values in found.items()}
        if CONTENDER not in means or len(means) < 2:
            continue
        order = sorted(means, key=lambda method: means[method])
        places.append(order.index(CONTENDER) + 1)
        other = next(method for method in order if method != CONTENDER)
        words.append(
            f"{subject}: {means[CONTENDER]:.3f} ({_seeds(found[CONTENDER])}), place {places[-1]} "
            f"of {len(order)}; best of the others {other} {means[other]:.3f} "
            f"({_seeds(found[other])})"
        )
    if not words:
        return Finding(f"{CONTENDER} and another were not measured at {LONGEST:,} tokens.", None)
    complete = len(places) == len(LANGUAGES)
    holds = all(place == 1 for place in places) if complete else None
    return Finding(f"Nats a byte at {LONGEST:,} tokens. {'; '.join(words)}.", holds)


def _seeds(values: Sequence[float]) -> str:
    return counted(len(values), "seed")


def _full(rows: Sequence[Row], figure: str, length: int | None) -> Models:
    names = {f"sector:{sector.value}" for sector in Sector}
    return by_model(chosen(rows, variant="full", figure=figure, eval_length=length, part=names))


def _largest(rows: Sequence[Row], figure: str, length: int | None, words: str) -> Finding:
    models = _full(rows, figure, length)
    if not models:
        return Finding("No full model was measured.", None)
    affine = [m["sector:affine"]["value"] for m in models.values()]
    others = [max(m[n]["value"] for n in m if n != "sector:affine") for m in models.values()]
    ahead = leading(models, "sector:affine")
    text = (
        f"The affine sector's {words} is the largest in {ahead} of {len(models)} models: "
        f"{spread(affine)}; the larger of the other two {spread(others)}."
    )
    complete = all(model in models for model in EXPECTED)
    return Finding(text, ahead == len(models) if complete else None)


EXPERIMENT = Experiment(
    NAME,
    "Which sectors do byte-level language models use, and which method reaches furthest?",
    run,
    (
        Claim(
            "affine share of effective mass",
            "In language the full model relies on affine recency most.",
            COMMAND,
            affine_mass,
        ),
        Claim(
            "affine share of kernel energy",
            "In language the full model relies on affine recency most.",
            COMMAND,
            affine_energy,
        ),
        Claim(
            "removal of the affine sector",
            "Removing the affine sector costs the full model most.",
            COMMAND,
            affine_removed,
        ),
        Claim(
            "best at 32,768",
            "RoPE with the NTK rule and an affine bias is best at 32,768 tokens.",
            COMMAND,
            best_at_longest,
        ),
    ),
    seeds=(0, 1, 2),
)
