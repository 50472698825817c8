"""What an experiment is: a question, rows of figures, and claims that are tried on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjdiag.diagnostics.outcome import tool_version
from pjdiag.errors import UsageError
from pjdiag.lab.experiments.parts import Parts as Parts
from pjdiag.results import Result, Row
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS, Scope

NAME = "reproduce"
DIGITS = 6
"""Significant digits of a value that is kept."""
_COLUMNS = tuple(column.name for column in (*SCOPE_COLUMNS, *DIAGNOSTICS[NAME]))


@dataclass(frozen=True)
class Setting:
    """Where and how an experiment runs."""

    folder: Path
    """Finished parts and trained models: ``parts/<experiment>/``, ``runs/<key>/``."""
    data: Path | None
    """Folder with texts; None where none was given."""
    quick: bool
    """Fewer steps and seeds: shows that everything runs, and is no evidence."""
    workers: int
    """Processes that train at once, one thread each."""
    report: Callable[[str], None]
    """Takes a line of progress."""

    @property
    def runs(self) -> Path:
        """Folder of the trained models."""
        return self.folder / "runs"

    def require_data(self, *names: str) -> tuple[Path, ...]:
        """The named files of the data folder. Raises UsageError where one is missing."""
        if self.data is None:
            raise UsageError(
                f"there are no texts; expected a folder with {', '.join(names)}",
                "pass --data FOLDER",
            )
        found = tuple(self.data / name for name in names)
        missing = [path.name for path in found if not path.is_file()]
        if missing:
            raise UsageError(
                f"{self.data} has no {', '.join(missing)}", "pass --data with a folder that has"
            )
        return found


@dataclass(frozen=True)
class Finding:
    """What came out of a claim."""

    text: str
    """In words and numbers."""
    holds: bool | None
    """None where the rows do not tell."""


@dataclass(frozen=True)
class Claim:
    """A claim of the papers, and how it is read off the rows."""

    name: str
    paper: str
    """What the papers say."""
    command: str
    """What to type to make the figure."""
    finding: Callable[[Sequence[Row]], Finding]
    """What came out, from the rows alone."""


@dataclass(frozen=True)
class Experiment:
    """One part of the evidence chain."""

    name: str
    question: str
    run: Callable[[Setting, Parts], list[Row]]
    claims: tuple[Claim, ...]
    seeds: tuple[int, ...]


def row(experiment: str, subject: str, figure: str, value: float | None, **rest: Any) -> Row:
    """A row of the diagnostic ``reproduce``; blanks are null, values have 6 digits.

    ``rest``: ``variant``, ``seed``, ``eval_length``, ``part``, ``unit``, ``ci_low``, ``ci_high``,
    ``n``, ``layer``, ``head``. Raises KeyError for any other column.

    >>> made = row("stability", "named coordinates", "norm_max", 7 / 3, variant="lc", n=1)
    >>> made["value"], made["scope"], made["seed"]
    (2.33333, 'model', None)
    """
    given = {"experiment": experiment, "subject": subject, "figure": figure, **rest}
    surplus = sorted(set(given) - set(_COLUMNS))
    if surplus:
        raise KeyError(f"no column {', '.join(surplus)} in {NAME}")
    scope = Scope.MODEL if rest.get("layer") is None else Scope.LAYER
    scope = Scope.HEAD if rest.get("head") is not None else scope
    numbers = {"value": value, "ci_low": rest.get("ci_low"), "ci_high": rest.get("ci_high")}
    kept = {name: shortened(number) for name, number in numbers.items()}
    return {**dict.fromkeys(_COLUMNS), **given, **kept, "scope": scope.value}


def shortened(value: float | None, digits: int = DIGITS) -> float | None:
    """A number of ``digits`` significant digits; None where it is not finite.

    >>> shortened(0.123456789), shortened(float("inf"))
    (0.123457, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.{digits}g}")


FRACTIONS = ("accuracy", "evenness", "gate", "recovered", "share", "top1", "within_64")
"""Figures, or their last words, that lie between 0 and 1."""


def mean_row(
    experiment: str, subject: str, figure: str, values: Sequence[float], **rest: Any
) -> Row:
    """The mean of ``values`` with its 95% interval and their number; columns as in ``row``.

    The interval of a fraction ends at 0 and at 1. Raises ValueError without a value.

    >>> made = mean_row("stability", "named coordinates", "top1", [0.5, 1.0, 1.0])
    >>> made["value"], made["ci_low"], made["ci_high"], made["n"]
    (0.833333, 0.116225, 1.0, 3)
    """
    if not values:
        raise ValueError(f"no value of {figure}; expected at least one")
    mean, low, high = interval(values)
    if low is not None and high is not None and figure.endswith(FRACTIONS):
        low, high = max(low, 0.0), min(high, 1.0)
    ends = {"ci_low": low, "ci_high": high, "n": len(values)}
    return row(experiment, subject, figure, mean, **ends, **rest)


def chosen(rows: Sequence[Row], **conditions: Any) -> list[Row]:
    """Rows whose columns equal ``conditions``; a tuple or a set allows each of its values.

    >>> len(chosen([row("a", "b", "nll", 1.0, seed=2)], seed=(1, 2), figure="nll"))
    1
    """

    def fits(found: Any, wanted: Any) -> bool:
        return found in wanted if isinstance(wanted, tuple | set | frozenset) else found == wanted

    return [
        each for each in rows if all(fits(each[name], want) for name, want in conditions.items())
    ]


def interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean and its 95% interval by Student's t; no interval of fewer than two values.

    >>> mean, low, high = interval([1.0, 2.0, 3.0])
    >>> mean, round(low, 3), round(high, 3)
    (2.0, -0.484, 4.484)
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, None, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = _t_quantile(count - 1) * deviation / math.sqrt(count)
    return mean, mean - half, mean + half


_T_975 = (12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814)


def _t_quantile(freedom: int) -> float:
    """The 97.5% quantile of Student's t; beyond 10 degrees by its expansion around the normal."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def stated(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The claims of ``experiment`` as plain values, with what came out of each."""
    found = []
    for claim in experiment.claims:
        finding = claim.finding(rows)
        found.append(
            {
                "experiment": experiment.name,
                "claim": claim.name,
                "paper": claim.paper,
                "finding": finding.text,
                "holds": finding.holds,
                "command": claim.command,
            }
        )
    return found


def outcome(
    experiments: Sequence[tuple[Experiment, Sequence[Row], float]],
    *,
    quick: bool,
    warnings: Sequence[str] = (),
    **settings: Any,
) -> Result:
    """The rows of experiments as a Result; with each experiment its minutes of processor time."""
    described: list[Mapping[str, Any]] = [
        {
            "name": experiment.name,
            "question": experiment.question,
            "seeds": list(experiment.seeds),
            "minutes": shortened(minutes, 3),
        }
        for experiment, _, minutes in experiments
    ]
    claims = [claim for each, rows, _ in experiments for claim in stated(each, rows)]
    return Result(
        NAME,
        checkpoint={},
        provenance={
            "tool": "pjdiag",
            "tool_version": tool_version(),
            "command": None,
            "quick": quick,
            "experiments": described,
            "claims": claims,
            **settings,
        },
        rows=tuple(each for _, rows, _ in experiments for each in rows),
        warnings=tuple(warnings),
    )
