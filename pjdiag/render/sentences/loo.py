"""The opening sentence of `loo`."""

from __future__ import annotations

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences import model_loo
from pjdiag.render.sentences._common import about
from pjdiag.render.sentences._removals import removal_words
from pjdiag.render.text import listed
from pjdiag.render.views.loo import is_zero
from pjdiag.render.views.model_loo import of_a_model
from pjdiag.results import Result, Row

__all__ = ["headline", "removal_words", "sentence"]

MEASURABLE = 1e-3
"""Nats. A smaller mean divergence of the attention prior counts as nothing measurable: by
Pinsker's inequality it moves at most 2.2% of the attention, sqrt(KL / 2), on average."""


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    if of_a_model(result):
        return model_loo.headline(result)
    return about(result, sentence)


def sentence(place: Place) -> str:
    """What the removal does to the attention prior at the longest length."""
    if is_zero(place):
        return "the position bias is zero until it is trained: removing any of it changes nothing"
    length = max(row["eval_length"] for row in place.rows)
    rows = {str(row["removed"]): row for row in place.rows if row["eval_length"] == length}
    at = f"at {numbers.count(length)} tokens"
    orders = [name for name in rows if name.startswith("order:")]
    if len(orders) == 1 and not any(name.startswith("sector:") for name in rows):
        return _single(orders[0], rows[orders[0]], at)
    if len(rows) == 1:
        return _single(*next(iter(rows.items())), at)
    known = {name: row["prior_kl"] for name, row in rows.items() if row["prior_kl"] is not None}
    if not known:
        return f"what a removal does to the attention prior {at} is {numbers.UNKNOWN}"
    top = max(known, key=lambda name: known[name])
    text = f"removing {removal_words(top)} moves the attention prior most, by {_nats(known[top])} "
    return "; ".join([text + at, *_orders(known, top)])


def _single(removed: str, row: Row, at: str) -> str:
    figure = row["prior_kl"]
    if figure is None:
        return f"what removing {removal_words(removed)} does {at} is {numbers.UNKNOWN}"
    verdict = ": nothing measurable" if abs(figure) < MEASURABLE else ""
    text = f"removing {removal_words(removed)} moves the attention prior by {_nats(figure)} {at}"
    return text + verdict


def _orders(known: dict[str, float], top: str) -> list[str]:
    """The largest order, unless it is named already, and those that change nothing."""
    orders = {name: figure for name, figure in known.items() if name.startswith("order:")}
    parts = []
    largest = max(orders, key=lambda name: orders[name], default=None)
    if largest not in (None, top) and orders[str(largest)] >= MEASURABLE:
        parts.append(f"{removal_words(str(largest))} by {_nats(orders[str(largest)])}")
    small = [name.partition(":")[2] for name, figure in orders.items() if figure < MEASURABLE]
    if small:
        word = "order" if len(small) == 1 else "orders"
        parts.append(f"{word} {listed(small)}: nothing measurable (below {MEASURABLE} nats)")
    return parts


def _nats(figure: float) -> str:
    return f"{numbers.figure(figure, 2)} nats"
