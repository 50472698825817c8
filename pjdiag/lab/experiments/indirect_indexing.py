"""Indirect indexing: which position methods learn to count from a letter that is named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pjdiag.lab.experiments.base import (
    Claim,
    Experiment,
    Finding,
    Parts,
    Setting,
    chosen,
    interval,
    mean_row,
    row,
)
from pjdiag.lab.experiments.indirect_runs import COMMAND, measured_run
from pjdiag.lab.experiments.indirect_training import (
    METHODS,
    QUICK_STEPS,
    SEEDS,
    STEPS,
    TASK,
    recipe_of,
)
from pjdiag.results import Row

NAME = "indirect-indexing"
SUBJECT = f"{TASK.letters} letters, offsets to {TASK.reach}"
LEARNED = 0.9
"""Mean accuracy from which the task counts as learned."""
CURVE_POINTS = 10
Measured = Mapping[tuple[str, int], Mapping[str, Any]]
"""What ``measured_run`` gave, by method and seed."""


def run(setting: Setting, parts: Parts) -> list[Row]:
    """Train every method and seed that is missing, then the rows of all."""
    steps, seeds = (QUICK_STEPS, SEEDS[:1]) if setting.quick else (STEPS, SEEDS)
    names = {f"{method}-s{seed}": (method, seed) for seed in seeds for method in METHODS}
    recipes = {name: recipe_of(*run, steps) for name, run in names.items()}
    found = parts.each(
        {name: partial(measured_run, recipe, setting.runs) for name, recipe in recipes.items()},
        setting.workers,
        of={name: [recipe.to_dict(), TASK.digest] for name, recipe in recipes.items()},
        done=lambda name: setting.report(f"{NAME}: {name} of {len(names)} runs is trained"),
    )
    return list(rows_of({names[name]: value for name, value in found.items()}))


def rows_of(measured: Measured) -> Iterator[Row]:
    """The rows of all runs: each method's, over its seeds, and the accuracy of a guess."""
    yield row(NAME, SUBJECT, "guess", TASK.guess)
    for method in dict.fromkeys(method for method, _ in measured):
        by_seed = {seed: value for (name, seed), value in measured.items() if name == method}
        first = next(iter(by_seed.values()))
        yield row(NAME, SUBJECT, "parameters", first["parameters"], variant=method)
        for seed, value in by_seed.items():
            yield from _of_run(method, seed, value)
        yield from _over_seeds(method, list(by_seed.values()))


def _of_run(method: str, seed: int, value: Mapping[str, Any]) -> Iterator[Row]:
    of: dict[str, Any] = {"variant": method, "seed": seed}
    test = value["test"]
    each = test["problems"] // len(test["by_offset"])
    yield row(NAME, SUBJECT, "minutes", value["minutes"], **of)
    yield row(NAME, SUBJECT, "nll", test["loss"], unit="nats/answer", n=test["problems"], **of)
    low, high = test["interval"]
    yield row(
        NAME,
        SUBJECT,
        "accuracy",
        test["accuracy"],
        ci_low=low,
        ci_high=high,
        n=test["problems"],
        **of,
    )
    for found in test["by_offset"]:
        low, high = found["interval"]
        part = _offset(found["offset"])
        yield row(
            NAME,
            SUBJECT,
            "accuracy",
            found["accuracy"],
            part=part,
            ci_low=low,
            ci_high=high,
            n=each,
            **of,
        )
    stride = -(-len(value["history"]) // CURVE_POINTS)
    for point in value["history"][::-1][::stride][::-1]:
        part = f"step:{point['step']}"
        loss = point["held_out_loss"]
        yield row(NAME, SUBJECT, "nll", loss, part=part, unit="nats/answer", **of)
    for name, figure in _spectrum_figures(value).items():
        if name[0] is None or name[0].startswith("band:"):
            yield row(NAME, SUBJECT, name[1], figure, part=name[0], **of)


def _over_seeds(method: str, values: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    def mean(figure: str, numbers: Sequence[float | None], part: str | None = None) -> Row:
        known = [number for number in numbers if number is not None]
        if not known:
            return row(NAME, SUBJECT, figure, None, variant=method, part=part)
        return mean_row(NAME, SUBJECT, figure, known, variant=method, part=part)

    yield mean("accuracy", [value["test"]["accuracy"] for value in values])
    for index, offset in enumerate(TASK.offsets):
        shares = [value["test"]["by_offset"][index]["accuracy"] for value in values]
        yield mean("accuracy", shares, _offset(offset))
    figures = [_spectrum_figures(value) for value in values]
    for part, figure in figures[0]:
        yield mean(figure, [each[part, figure] for each in figures], part)
    for channel, turn in enumerate(values[0]["trained"]["wavelengths"]):
        part = f"channel:{channel}"
        yield row(NAME, SUBJECT, "wavelength", turn, variant=method, part=part, unit="tokens")


def _spectrum_figures(value: Mapping[str, Any]) -> dict[tuple[str | None, str], float | None]:
    """Figures of the rotary channels by part and name; what is not defined is left out.

    ``share`` and ``data_share`` after training; with ``untrained_`` before; ``evenness``: the
    number of channels that are used, e^(entropy of their shares), over that of all of them.
    """
    found: dict[tuple[str | None, str], float | None] = {}
    for state, prefix in (("trained", ""), ("untrained", "untrained_")):
        spectrum = value[state]
        places = {f"band:{name}": each for name, each in spectrum["bands"].items()}
        places |= {f"channel:{index}": each for index, each in enumerate(spectrum["channels"])}
        for source, figure in (("weights", "share"), ("data", "data_share")):
            shares = [each[source] for each in spectrum["channels"]]
            if None in shares:
                continue
            for part, each in places.items():
                found[part, f"{prefix}{figure}"] = each[source]
            found[None, f"{prefix}{figure}_evenness"] = evenness(shares)
    return found


def evenness(shares: Sequence[float]) -> float:
    """``e^(entropy) / C`` of C shares that sum to 1: 1 where all are equal.

    >>> evenness([0.25, 0.25, 0.25, 0.25]), evenness([1.0, 0.0])
    (1.0, 0.5)
    """
    entropy = -math.fsum(share * math.log(share) for share in shares if share > 0)
    return math.exp(entropy) / len(shares)


def _offset(offset: int) -> str:
    return f"offset:{offset:+d}"


def _by_seed(rows: Sequence[Row], method: str, figure: str, **where: Any) -> dict[int, float]:
    part = where.get("part")
    return {
        each["seed"]: each["value"]
        for each in chosen(rows, variant=method, figure=figure, part=part)
        if each["seed"] is not None and each["value"] is not None
    }


def _in_words(values: Sequence[float]) -> str:
    mean, low, high = interval(values)
    if low is None or high is None:
        return f"{mean:.1%} (one seed)"
    return f"{mean:.1%} (95% interval over {len(values)} seeds {low:.1%} to {high:.1%})"


def _still_falling(rows: Sequence[Row], method: str) -> str:
    """How the loss went in the last steps, so that a short training is seen as one."""
    steps = sorted(
        {
            int(each["part"].removeprefix("step:"))
            for each in chosen(rows, variant=method, figure="nll")
            if each["part"]
        }
    )
    if len(steps) < 2:
        return ""
    turn = max((step for step in steps if step <= 0.8 * steps[-1]), default=steps[0])
    early, late = (_by_seed(rows, method, "nll", part=f"step:{x}") for x in (turn, steps[-1]))
    fall = 1 - math.fsum(late.values()) / math.fsum(early.values())
    return f", its loss {fall:.0%} lower at step {steps[-1]:,} than at {turn:,}"


def pope_learns(rows: Sequence[Row]) -> Finding:
    """Whether PoPE's mean accuracy is that of a task that is learned."""
    found = [*_by_seed(rows, "pope", "accuracy").values()]
    if not found:
        return Finding("PoPE was not run", None)
    text = f"PoPE {_in_words(found)}{_still_falling(rows, 'pope')}"
    return Finding(text, math.fsum(found) / len(found) >= LEARNED)


def rope_fails(rows: Sequence[Row]) -> Finding:
    """Whether RoPE's mean accuracy is below twice that of a guess."""
    found = [*_by_seed(rows, "rope", "accuracy").values()]
    if not found:
        return Finding("RoPE was not run", None)
    text = (
        f"RoPE {_in_words(found)}{_still_falling(rows, 'rope')}; a guess among the letters that "
        f"can be the answer {TASK.guess:.1%}"
    )
    return Finding(text, math.fsum(found) / len(found) < 2 * TASK.guess)


def pope_beats_rope(rows: Sequence[Row]) -> Finding:
    """Whether the difference of the two, seed by seed, is above 0 with its interval."""
    pope, rope = (_by_seed(rows, method, "accuracy") for method in ("pope", "rope"))
    differences = [pope[seed] - rope[seed] for seed in sorted(set(pope) & set(rope))]
    if not differences:
        return Finding("the two were not run", None)
    mean, low, high = interval(differences)
    if low is None or high is None:
        return Finding(f"{100 * mean:+.1f} points with one seed, which does not tell", None)
    text = f"PoPE less RoPE {100 * mean:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    return Finding(text, low > 0)


def others(rows: Sequence[Row]) -> Finding:
    """The other methods' accuracy; nothing is claimed of them."""
    words = []
    for method in METHODS:
        found = [*_by_seed(rows, method, "accuracy").values()]
        count = chosen(rows, variant=method, figure="parameters")
        if found:
            words.append(f"{method} {_in_words(found)}, {count[0]['value']:,.0f} parameters")
    return Finding("; ".join(words) or "no method was run", None)


def pope_uses_more(rows: Sequence[Row]) -> Finding:
    """Whether PoPE's channels are used more evenly than RoPE's, and which bands lost share."""
    figure = "data_share_evenness"
    pope, rope = (_by_seed(rows, method, figure) for method in ("pope", "rope"))
    differences = [pope[seed] - rope[seed] for seed in sorted(set(pope) & set(rope))]
    if not differences:
        return Finding("the two were not run", None)
    mean, low, high = interval(differences)
    words = ["evenness of the channels, e^(entropy of their shares) over their number"]
    for what, part in (("", None), (" local band", "band:local")):
        for method in ("pope", "rope"):
            names = ("untrained_data_share", "data_share")
            before, after = (
                chosen(rows, variant=method, figure=name, part=part, seed=None)[0]["value"]
                for name in (names if part else [f"{name}_evenness" for name in names])
            )
            words.append(f"{method}{what} {before:.0%} before training, {after:.0%} after")
    if low is None or high is None:
        return Finding("; ".join(words) + "; one seed does not tell", None)
    text = f"; difference {100 * mean:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    return Finding("; ".join(words) + text, low > 0)


EXPERIMENT = Experiment(
    name=NAME,
    question=(
        f"Which position methods learn to name the letter that stands a signed offset from a "
        f"given one? Strings of {TASK.letters} of 26 letters, offsets -{TASK.reach} to "
        f"{TASK.reach}, 2 layers of width 64, {STEPS:,} steps of 128 problems; size, steps and "
        "seeds were fixed before training"
    ),
    run=run,
    claims=(
        Claim("PoPE learns indirect indexing", "PoPE 94.8%", COMMAND, pope_learns),
        Claim("RoPE does not learn it", "RoPE 11.2%", COMMAND, rope_fails),
        Claim("PoPE beats RoPE", "94.8% against 11.2%", COMMAND, pope_beats_rope),
        Claim("PJ rotary variants", "not tried by the papers", COMMAND, others),
        Claim(
            "PoPE uses more of its frequencies than RoPE",
            "PoPE uses frequencies more broadly; no figure for this task",
            COMMAND,
            pope_uses_more,
        ),
    ),
    seeds=SEEDS,
)
