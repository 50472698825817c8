"""The opening sentence of `loo` on data."""

from __future__ import annotations

from functools import partial

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.sentences._removals import removal_words
from pjdiag.render.text import counted, listed
from pjdiag.render.views.model_loo import SINGLE, idle, leading
from pjdiag.results import Result, Row
from pjdiag.terms import Scope


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
    top = leading(rows)
    if top is None or (idle(top) and len(known) > 1):
        return _nothing(known, where, unit, at)
    text = f"removing {removal_words(top['removed'])}{where} {_cost(top, unit, at)}"
    return "; ".join([text, *_without_effect(known)]) if len(known) > 1 else text


def _nothing(known: list[Row], where: str, unit: str, at: str) -> str:
    top = max(known, key=lambda row: abs(row["loo_delta_nll"]))
    return (
        f"nothing measurable {at}: of {len(known)} removals, {removal_words(top['removed'])}"
        f"{where} changes the loss most, by {numbers.figure(top['loo_delta_nll'])} nats per {unit}"
        f"{_interval(top)}"
    )


def _without_effect(known: list[Row]) -> list[str]:
    """Orders, sectors and bands, but not one sector's orders, which the whole order covers."""
    small = [str(row["removed"]) for row in known if idle(row)]
    words = _merged([removal_words(name) for name in small if not name.startswith(SINGLE)])
    return [f"nothing measurable: {listed(words)}"] if words else []


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


def _cost(row: Row, unit: str, at: str) -> str:
    delta, control = row["loo_delta_nll"], row["control_delta_nll"]
    verb, size = ("costs", delta) if delta >= 0 else ("changes the loss by", delta)
    text = f"{verb} {numbers.figure(size)} nats per {unit}{_interval(row)} {at}"
    if idle(row):
        return f"{text}: nothing measurable"
    if control is None:
        return text
    same = "a random part of the same size"
    if delta < 0:
        return f"{text}; {same} changes it by {numbers.figure(control)}"
    if control >= delta:
        return f"{text}, no more than {same}: {numbers.figure(control)}"
    return f"{text}; {same} costs {numbers.figure(control)}"


def _interval(row: Row) -> str:
    ends = [row["ci_low"], row["ci_high"]]
    if None in ends:
        return f" ({counted(row['windows'], 'window')}, too few for an interval)"
    return f" ({' to '.join(map(numbers.figure, ends))})"


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
