"""Rows of a comparison in words, the same in its sentence, its tables and its figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pjdiag.render import numbers
from pjdiag.render.places import bucket_title
from pjdiag.results import Result, Row
from pjdiag.terms import DIAGNOSTICS, KEYS, SECTOR_TITLES, Sector

POOLED = "fj+lc"
WHOLE = "all"
FIGURES = {
    "loo_delta_mse": "delta MSE",
    "prior_kl": "prior KL",
    "bias_rms": "bias RMS",
    "nll": "loss",
    "r2": "R2",
    "unique_r2": "unique R2",
    "incremental_r2": "incremental R2",
    "bic": "BIC",
    "kernel": "K(d) - K(0)",
}
"""Figures whose column name is no word."""


def first_name(result: Result) -> str:
    """The name of the checkpoint that the others are compared with."""
    described = checkpoints(result)
    return str(described[0].get("name")) if described else "the first"


def checkpoints(result: Result) -> list[Mapping[str, Any]]:
    """What is known of each checkpoint."""
    found = result.provenance.get("checkpoints") or []
    return [each for each in found if isinstance(each, dict)]


def worded(row: Row) -> bool:
    """Whether words tell what the figure is, not numbers."""
    return row.get("text_a") is not None or row.get("text_b") is not None


def figure_title(row: Row) -> str:
    """A figure in words.

    >>> figure_title({"figure": "sector_share"})
    'sector share'
    """
    name = str(row["figure"])
    return FIGURES.get(name) or name.replace("_", " ")


def subject(row: Row, *, family: bool = False, without: Collection[str] = ()) -> str:
    """What a figure speaks of, from the keys of its row, those in ``without`` left out.

    >>> subject({"measured": "mass", "figure": "order_share", "sector": "fj", "jet_order": 2})
    'Fourier-jet, order 2'
    """
    parts = []
    for key in KEYS[row["measured"]]:
        value = row.get(key)
        if value is None or value is False or key in without:
            continue
        if key == "family" and not family:
            continue
        if (key, value) in (("lag_weights", "uniform"), ("variant", "checkpoint")):
            continue
        parts.append(_key_words(key, value))
    return ", ".join(part for part in parts if part)


def side_text(row: Row, side: str) -> str:
    """A figure of one side, ``a`` or ``b``, in words where it has any."""
    words = row.get(f"text_{side}")
    return value_text(row, row.get(f"value_{side}")) if words is None else str(words)


def value_text(row: Row, value: float | None) -> str:
    """A figure as it is printed; a sector that is not there is absent."""
    if value is None:
        return numbers.ABSENT
    kind = kind_of(row)
    if kind == "flag":
        return "yes" if value else "no"
    if kind == "count":
        return numbers.setting(value)
    return numbers.share_cell(value) if kind == "share" else numbers.figure(value)


def kind_of(row: Row) -> str:
    """Kind of the column that was compared."""
    columns = DIAGNOSTICS.get(row["measured"], ())
    return next((column.kind for column in columns if column.name == row["figure"]), "real")


def _key_words(key: str, value: Any) -> str:
    if key == "sector":
        if value == POOLED:
            return "both jets"
        return SECTOR_TITLES[Sector(value)]
    if key == "bucket":
        return "" if value == WHOLE else bucket_title(str(value))
    if key in ("window", "eval_length"):
        return f"{numbers.count(value)} tokens"
    if key == "jet_order":
        return f"order {value}"
    if key in ("channel", "lag", "band"):
        return f"{key} {value}"
    return "centred" if key == "centred" else str(value)


def step_labels(result: Result, others: Sequence[str]) -> tuple[bool, list[Any]]:
    """Whether every checkpoint has its step; and steps, else names, the first checkpoint first."""
    named = [first_name(result), *others]
    steps = {str(each.get("name")): each.get("step") for each in checkpoints(result)}
    stepped = bool(steps) and all(isinstance(steps.get(name), int) for name in named)
    return stepped, [steps[name] if stepped else name for name in named]


def where(row: Row) -> str:
    """The place of a row."""
    text = f"layer {row['layer']}" if row.get("layer") is not None else ""
    return f"{text} head {row['head']}".strip() if row.get("head") is not None else text
