"""How far beyond its training length a model reads, without any further training."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.lab.experiments.base import Claim, Experiment, Finding, Parts, Setting, chosen
from pjdiag.lab.experiments.run_claims import spread
from pjdiag.lab.experiments.run_figures import Wanted, measured, over_seeds
from pjdiag.lab.experiments.training_runs import TrainingRun, runs_of
from pjdiag.results import Row

NAME = "length-extrapolation"
COMMAND = "pjdiag reproduce length-extrapolation --data DIR"
L = 128
LENGTHS = (L, 10 * L, 256 * L)
METHODS = ("pope", "rope", "rope_yarn", "affine", "full")
RUNS = runs_of("tinyshakespeare", dict.fromkeys(METHODS, 3))
QUICK_RUNS = tuple(
    TrainingRun("tinyshakespeare", method, 0, quick=True) for method in ("pope", "rope", "full")
)
FULL = Wanted(LENGTHS, windows=(L,), loo_length=L)
QUICK = Wanted(LENGTHS[:2], windows=(L,), loo_length=L, test_bytes=30 * L)
TOLERATED = 1.05
"""A model reads at a length if its loss there is at most so many times that at L."""


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Measure the losses; the models are those of ``language``, and more seeds of YaRN."""
    runs, wanted = (QUICK_RUNS, QUICK) if setting.quick else (RUNS, FULL)
    rows = measured(NAME, runs, setting, parts, wanted, ("nll",))
    return rows + over_seeds(rows)


def growths(rows: Sequence[Row], method: str, length: int) -> list[float]:
    """Loss at ``length`` over the loss at L, seed by seed.

    >>> growths([], "pope", 1280)
    []
    """
    at = {
        tokens: {
            each["seed"]: each["value"]
            for each in chosen(
                rows, variant=method, figure="nll", eval_length=tokens, part=None, seed=(0, 1, 2)
            )
        }
        for tokens in (L, length)
    }
    return [at[length][seed] / at[L][seed] for seed in sorted(at[L]) if seed in at[length]]


def reaches(rows: Sequence[Row], length: int) -> Finding:
    """Whether PoPE reads at ``length`` and RoPE does not."""
    found = {method: growths(rows, method, length) for method in METHODS}
    words = [f"{method} {spread(values)}" for method, values in found.items() if values]
    if not words:
        return Finding(f"No loss at {length:,} tokens was measured.", None)
    text = f"Loss at {length:,} tokens over the loss at {L}: {', '.join(words)}."
    if any(len(found[method]) < 3 for method in ("pope", "rope")):
        return Finding(text, None)
    pope = all(growth <= TOLERATED for growth in found["pope"])
    rope = all(growth <= TOLERATED for growth in found["rope"])
    verdicts = [
        f"{name} {'reads' if does else 'does not read'}"
        for name, does in (("PoPE", pope), ("RoPE", rope))
    ]
    return Finding(
        f"{text} At most {TOLERATED} is reading: {', '.join(verdicts)}.", pope and not rope
    )


def ten_times(rows: Sequence[Row]) -> Finding:
    """10 L."""
    return reaches(rows, LENGTHS[1])


def far(rows: Sequence[Row]) -> Finding:
    """256 L."""
    return reaches(rows, LENGTHS[2])


EXPERIMENT = Experiment(
    NAME,
    "Which methods read 10 and 256 times the length they were trained at?",
    run,
    (
        Claim(
            "10 times the training length",
            "PoPE reads ten times its training length without fine-tuning; RoPE does not.",
            COMMAND,
            ten_times,
        ),
        Claim(
            "256 times the training length",
            "Nothing is claimed so far out; the same question.",
            COMMAND,
            far,
        ),
    ),
    seeds=(0, 1, 2),
)
