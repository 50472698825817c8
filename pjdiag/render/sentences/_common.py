"""What every opening sentence needs: whom it speaks of, and what to say without figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pjdiag.render.places import Place, coarsest
from pjdiag.render.text import capitalised, plural
from pjdiag.results import Result
from pjdiag.terms import Scope


def about(result: Result, sentence: Callable[[Place], str]) -> str:
    """``sentence`` of the coarsest scope that has rows, with its name unless it is the model."""
    found = coarsest(result.rows)
    if not found:
        return nothing(result)
    first = found[0]
    text = sentence(first)
    if first.scope != Scope.MODEL:
        text = f"{first.label}: {text}"
    if len(found) > 1:
        text += f"; {len(found) - 1} more below"
    return capitalised(text) + _excluded(result)


def nothing(result: Result) -> str:
    """Why there is no figure."""
    if not result.skipped:
        return f"Nothing to measure: no layer has a part that `{result.diagnostic}` speaks of"
    layers = len({entry.layer for entry in result.skipped})
    reasons = list(dict.fromkeys(entry.reason for entry in result.skipped))
    text = f"Nothing could be measured: {layers} {plural('layer', layers)} left out"
    return f"{text} ({reasons[0]})" if len(reasons) == 1 else f"{text}, for the reasons below"


def _excluded(result: Result) -> str:
    bad: Sequence[tuple[int, int | None]] = sorted(
        {(entry.layer, entry.head) for entry in result.skipped if entry.bad_values},
        key=lambda where: (where[0], -1 if where[1] is None else where[1]),
    )
    if not bad:
        return ""
    heads = sum(head is not None for _, head in bad)
    layers = len(bad) - heads
    parts = [
        f"{number} {plural(word, number)}"
        for number, word in ((heads, "head"), (layers, "layer"))
        if number
    ]
    return f"; {' and '.join(parts)} excluded for bad values"
