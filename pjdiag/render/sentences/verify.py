"""The opening sentence of `verify`."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed
from pjdiag.render.views.verify import OWN, PARITY, transform_title
from pjdiag.results import Result, Row


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, sentence)


def sentence(place: Place) -> str:
    """Whether the checkpoint's own transforms keep their laws, and whether we read them right."""
    own = [row for row in place.rows if row["subject"] == OWN]
    laws = [row for row in own if row["law"] not in PARITY]
    logits = [row for row in own if row["law"] in PARITY]
    return f"{_laws(laws)}; {_parity(logits)}"


def _laws(rows: Sequence[Row]) -> str:
    if not rows:
        return "no transform of the checkpoint could be measured"
    names = list(dict.fromkeys(str(row["transform"]) for row in rows))
    broken = [row for row in rows if row["passed"] is False]
    if not broken:
        length = numbers.count(max(row["eval_length"] for row in rows))
        keeps = "keeps its laws" if len(names) == 1 else "keep their laws"
        titles = listed(transform_title(name) for name in names)
        return f"{titles} {keeps} up to {length} tokens in float32 and float64"
    first = min(broken, key=lambda row: row["eval_length"])
    precisions = sorted({str(row["precision"]) for row in broken})
    reason = str(first["reason"])
    return (
        f"{transform_title(first['transform'])} breaks its laws from "
        f"{numbers.count(first['eval_length'])} tokens on in {listed(precisions)} ({reason})"
    )


def _parity(rows: Sequence[Row]) -> str:
    if not rows:
        return "parity with the model was not measured"
    errors = [row["error"] for row in rows]
    worst = None if None in errors else max(errors)
    if any(row["passed"] is False for row in rows):
        off = numbers.percent(worst)
        return f"our reading is not the model's attention: off by {off} of the largest figure"
    return f"our reading gives the model's attention to {numbers.figure(worst, 2)}"
