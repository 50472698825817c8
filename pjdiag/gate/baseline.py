"""Figures of an earlier checkpoint, to tell what is new."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjdiag.checkpoint.text import shown_path
from pjdiag.errors import PolicyError, UsageError
from pjdiag.results import Result

KIND = "pjdiag gate baseline"
VERSION = 1
DEFAULT_TOLERANCE = "1%"

Place = tuple[str, str, int | None, int | None]
"""Rule, metric, layer, head."""


@dataclass(frozen=True)
class Tolerance:
    """How far a figure may be from its baseline, absolutely or as a part of it."""

    absolute: float = 0.0
    relative: float = 0.0

    def slack(self, old: float) -> float:
        """The distance that ``old`` allows."""
        return self.absolute + self.relative * abs(old)

    def allows(self, old: float, new: float) -> bool:
        """Whether ``new`` is near enough.

        >>> parse_tolerance("5%").allows(0.2, 0.21), parse_tolerance("0.05").allows(0.2, 0.26)
        (True, False)
        """
        away, slack = abs(new - old), self.slack(old)
        return away <= slack or math.isclose(away, slack, rel_tol=1e-9)

    def __str__(self) -> str:
        return f"{100 * self.relative:g}%" if self.relative else f"{self.absolute:g}"


@dataclass(frozen=True)
class Entry:
    """A figure of the baseline."""

    value: float | None
    """None where the rule asked for the same words only."""
    met: bool
    """It met the bounds of its rule then."""
    text: str | None = None
    """The words of a column of words."""


@dataclass(frozen=True)
class Baseline:
    """The figures of an earlier run by their places."""

    entries: Mapping[Place, Entry]
    source: str = ""


def parse_tolerance(text: str) -> Tolerance:
    """A tolerance: ``0.02`` is absolute, ``5%`` relative. Raises UsageError.

    >>> parse_tolerance("5%")
    Tolerance(absolute=0.0, relative=0.05)
    """
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(%?)\s*", text)
    try:
        value = float(found[1]) if found else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value) or value < 0:
        raise UsageError(
            f"the tolerance is {text!a}; expected a number from 0 on, or percents",
            "for example --tolerance 0.02, or --tolerance 5%",
        )
    return Tolerance(relative=value / 100) if found[2] else Tolerance(absolute=value)


def to_json(result: Result) -> str:
    """The figures and words of a gate's result as a baseline; what is missing is left out."""
    names = ("rule", "metric", "layer", "head", "value", "found", "met")
    document = {
        "kind": KIND,
        "version": VERSION,
        "tool_version": result.provenance.get("tool_version"),
        "checkpoint": {
            name: result.checkpoint.get(name) for name in ("digest", "adapter", "train_length")
        },
        "checks": [
            {name: row[name] for name in names if name != "found" or row[name] is not None}
            for row in result.rows
            if row["value"] is not None or row["found"] is not None
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=True) + "\n"


def read_baseline(path: Path) -> Baseline:
    """The baseline in the file ``path``. Raises PolicyError where it is none."""
    hint = "write one with --write-baseline"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PolicyError(
            f"the baseline {shown_path(path)} cannot be read: {reason}", hint
        ) from error
    if not isinstance(found, dict) or (found.get("kind"), found.get("version")) != (KIND, VERSION):
        raise PolicyError(f"{shown_path(path)} is no baseline of version {VERSION}", hint)
    try:
        entries = dict(map(_entry, found["checks"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PolicyError(f"the baseline {shown_path(path)} is damaged: {error!a}", hint) from error
    return Baseline(entries, str(path))


def _entry(check: Any) -> tuple[Place, Entry]:
    value, met, text = check["value"], check["met"], check.get("found")
    if value is not None or text is None:
        value = float(value)
    if not (value is None or math.isfinite(value)) or not isinstance(met, bool):
        raise ValueError(f"value {value}, met {met}")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"found {text!a} is no text")
    place = (
        str(check["rule"]),
        str(check["metric"]),
        _index(check["layer"]),
        _index(check["head"]),
    )
    return place, Entry(value, met, text)


def _index(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError(f"{value!a} is no layer or head")
    return value
