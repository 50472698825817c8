"""The opening sentence of `probe --in-model`."""

from __future__ import annotations

from pjdiag.diagnostics.in_model_rows import CONFIDENCE, tail
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
        return f"the model does not retrieve {where}: {_why(rows, every, chance)}"
    first, *others = every
    shares = [f"{numbers.percent(first['top1'])} of contexts of {_tokens(first)}"]
    shares += [
        f"{numbers.percent(row['top1'])} of {numbers.count(row['eval_length'])}" for row in others
    ]
    text = f"the model retrieves the right value in {listed(shares)} (chance {chance})"
    return text + _weakest(rows)


def _why(rows: list[Row], every: list[Row], chance: str) -> str:
    """From the rows of whole lengths, which are shown; a depth alone counts if it is no luck."""
    if any(row["ci_low"] > row["chance"] for row in every):
        return f"what is above chance ({chance}) does not depend on the key"
    preferred = [row for row in rows if row["depth"] is not None and _no_luck(row, len(rows))]
    if preferred:
        top = max(preferred, key=lambda row: float(row["top1"]))
        where = f"at depth {top['depth']:g} of {_tokens(top)}"
        return (
            f"{numbers.percent(top['top1'])} {where}, above chance ({chance}), do not depend on "
            "the key"
        )
    return f"all at chance ({chance})"


def _no_luck(row: Row, rows: int) -> bool:
    """Whether the share is above chance, although as many ``rows`` had the chance to be."""
    right = round(row["top1"] * row["trials"])
    return tail(right, row["trials"], row["chance"]) <= (1 - CONFIDENCE) / rows


def _weakest(rows: list[Row]) -> str:
    """The depth at which it retrieves least, where some are above chance and some are not."""
    cells = [row for row in rows if row["depth"] is not None]
    low = min(cells, key=lambda row: (row["top1"], row["eval_length"]))
    if len(cells) < 2 or low["retrieved"]:
        return ""
    return f"; least at depth {low['depth']:g} of {_tokens(low)}, {numbers.percent(low['top1'])}"


def _tokens(row: Row) -> str:
    return f"{numbers.count(row['eval_length'])} tokens"
