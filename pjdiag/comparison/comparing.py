"""Differences of figures, those that moved most first."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pjdiag.arguments import checked
from pjdiag.comparison import channels, structure
from pjdiag.comparison.inputs import DEFAULT, Input, Source, inputs
from pjdiag.comparison.matching import SUMS, Level, pairs, shared_level, summed_heads
from pjdiag.comparison.movement import moved, rank
from pjdiag.diagnostics.outcome import tool_version
from pjdiag.diagnostics.progress import Progress, no_progress
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import DIAGNOSTICS, FIGURE_KINDS, KEYS, Column

INTERVALS = {
    ("loo", "loo_delta_nll"): ("ci_low", "ci_high"),
    ("loo", "control_delta_nll"): ("control_low", "control_high"),
    ("nll", "nll"): ("ci_low", "ci_high"),
    ("probe", "top1"): ("ci_low", "ci_high"),
}
"""The ends of a figure's 95% interval."""
ERRORS = {("kernel", "kernel"): "standard_error"}
"""A figure's standard error."""
_NO_FIGURES = {
    "loo": frozenset({"ci_low", "ci_high", "control_low", "control_high"}),
    "nll": frozenset({"ci_low", "ci_high"}),
    "probe": frozenset({"ci_low", "ci_high"}),
    "kernel": frozenset({"standard_error"}),
}
NORMAL_95 = 1.959963984540054
SETTINGS = ("data_digest", "unit", "seed", "lag_weights", "target", "windows", "stride")
"""Provenance under which figures of different values are hardly comparable."""
NOTHING_SHARED = "no row of the checkpoints has the same keys and a figure in both"
INSTEAD_OF = "instead_of"
"""In the provenance: the diagnostic that nobody asked for and that had nothing to compare."""


@checked
def compare(
    *sources: Source,
    diagnostics: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    allow_pickle: bool = False,
    merge_base: str | os.PathLike[str] | None = None,
    train_length: int | None = None,
    strict: bool = False,
    min_coverage: float = 0.0,
    progress: Progress = no_progress,
) -> Result:
    """Figures of the first source against those of each other one.

    A source is whatever a diagnostic accepts, a Result, or the path of one saved as JSON.
    ``diagnostics`` are by default that of the saved results, else mass, and where they
    share no figure of it inspect: what they are built of. Three or more whose
    training steps are known are put in their order. ``value_b - value_a`` is the difference;
    ``noise`` is ``sqrt(h_a^2 + h_b^2)`` of the half-widths of their 95% intervals. Rows are
    joined on their keys down to the scope that all share; of inspect a figure that all layers of
    each have is one row, and what is told in words has these as ``text_a`` and ``text_b``, with
    ``difference`` 1 where they differ. There are no rows where nothing is comparable, and the
    warnings say why. Raises UsageError, DataError, InconclusiveError, and
    what reading raises.

    >>> import pjdiag
    >>> same = compare(pjdiag.sample(), pjdiag.sample())
    >>> len(same.rows) > 100, {row["difference"] for row in same.select(figure="sector_share")}
    (True, {0.0})
    """
    reading = {
        "allow_pickle": allow_pickle,
        "merge_base": merge_base,
        "train_length": train_length,
        "strict": strict,
        "min_coverage": min_coverage,
    }
    found, notes = inputs(sources, diagnostics, lengths, reading, progress)
    result = compared(_in_order(found), notes)
    if result.rows or diagnostics is not None or any(each.saved for each in found):
        return result
    found, notes = inputs(sources, (structure.NAME,), lengths, reading, progress)
    return _instead(result, compared(_in_order(found), notes))


def _in_order(found: list[Input]) -> list[Input]:
    """Three or more whose steps are known by their steps."""
    steps = [each.step for each in found if each.step is not None]
    if len(found) > 2 and len(steps) == len(found):
        return sorted(found, key=lambda each: each.step or 0)
    return found


def _instead(result: Result, built: Result) -> Result:
    """What the checkpoints are built of, with what is known of why nothing else compares."""
    if not built.rows:
        return result
    (name,) = DEFAULT
    warnings = [text for text in result.warnings if text != NOTHING_SHARED]
    warnings.append(f"no figure of {name} is shared: what the checkpoints are built of is compared")
    return replace(
        built,
        provenance={**built.provenance, INSTEAD_OF: name},
        skipped=tuple(dict.fromkeys((*result.skipped, *built.skipped))),
        warnings=tuple(dict.fromkeys((*warnings, *built.warnings))),
    )


def compared(found: Sequence[Input], notes: Sequence[str] = ()) -> Result:
    """The comparison of what was measured."""
    names = [each.name for each in found]
    rows: list[Row] = []
    warnings = list(notes)
    levels: dict[str, str] = {}
    for name in dict.fromkeys(name for each in found for name in (*each.results, *each.missing)):
        missing = [each for each in found if name not in each.results]
        if missing:
            warnings += [f"{name}: {each.name}: {each.missing.get(name)}" for each in missing]
            continue
        results = [each.results[name] for each in found]
        level = shared_level(results, names)
        levels[name] = level.scope.value
        warnings += [f"{name}: {level.reason}"] if level.reason else []
        warnings += [f"{name}: {text}" for text in _settings(results, names)]
        for number in range(1, len(found)):
            more: list[str] = []
            if name == structure.NAME:
                made = structure.differences(results[0], results[number], level.scope)
            else:
                made, more = _differences(results[0], results[number], level)
            prefix = f"{name}: " if len(found) == 2 else f"{name}, {names[number]}: "
            warnings += [prefix + text for text in more]
            rows += [{**row, "compared": names[number], "step": found[number].step} for row in made]
    if all(row["difference"] is None for row in rows):
        rows = []
        warnings.append(NOTHING_SHARED)
    return Result(
        "compare",
        {"path": None, "files": list(dict.fromkeys(path for each in found for path in each.files))},
        {
            "tool": "pjdiag",
            "tool_version": tool_version(),
            "command": None,
            "checkpoints": [_described(each) for each in found],
            "levels": levels,
        },
        tuple(sorted(rows, key=rank(names))),
        _skipped(found),
        tuple(dict.fromkeys(warnings)),
    )


def _differences(a: Result, b: Result, level: Level) -> tuple[list[Row], list[str]]:
    name = a.diagnostic
    known: list[str] = []
    if name == channels.NAME:
        a, b, known = channels.comparable(a, b, level.scope)
    one_sided = channels.ONE_SIDED if name == channels.NAME else ()
    unlike = channels.unlike(a, b)
    joined, notes = pairs(a, b, level)
    notes = [*known, *notes]
    heads = summed_heads(a), summed_heads(b)
    rows = []
    left_out: set[str] = set()
    for column in _figures(name):
        for first, second in joined:
            pair = _value(first.get(column.name)), _value(second.get(column.name))
            if pair == (None, None):
                continue
            if column.name in one_sided and unlike(first, second):
                continue
            if column.name in SUMS.get(name, ()) and not _as_many(heads, first):
                left_out.add(column.name)
                continue
            rows.append(_row(name, column, first, second, pair))
    if left_out:
        notes.append(
            f"{', '.join(sorted(left_out))} is a sum over heads, of which the two have not as "
            "many: left out there"
        )
    return list(moved(rows)), notes


def _as_many(heads: Sequence[dict[int | None, int]], row: Row) -> bool:
    if row.get("head") is not None:
        return True
    first, second = (each.get(row.get("layer")) for each in heads)
    return first == second


def _figures(name: str) -> list[Column]:
    return [
        column
        for column in DIAGNOSTICS[name]
        if column.kind in FIGURE_KINDS
        and column.name not in KEYS[name]
        and column.name not in _NO_FIGURES.get(name, ())
    ]


def _value(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _row(
    name: str,
    column: Column,
    first: Row,
    second: Row,
    values: tuple[float | None, float | None],
) -> Row:
    a, b = values
    difference = None if a is None or b is None else b - a
    noise = _noise(name, column.name, first, second)
    same = first.get("mechanism") == second.get("mechanism")
    return {
        "layer": first.get("layer"),
        "head": first.get("head"),
        "scope": first["scope"],
        "mechanism": first.get("mechanism") if same else None,
        "measured": name,
        "figure": column.name,
        **{key: first.get(key) for key in KEYS[name]},
        "value_a": a,
        "value_b": b,
        "text_a": None,
        "text_b": None,
        "difference": difference,
        "relative": difference / abs(a) if difference is not None and a else None,
        "noise": noise,
        "within_noise": None if noise is None or difference is None else abs(difference) <= noise,
    }


def _noise(name: str, figure: str, *rows: Row) -> float | None:
    """Half-width of the 95% interval of a difference of two independent figures."""
    ends, error = INTERVALS.get((name, figure)), ERRORS.get((name, figure))
    halves = []
    for row in rows:
        low, high = (None, None) if ends is None else (_value(row.get(end)) for end in ends)
        if low is not None and high is not None:
            halves.append((high - low) / 2)
        elif error is not None and _value(row.get(error)) is not None:
            halves.append(NORMAL_95 * float(row[error]))
    return math.hypot(*halves) if len(halves) == len(rows) else None


def _settings(results: Sequence[Result], names: Sequence[str]) -> Iterator[str]:
    """Settings that were not the same."""
    for setting in SETTINGS:
        values = [result.provenance.get(setting) for result in results]
        if any(value != values[0] for value in values):
            stated = ", ".join(f"{n} {v}" for n, v in zip(names, values, strict=True))
            yield f"measured under different settings: {setting}: {stated}"


def _described(each: Input) -> dict[str, Any]:
    result = next(iter(each.results.values()), None)
    stated = {} if result is None else {**result.provenance, **result.checkpoint}
    return {
        "name": each.name,
        "path": each.path,
        "step": each.step,
        **{
            key: stated.get(key)
            for key in ("digest", "adapter", "train_length", "layers", "layers_skipped", "heads")
        },
    }


def _skipped(found: Sequence[Input]) -> tuple[Skipped, ...]:
    """What any of them left out; what not all left out says whose it is."""
    entries: dict[Skipped, list[str]] = {}
    for each in found:
        for entry in dict.fromkeys(e for result in each.results.values() for e in result.skipped):
            entries.setdefault(entry, []).append(each.name)
    return tuple(
        entry
        if len(owners) == len(found)
        else replace(entry, reason=f"{', '.join(owners)}: {entry.reason}")
        for entry, owners in entries.items()
    )
