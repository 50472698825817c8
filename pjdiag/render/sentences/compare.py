"""The opening sentence of `compare`."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.render import numbers
from pjdiag.render.compared import (
    checkpoints,
    figure_title,
    first_name,
    kind_of,
    side_text,
    subject,
    value_text,
    where,
    worded,
)
from pjdiag.render.places import coarsest
from pjdiag.render.sentences._common import nothing
from pjdiag.render.text import capitalised
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Family, Sector

SHARE = "sector_share"
ORDERS = ("order_share", "mean_order")
UNMOVED = 5e-4
"""Shares that differ by less print the same."""
NAMED = 3


def headline(result: Result) -> str:
    """What rose and what fell in the coarsest scope, from the first checkpoint to the last."""
    if not result.rows:
        return _incomparable(result)
    instead = result.provenance.get("instead_of")
    return _told(result) + (f"; no figure of {instead} is shared" if instead else "")


def _told(result: Result) -> str:
    others = list(dict.fromkeys(row["compared"] for row in result.rows))
    last = [row for row in result.rows if row["compared"] == others[-1]]
    place = coarsest(last)[0]
    rows = [row for row in place.rows if row["difference"] is not None]
    lead = _lead(result, others)
    if _tells_nothing(last):
        text = (
            "mass does not tell models with multiplicative positions (RoPE) apart here: its order "
            "shares are the same for all of them; compare with --diagnostic spectrum"
        )
        return capitalised(f"{lead}{text}")
    if all(row["difference"] == 0 for row in last):
        text = f"{len(last)} figures are the same in {first_name(result)} and {others[-1]}"
        return capitalised(f"{lead}{text}")
    shares = [row for row in place.rows if row["figure"] == SHARE]
    if shares:
        sentence = _shares(shares, place.rows)
    else:
        changed = [row for row in rows if row["difference"]]
        sentence = "; ".join(map(_moved, changed[:NAMED]))
        sentence = sentence or "nothing moved"
    if place.scope.value != "model":
        sentence = f"{place.label}: {sentence}"
    return capitalised(f"{lead}{sentence}{_finer(last, place.rows)}")


def _incomparable(result: Result) -> str:
    if not checkpoints(result):
        return nothing(result)
    why = [warning for warning in result.warnings if "no row of the checkpoints" not in warning]
    text = "`compare` found nothing that the checkpoints share"
    return f"{text} ({why[0]})" if len(why) == 1 else text


def _lead(result: Result, others: Sequence[str]) -> str:
    """Which of several checkpoints the sentence speaks of."""
    if len(others) < 2:
        return ""
    described = checkpoints(result)
    steps = [each.get("step") for each in described]
    if described and all(step is not None for step in steps):
        return f"from step {numbers.count(steps[0])} to {numbers.count(steps[-1])}, "
    return f"from {first_name(result)} to {others[-1]}, "


def _tells_nothing(rows: Sequence[Row]) -> bool:
    """Only order shares of plain rotations, which are 100% at order 0 whatever was learnt."""
    return all(
        row["measured"] == "mass"
        and row.get("family") == Family.MULTIPLICATIVE
        and row["figure"] in ORDERS
        and row.get("jet_order") in (0, None)
        and row["difference"] == 0
        for row in rows
    )


def _absent(share: Row, rows: Sequence[Row], side: str) -> bool:
    """Is the sector not there, or is it there with no mass to divide?"""
    same = ("layer", "head", "sector", "family", "measured", "compared")
    found = {
        row["figure"]: row[side]
        for row in rows
        if row.get("jet_order") is None and all(row.get(key) == share.get(key) for key in same)
    }
    return found.get("effective_mass") is None and not found.get("sector_gate")


def _shares(rows: Sequence[Row], beside: Sequence[Row]) -> str:
    """Every sector's share, the one that moved most first."""
    ranked = sorted(rows, key=lambda row: -abs(row["difference"] or 0.0))
    parts: list[str] = []
    for row in ranked:
        sector = SECTOR_TITLES[Sector(row["sector"])]
        a, b = numbers.percent(row["value_a"]), numbers.percent(row["value_b"])
        whole = "" if parts else " of the mass"
        missing = next((side for side in ("value_a", "value_b") if row[side] is None), None)
        if missing and not _absent(row, beside, missing):
            way = f"rose from 0 to {b}" if missing == "value_a" else f"fell from {a} to 0"
            parts.append(f"{sector} {way}{whole}")
        elif missing:
            present, only = (b, "last") if row["value_a"] is None else (a, "first")
            parts.append(f"{sector} is in the {only} only ({present}{whole})")
        elif abs(row["difference"]) < UNMOVED or a == b:
            parts.append(f"{sector} stayed at {b}{whole}")
        else:
            verb = "rose" if row["difference"] > 0 else "fell"
            parts.append(f"{sector} {verb} from {a} to {b}{whole}")
    return "; ".join(parts)


def _moved(row: Row) -> str:
    """One figure: what it is, from where to where, and whether that is more than noise."""
    of = subject(row)
    name = f"{figure_title(row)} of {of}" if of else figure_title(row)
    if worded(row):
        return f"{name} is {side_text(row, 'b')} instead of {side_text(row, 'a')}"
    if kind_of(row) == "flag":
        text = f"{name} is {value_text(row, row['value_b'])} instead of "
        return text + value_text(row, row["value_a"])
    verb = "rose" if row["difference"] > 0 else "fell"
    text = f"{name} {verb} from {value_text(row, row['value_a'])}"
    text += f" to {value_text(row, row['value_b'])}"
    return text + (", within the noise" if row["within_noise"] else "")


def _finer(rows: Sequence[Row], coarse: Sequence[Row]) -> str:
    """The layer whose share of a sector moved most."""
    if coarse[0]["scope"] != "model":
        return ""
    layers = [
        row
        for row in rows
        if row["scope"] == "layer" and row["figure"] == SHARE and row["difference"]
    ]
    if not layers or not any(row["figure"] == SHARE for row in coarse):
        return ""
    most = max(layers, key=lambda row: abs(row["difference"]))
    if abs(most["difference"]) < UNMOVED:
        return ""
    sector = SECTOR_TITLES[Sector(most["sector"])]
    ends = [numbers.percent(most[side]) for side in ("value_a", "value_b")]
    return f"; most in {where(most)}: {sector} from {ends[0]} to {ends[1]}"
