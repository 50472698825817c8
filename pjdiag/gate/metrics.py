"""Metric expressions: ``DIAGNOSTIC.COLUMN[key=value,...]`` and a comparison with a number."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pjdiag.checkpoint.text import listed, near
from pjdiag.gate.bounds import Bound
from pjdiag.terms import (
    DIAGNOSTICS,
    FIGURE_KINDS,
    KEYS,
    SCOPE_COLUMNS,
    Band,
    Column,
    Family,
    LagWeights,
    Mechanism,
    Sector,
)

Value = str | int | float | bool

LOO_ON_DATA = "loo on data"
"""What the figures of loo that need data are measured by: another run than the others."""
WITHOUT_DATA = ("loo_delta_mse", "prior_kl")
"""Figures of loo from the kernel alone."""
PROBE_IN_MODEL = "probe in the model"
"""What the figures of retrieval by the running model are measured by."""
IN_MODEL = "in_model"
"""No column: which of its two runs a figure of probe that both give is meant of."""
ONLY_IN_MODEL = ("trials", "mean_rank", "other_key_top1", "retrieved", "ci_low", "ci_high")
SWITCHES = {"probe": (IN_MODEL,)}
"""Keys that choose a run, not rows of it."""

PLACES = ("layer", "head")
FILTERS = ("mechanism",)
"""May be named; unnamed they choose nothing."""
ALIASES = {"order": ("jet_order",), "length": ("eval_length", "window")}
POOLED = "fj+lc"
SECTORS = (*(sector.value for sector in Sector), POOLED)
WORDS: dict[str, tuple[str, ...]] = {
    "sector": SECTORS,
    "family": tuple(Family),
    "band": tuple(Band),
    "lag_weights": tuple(LagWeights),
    "mechanism": tuple(Mechanism),
}
"""Columns whose possible values are few and known."""

_NAME = re.compile(r"\s*([a-z_]+)\s*\.\s*([a-z0-9_]+)\s*")
_ITEM = re.compile(r"\s*([^,\]=]+?)\s*(?:=\s*([^,\]]*?)\s*)?([,\]]|$)")
_COMPARISON = re.compile(r"\s*(>=|<=|==|[<>](?!=))\s*(\S+)\s*$")


class ExpressionError(ValueError):
    """An expression that is not understood: what is wrong, where, and what to do."""

    def __init__(self, message: str, offset: int, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


@dataclass(frozen=True)
class Metric:
    """One column of a diagnostic, and the rows it is read from."""

    diagnostic: str
    column: str
    named: Mapping[str, Value]
    """Column -> value, by the names of the rows."""

    def __str__(self) -> str:
        parts = [str(self.named["sector"])] if "sector" in self.named else []
        parts += [f"{key}={_shown(value)}" for key, value in self.named.items() if key != "sector"]
        return f"{self.diagnostic}.{self.column}" + (f"[{', '.join(parts)}]" if parts else "")

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a row of the diagnostic, layer and head left out."""
        return KEYS[self.diagnostic]

    @property
    def measured_by(self) -> str:
        """The diagnostic; of loo and probe, which have two runs, the one that is meant."""
        if self.diagnostic == "loo" and self.column not in WITHOUT_DATA:
            return LOO_ON_DATA
        asked = self.named.get(IN_MODEL, self.column in ONLY_IN_MODEL or "depth" in self.named)
        return PROBE_IN_MODEL if self.diagnostic == "probe" and asked else self.diagnostic

    @property
    def conditions(self) -> Mapping[str, Value]:
        """What the rows must have."""
        switches = SWITCHES.get(self.diagnostic, ())
        return {key: value for key, value in self.named.items() if key not in switches}

    def with_named(self, key: str, value: Value) -> Metric:
        """This metric with one more column named."""
        return Metric(self.diagnostic, self.column, {**self.named, key: value})


def parse_metric(text: str) -> Metric:
    """The metric that ``text`` names. Raises ExpressionError.

    >>> str(parse_metric("mass.order_share[fj+lc, order=2]"))
    'mass.order_share[fj+lc, jet_order=2]'
    """
    metric, end = _metric(text)
    if text[end:].strip():
        raise ExpressionError(
            f"{text[end:].strip()!a} after the metric", end, "write DIAGNOSTIC.COLUMN[key=value]"
        )
    return metric


def parse_requirement(text: str) -> tuple[Metric, Bound]:
    """A metric and what it must be, such as ``mass.sector_share[affine] >= 0.5``.

    Raises ExpressionError.

    >>> metric, bound = parse_requirement("mass.mean_order[fj+lc] < 0.25")
    >>> metric.column, bound.holds(0.25)
    ('mean_order', False)
    """
    metric, end = _metric(text)
    found = _COMPARISON.match(text, end)
    if found is None:
        raise ExpressionError(
            "no comparison after the metric", end, "end with >=, <=, >, < or == and a number"
        )
    operator, number = found.groups()
    if is_text(metric):
        return metric, _equal(operator, number, found)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ExpressionError(f"{number!a} is no number", found.start(2), "write one such as 0.5")
    if operator == "==":
        return metric, Bound(target=value)
    exclusive = operator in "<>"
    if operator.startswith(">"):
        return metric, Bound(minimum=value, open=exclusive)
    return metric, Bound(maximum=value, open=exclusive)


def column_of(diagnostic: str, name: str) -> Column | None:
    """The column of that name; None where the diagnostic has none."""
    columns = DIAGNOSTICS[diagnostic]
    if diagnostic == "inspect":  # there the mechanism is what is told, not only whose row it is
        columns = (*columns, *(each for each in SCOPE_COLUMNS if each.name in FILTERS))
    return next((column for column in columns if column.name == name), None)


def is_text(metric: Metric) -> bool:
    """Whether the metric's column holds words."""
    column = column_of(metric.diagnostic, metric.column)
    return column is not None and column.kind == "text"


def _equal(operator: str, word: str, found: re.Match[str]) -> Bound:
    """What ``== word`` asks of a column of words."""
    if operator != "==":
        raise ExpressionError(f"{operator} between words", found.start(1), "compare words with ==")
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return Bound(text=word[1:-1] if quoted else word)


def _metric(text: str) -> tuple[Metric, int]:
    found = _NAME.match(text)
    if found is None:
        raise ExpressionError(
            "this is no metric", 0, "write DIAGNOSTIC.COLUMN[key=value], see docs/commands/gate.md"
        )
    diagnostic, name = found.groups()
    if diagnostic not in KEYS:
        close = near(diagnostic, KEYS)
        raise ExpressionError(
            f"unknown diagnostic {diagnostic!a}; there are {listed(sorted(KEYS), 12)}",
            found.start(1),
            f"near it: {listed(close)}" if close else "correct it",
        )
    column = column_of(diagnostic, name)
    figures = [c.name for c in DIAGNOSTICS[diagnostic] if _is_figure(diagnostic, c)]
    if column is None or not _is_figure(diagnostic, column):
        what = f"unknown column {name!a} of" if column is None else f"{name} is no figure of"
        close = near(name, figures)
        hint = f"near it: {listed(close)}" if close else f"there are {listed(figures, 24)}"
        raise ExpressionError(f"{what} {diagnostic}", found.start(2), hint)
    named, end = _named(diagnostic, text, found.end())
    return Metric(diagnostic, name, named), end


def _is_figure(diagnostic: str, column: Column) -> bool:
    return column.kind in (*FIGURE_KINDS, "text") and column.name not in KEYS[diagnostic]


def _named(diagnostic: str, text: str, at: int) -> tuple[dict[str, Value], int]:
    """The columns named in brackets at ``at``, and where they end."""
    named: dict[str, Value] = {}
    if text[at : at + 1] != "[":
        return named, at
    at += 1
    while True:
        found = _ITEM.match(text, at)
        if found is None or found[3] == "":
            raise ExpressionError("the bracket is not closed", at, "write [key=value, ...]")
        key, value, separator = found.groups()
        if value is None:
            if key not in SECTORS:
                raise ExpressionError(
                    f"{key!a} is neither a sector nor key=value",
                    found.start(1),
                    f"sectors are {listed(SECTORS)}",
                )
            key, value = "sector", key
        name = key_name(diagnostic, key, found.start(1))
        if name in named:
            raise ExpressionError(f"{name} is named twice", found.start(1), "name it once")
        named[name] = key_value(diagnostic, name, value, max(found.start(2), found.start(1)))
        at = found.end()
        if separator == "]":
            return named, at


def key_name(diagnostic: str, key: str, offset: int) -> str:
    """The column that ``key`` names in rows of ``diagnostic``. Raises ExpressionError."""
    known = (*KEYS[diagnostic], *PLACES, *FILTERS, *SWITCHES.get(diagnostic, ()))
    for name in (key, *ALIASES.get(key, ())):
        if name in known:
            return name
    raise ExpressionError(
        f"{diagnostic} has no key {key!a}", offset, f"keys are {listed(known, 12)}"
    )


def key_value(diagnostic: str, name: str, text: str, offset: int) -> Value:
    """``text`` as a value of that column. Raises ExpressionError."""
    column = column_of(diagnostic, name)
    kind = "count" if name in PLACES else "text" if column is None else column.kind
    kind = "flag" if name in SWITCHES.get(diagnostic, ()) else kind
    if kind == "count":
        if not (text.isascii() and text.isdigit()):
            raise ExpressionError(f"{name} is {text!a}", offset, "write a number from 0 on")
        return int(text)
    if kind == "flag":
        if text not in ("true", "false"):
            raise ExpressionError(f"{name} is {text!a}", offset, "write true or false")
        return text == "true"
    if kind == "share":
        return _share(name, text, offset)
    known = WORDS.get(name)
    if not text or (known is not None and text not in known):
        hint = f"values are {listed(known, 12)}" if known else f"write {name}=VALUE"
        raise ExpressionError(f"{name} is {text!a}", offset, hint)
    return text


def _share(name: str, text: str, offset: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ExpressionError(f"{name} is {text!a}", offset, "write a number from 0 to 1")
    return value


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
