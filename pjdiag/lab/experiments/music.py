"""Music as event tokens: whether its models use higher jet orders than language's."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.lab.experiments.base import (
    Claim,
    Experiment,
    Finding,
    Parts,
    Setting,
    chosen,
    interval,
    row,
)
from pjdiag.lab.experiments.run_claims import spread
from pjdiag.lab.experiments.run_figures import HIGH_ORDERS, Wanted, measured, over_seeds
from pjdiag.lab.experiments.training_runs import LANGUAGE_RUNS, MUSIC_RUNS, TrainingRun
from pjdiag.lab.streams import LANGUAGES, MUSIC
from pjdiag.results import Row

NAME = "music"
COMMAND = "pjdiag reproduce music --data DIR"
L = 128
FULL = Wanted((L, 512, 2048, 8192, 32_768), windows=(L,), loo_length=L)
QUICK = Wanted((L, 512), windows=(L,), loo_length=L, test_bytes=4096)
BESIDE = Wanted((L,), windows=(L,), loo_length=L)
"""Of language's models only what is compared."""
LANGUAGE = tuple(each for each in LANGUAGE_RUNS if each.method == "full")
QUICK_MUSIC, QUICK_LANGUAGE = (
    (TrainingRun(stream, "full", 0, quick=True),) for stream in ("chorales", "tinyshakespeare")
)
SHARE, ENERGY, LOSS = ("order_share", None), ("energy_share", L), ("loo_delta_nll", L)
LITTLE = 0.01
"""A share, or a loss, below this is told as next to nothing, whichever is the larger."""
RELATIVE = "relative_loo_delta_nll"


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Train and measure the music models, and language's ``full`` beside them."""
    music, language = (QUICK_MUSIC, QUICK_LANGUAGE) if setting.quick else (MUSIC_RUNS, LANGUAGE)
    rows = measured(NAME, music, setting, parts, QUICK if setting.quick else FULL)
    rows += measured(NAME, language, setting, parts, QUICK if setting.quick else BESIDE)
    rows += relative(rows)
    return rows + over_seeds(rows) + differences(rows)


def relative(rows: Sequence[Row]) -> list[Row]:
    """The loss gained without the orders above 0, over the model's loss: an event of music and a
    byte of text do not hold as much.
    """
    found = []
    for each in chosen(rows, figure="loo_delta_nll", part=HIGH_ORDERS):
        same = {name: each[name] for name in ("subject", "variant", "seed", "eval_length")}
        whole = chosen(rows, figure="nll", part=None, **same)
        if whole:
            named = {"variant": each["variant"], "seed": each["seed"], "part": HIGH_ORDERS}
            value = each["value"] / whole[0]["value"]
            found.append(
                row(
                    NAME, each["subject"], RELATIVE, value, eval_length=each["eval_length"], **named
                )
            )
    return found


def differences(rows: Sequence[Row]) -> list[Row]:
    """Music less the mean of the language corpora, seed by seed, with the interval over seeds."""
    found = []
    for subject in MUSIC:
        for figure, length in (SHARE, ENERGY, LOSS, (RELATIVE, L)):
            values = _less_language(rows, subject, figure, length)
            if values:
                mean, low, high = interval(values)
                ends = {"ci_low": low, "ci_high": high, "n": len(values)}
                found.append(
                    row(
                        NAME,
                        f"{subject} less language",
                        figure,
                        mean,
                        variant="full",
                        part=HIGH_ORDERS,
                        eval_length=length,
                        **ends,
                    )
                )
    return found


def more_mass(rows: Sequence[Row]) -> Finding:
    """Whether music's order >= 1 mass exceeds language's."""
    return _more(
        rows,
        (SHARE, ENERGY),
        ("share of orders above 0 in the mass of FJ and LC", "the same of their energy"),
    )


def more_loss(rows: Sequence[Row]) -> Finding:
    """Whether the removal of the orders above 0 costs music more than language."""
    words = (
        "loss gained without the orders above 0, in nats an event",
        "the same over the model's loss",
    )
    return _more(rows, (LOSS, (RELATIVE, L)), words)


def _more(
    rows: Sequence[Row], figures: Sequence[tuple[str, int | None]], words: Sequence[str]
) -> Finding:
    said, verdicts = [], []
    for subject in MUSIC:
        for (figure, length), word in zip(figures, words, strict=True):
            music = _by_seed(rows, subject, figure, length)
            language = [
                v for name in LANGUAGES for v in _by_seed(rows, name, figure, length).values()
            ]
            gaps = _less_language(rows, subject, figure, length)
            if not gaps:
                continue
            mean, low, high = interval(gaps)
            ends = (
                "" if low is None else f" (95% interval {low:.3g} to {high:.3g}, {len(gaps)} seeds)"
            )
            largest = max(abs(value) for value in (*music.values(), *language))
            little = " (next to nothing)" if largest < LITTLE else ""
            said.append(
                f"{subject}, {word}: {spread(music.values())} against "
                f"language's {spread(language)}; difference {mean:.3g}{ends}{little}"
            )
            enough = low is not None and len(gaps) == 3 and len(language) == 3 * len(LANGUAGES)
            verdicts.append(low > 0 if enough and low is not None else None)
    if not said:
        return Finding("No music model and language model were measured.", None)
    # The first figure of each music stream is the claim; the second is said beside it.
    first = verdicts[:: len(figures)]
    return Finding(f"{'; '.join(said)}.", None if None in first else all(first))


def _less_language(
    rows: Sequence[Row], subject: str, figure: str, length: int | None
) -> list[float]:
    """For each seed that all have: music less the mean over the language corpora."""
    music = _by_seed(rows, subject, figure, length)
    language = [_by_seed(rows, name, figure, length) for name in LANGUAGES]
    there = [found for found in language if found]
    seeds = [s for s in sorted(music) if there and all(s in found for found in there)]
    return [music[s] - sum(found[s] for found in there) / len(there) for s in seeds]


def _by_seed(
    rows: Sequence[Row], subject: str, figure: str, length: int | None
) -> dict[int, float]:
    picked = chosen(
        rows, subject=subject, variant="full", figure=figure, eval_length=length, part=HIGH_ORDERS
    )
    return {each["seed"]: each["value"] for each in picked if each["seed"] is not None}


EXPERIMENT = Experiment(
    NAME,
    "Do models of music use higher jet orders than models of language?",
    run,
    (
        Claim(
            "mass at orders above 0",
            "Music uses more of the high orders than language.",
            COMMAND,
            more_mass,
        ),
        Claim(
            "removal of the orders above 0",
            "Music needs the high orders more than language.",
            COMMAND,
            more_loss,
        ),
    ),
    seeds=(0, 1, 2),
)
