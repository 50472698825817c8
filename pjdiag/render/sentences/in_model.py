"""The opening sentence of `probe --in-model`."""

from __future__ import annotations

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.text import listed
from pjdiag.render.views.in_model import found, whole
from pjdiag.results import Row


def sentence(place: Place) -> str:
    """How often the right value is first at each length, or that nothing is retrieved."""
    rows = list(place.rows)
    chance = numbers.percent(rows[0]["chance"])
    every = whole(rows)
    if not found(rows):
        depths = {row["depth"] for row in rows}
        where = "at any length or depth" if len(every) > 1 else "at any depth"
        if len(depths) == 1:
            where = "at any length" if len(every) > 1 else f"at {_tokens(every[0])}"
        above = any(row["ci_low"] > row["chance"] for row in rows)
        why = f"all at chance ({chance})"
        if above:
            why = f"what is above chance ({chance}) does not depend on the key"
        return f"the model does not retrieve {where}: {why}"
    first, *others = every
    shares = [f"{numbers.percent(first['top1'])} of contexts of {_tokens(first)}"]
    shares += [
        f"{numbers.percent(row['top1'])} of {numbers.count(row['eval_length'])}" for row in others
    ]
    text = f"the model retrieves the right value in {listed(shares)} (chance {chance})"
    return text + _weakest(rows)


def _weakest(rows: list[Row]) -> str:
    """The depth at which it retrieves least, where some are above chance and some are not."""
    cells = [row for row in rows if row["depth"] is not None]
    low = min(cells, key=lambda row: (row["top1"], row["eval_length"]))
    if len(cells) < 2 or low["retrieved"]:
        return ""
    return f"; least at depth {low['depth']:g} of {_tokens(low)}, {numbers.percent(low['top1'])}"


def _tokens(row: Row) -> str:
    return f"{numbers.count(row['eval_length'])} tokens"
