"""The opening sentence of `loo` on data."""

from __future__ import annotations

from functools import partial

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.sentences._removals import removal_words
from pjdiag.render.text import listed
from pjdiag.results import Result, Row
from pjdiag.terms import Scope

MEASURABLE = 1e-4
"""Nats a token. A smaller change of the loss counts as nothing measurable, whatever its interval:
it is a part in ten thousand of the perplexity."""


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, partial(sentence, str(result.provenance.get("unit") or "token")))


def sentence(unit: str, place: Place) -> str:
    """What costs most at the longest length, its interval and its control, and what costs nothing.

    Without a loss, what moves attention most.
    """
    length = max(row["eval_length"] for row in place.rows)
    rows = [row for row in place.rows if row["eval_length"] == length]
    at = f"at {numbers.count(length)} tokens"
    where = " everywhere" if place.scope == Scope.MODEL else ""
    known = [row for row in rows if row["loo_delta_nll"] is not None]
    if not known:
        return _attention(rows, where, at)
    top = max(known, key=lambda row: row["loo_delta_nll"])
    text = f"removing {removal_words(top['removed'])}{where} {_cost(top, unit, at)}"
    if len(known) == 1:
        return text
    small = [removal_words(row["removed"]) for row in known if _idle(row) and row is not top]
    single = [name for name in small if "Fourier-jet" not in name and "light-cone o" not in name]
    if _idle(top):
        return f"nothing measurable {at} in any of {len(known)} removals; most, {text}"
    return f"{text}; nothing measurable: {listed(_merged(single))}" if single else text


def _merged(names: list[str]) -> list[str]:
    """Orders in one word.

    >>> _merged(["order 1", "order 2", "the local band"])
    ['orders 1, 2', 'the local band']
    """
    orders = [name.partition(" ")[2] for name in names if name.startswith("order ")]
    others = [name for name in names if not name.startswith("order ")]
    if not orders:
        return others
    words = (
        f"order{'s' if len(orders) > 1 else ''} {', '.join(orders) if others else listed(orders)}"
    )
    return [words, *others]


def _idle(row: Row) -> bool:
    """Whether the change is none, as far as the windows tell."""
    low, high = row["ci_low"], row["ci_high"]
    if abs(row["loo_delta_nll"]) < MEASURABLE:
        return True
    return low is not None and low <= 0 <= high


def _cost(row: Row, unit: str, at: str) -> str:
    delta, control = row["loo_delta_nll"], row["control_delta_nll"]
    verb = "costs" if delta >= 0 else "lowers the loss by"
    text = f"{verb} {numbers.figure(abs(delta))} nats per {unit} {_interval(row, delta)}{at}"
    if _idle(row):
        return f"{text}: nothing measurable"
    if control is None:
        return text
    same = "a random part of the same size"
    if control >= delta > 0:
        return f"{text}, no more than {same}, which costs {numbers.figure(control)}"
    if control < 0:
        return f"{text}; {same} lowers it by {numbers.figure(-control)}"
    return f"{text}; {same} costs {numbers.figure(control)}"


def _interval(row: Row, delta: float) -> str:
    ends = [row["ci_low"], row["ci_high"]]
    if None in ends:
        return "(one window, no interval) "
    low, high = ends if delta >= 0 else (-ends[1], -ends[0])
    return f"({numbers.figure(low)} to {numbers.figure(high)}) "


def _attention(rows: list[Row], where: str, at: str) -> str:
    known = [row for row in rows if row["attention_kl"] is not None]
    if not known:
        return f"what a removal does to the model {at} is {numbers.UNKNOWN}"
    top = max(known, key=lambda row: row["attention_kl"])
    most = " most" if len(known) > 1 else ""
    return (
        f"removing {removal_words(top['removed'])}{where} moves attention{most}, by "
        f"{numbers.figure(top['attention_kl'])} nats {at}; there is no loss to tell what that costs"
    )
