"""The opening sentence of `nll`."""

from __future__ import annotations

from functools import partial

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.views.nll import WHOLE
from pjdiag.results import Result

HOLDS = 0.01
"""A loss that changes by less than this part of itself holds."""


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    unit = str(result.provenance.get("unit") or "token")
    size = result.provenance.get("bytes_per_token")
    if unit == "token" and size is not None:
        unit = f"token of {numbers.figure(size)} bytes"
    return about(result, partial(sentence, unit, result.checkpoint.get("train_length")))


def sentence(unit: str, train_length: int | None, place: Place) -> str:
    """The loss at the shortest and the longest length, and whether it holds between them."""
    rows = sorted(
        (row for row in place.rows if row["bucket"] == WHOLE), key=lambda row: row["eval_length"]
    )
    short, long = rows[0], rows[-1]
    if long["nll"] is None:
        return (
            f"attention spreads over {numbers.figure(long['effective_support'])} tokens at a mean "
            f"lag of {numbers.figure(long['mean_distance'])} in windows of "
            f"{numbers.count(long['eval_length'])}"
        )
    text = (
        f"loss is {numbers.figure(short['nll'])} nats per {unit} at "
        f"{numbers.count(short['eval_length'])} tokens"
    )
    if short is long:
        return text
    text += f" and {numbers.figure(long['nll'])} at {numbers.count(long['eval_length'])}"
    beyond = train_length is not None and short["eval_length"] <= train_length < long["eval_length"]
    return f"{text}: {_change(short['nll'], long['nll'])}{' beyond training' if beyond else ''}"


def _change(short: float, long: float) -> str:
    """How the loss goes from the short to the long windows.

    >>> _change(1.60, 1.61), _change(1.60, 1.76), _change(1.60, 1.52), _change(1.6, 9.6)
    ('it holds', 'it rises by 10%', 'it falls by 5.0%', 'it rises by 500%')
    """
    if short <= 0 or abs(long - short) < HOLDS * short:
        return "it holds"
    word = "rises" if long > short else "falls"
    share = abs(long / short - 1)
    return f"it {word} by {numbers.percent(share) if share < 1 else f'{share:.0%}'}"
