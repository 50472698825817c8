"""Checks of a gate in words, the same in every format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pjdiag.gate.metrics import column_of
from pjdiag.gate.policy import REQUIRED
from pjdiag.render import numbers
from pjdiag.render.text import some_spans
from pjdiag.results import Result, Row
from pjdiag.terms import DIAGNOSTICS

DIGITS = 3
FEW = 3
"""Different words that are named."""


@dataclass(frozen=True)
class RuleChecks:
    """The checks of one rule, in the order of their places."""

    rule: str
    rows: tuple[Row, ...]


def by_rule(rows: Iterable[Row]) -> list[RuleChecks]:
    """Rows gathered by their rule, in the order of the policy."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["rule"]), []).append(row)
    return [RuleChecks(rule, tuple(checks)) for rule, checks in found.items()]


def place(row: Row) -> str:
    """Where a check looked.

    >>> place({"layer": 3, "head": None}), place({"layer": None, "head": None})
    ('layer 3', 'model')
    """
    layer, head = row.get("layer"), row.get("head")
    parts = [f"layer {layer}"] if layer is not None else []
    parts += [f"head {head}"] if head is not None else []
    return " ".join(parts) or "model"


def places(rows: Sequence[Row]) -> str:
    """Several places on one line; heads as their layers."""
    if len(rows) == 1:
        return place(rows[0])
    layers = {row["layer"] for row in rows if row.get("layer") is not None}
    heads = sum(row.get("head") is not None for row in rows)
    word = "layer" if len(layers) == 1 else "layers"
    text = f"{word} {some_spans(layers)}"
    return f"{heads} heads of {text}" if heads else text


def value(row: Row) -> str:
    """The figure in the unit of the policy, with enough digits to be told from its bounds.

    >>> value({"metric": "mass.sector_share[affine]", "value": 0.812})
    '0.812'
    >>> value({"metric": "mass.sector_share[affine]", "value": 0.49999, "minimum": 0.5})
    '0.49999'
    """
    figure = row["value"]
    if row.get("found") is not None:
        return ascii(row["found"])
    kind = _kind(row)
    if figure is None or kind == "count":
        return numbers.setting(figure)
    if kind == "text":
        return "equal" if figure else "different"
    if kind == "flag":
        return "true" if figure else "false"
    rounded = float(f"{figure:.{DIGITS - 1}e}")
    if rounded != figure and rounded in (row.get("minimum"), row.get("maximum")):
        return f"{figure:.9g}"
    return numbers.figure(figure, DIGITS)


def is_known(row: Row) -> bool:
    """Whether there is a figure, or words."""
    return row["value"] is not None or row.get("found") is not None


def span(rows: Sequence[Row], column: str = "value") -> str:
    """The figure, the smallest and the largest of several, or the words; empty where none is known.

    >>> span([{"metric": "inspect.rope_type", "value": 1.0, "found": word} for word in "aba"])
    "'a', 'b'"
    """
    words = dict.fromkeys(value(row) for row in rows if row.get("found") is not None)
    if words and column == "value":
        more = [f"{len(words) - FEW} more"] if len(words) > FEW else []
        return ", ".join([*list(words)[:FEW], *more])
    found = [row for row in rows if row[column] is not None]
    if not found or words:
        return ""
    ends = [value({**found[0], "value": pick(row[column] for row in found)}) for pick in (min, max)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def sentence(row: Row) -> str:
    """What a check found, without its place.

    >>> sentence({"metric": "mass.mean_order[fj]", "requirement": "at most 1", "value": 1.5,
    ...           "status": "violated", "reason": None, "message": None})
    'mass.mean_order[fj] is 1.50; required: at most 1'
    """
    figure = value(row) if is_known(row) else "missing"
    text = f"{row['metric']} is {figure}; required: {row['requirement']}"
    parts = [str(row[name]) for name in ("reason", "message") if row.get(name)]
    return "; ".join([text, *parts])


def rule_sentence(rows: Sequence[Row]) -> str:
    """What several checks of one rule found, on one line."""
    if len(rows) == 1:
        where = place(rows[0])
        return sentence(rows[0]) if where == "model" else f"{where}: {sentence(rows[0])}"
    first = rows[0]
    text = f"{places(rows)}: {first['metric']}"
    if any(map(is_known, rows)):
        text += f" is {span(rows)}"
    reasons = list(dict.fromkeys(str(row["reason"]) for row in rows if row.get("reason")))
    parts = [f"{text}; required: {first['requirement']}", *reasons[:1]]
    return "; ".join([*parts, *([str(first["message"])] if first.get("message") else [])])


def in_file(row: Row) -> bool:
    """Whether the rule stands in a file."""
    return row.get("policy") not in (None, REQUIRED)


def location(result: Result, row: Row | None = None) -> str:
    """The file that a rule stands in, from the root of the sources; else the checkpoint."""
    if row is not None and in_file(row):
        return str(result.provenance.get("policy_uri") or row["policy"])
    found = result.provenance.get("checkpoint_uri") or result.checkpoint.get("path")
    return str(found or "checkpoint")


def _kind(row: Row) -> str:
    """The kind of the column that the metric names; of a fraction that of a share."""
    if str(row.get("requirement", "")).endswith("% of its places"):
        return "share"
    diagnostic, _, rest = str(row["metric"]).partition(".")
    name = rest.partition("[")[0]
    column = column_of(diagnostic, name) if diagnostic in DIAGNOSTICS else None
    return "real" if column is None else column.kind
