"""The opening sentence of `stability`."""

from __future__ import annotations

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed
from pjdiag.render.views.stability import OWN
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Sector

BOUNDED = 10.0
"""A coordinate whose bias grows less than this over the lengths keeps its scale."""


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, sentence)


def sentence(place: Place) -> str:
    """What grows, and what stops telling lags apart, at the longest length."""
    length = max(row["eval_length"] for row in place.rows)
    lead = f"at {numbers.count(length)} tokens"
    if any(row.get("variant") not in (None, OWN) for row in place.rows):
        return f"{lead} {_variants(place, length)}"
    rows = {row.get("sector"): row for row in place.rows if row["eval_length"] == length}
    parts = []
    whole = rows.get(None)
    if whole is not None and whole["bias_max"] == 0:
        return f"{lead} the position bias is zero: it prefers no lag, and nothing of it grows"
    if whole is not None:
        parts.append(f"the bias reaches {numbers.figure(whole['bias_max'])} logits")
        parts[-1] += _growth(place, whole)
        parts.append(
            f"a head's attention prior spreads over {numbers.figure(whole['effective_support'])} "
            "tokens on average"
        )
    largest = max(
        (sector for sector in rows if sector is not None),
        key=lambda sector: rows[sector].get("bias_rms") or 0.0,
        default=None,
    )
    if largest is not None and len(rows) > 2:
        parts.append(f"{SECTOR_TITLES[Sector(largest)]} is the largest part of the bias")
    return f"{lead} {'; '.join(parts)}" if parts else f"{lead} nothing is known"


def _growth(place: Place, longest: Row) -> str:
    """How much larger than at the shortest length that was measured."""
    shortest = min(
        (row for row in place.rows if row.get("sector") is None),
        key=lambda row: row["eval_length"],
    )
    before = shortest.get("bias_max")
    if not before or shortest["eval_length"] == longest["eval_length"]:
        return ""
    times = numbers.figure(longest["bias_max"] / before)
    return f", {times} times its largest at {numbers.count(shortest['eval_length'])}"


def _variants(place: Place, length: int) -> str:
    """Which coordinates keep the bias bounded between the shortest and the longest length."""
    by_variant: dict[str, list[Row]] = {}
    for row in place.rows:
        by_variant.setdefault(str(row["variant"]), []).append(row)
    if len({row["eval_length"] for row in place.rows}) == 1:
        sizes = {name: rows[0].get("norm_final") or 0.0 for name, rows in by_variant.items()}
        largest, smallest = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
        return (
            f"the amplitudes of {largest} have reached {numbers.figure(sizes[largest])}, those of "
            f"{smallest} {numbers.figure(sizes[smallest])}"
        )
    grown: list[str] = []
    kept: list[str] = []
    for name, rows in by_variant.items():
        shortest = min(rows, key=lambda row: row["eval_length"])
        (longest,) = [row for row in rows if row["eval_length"] == length]
        before, after = shortest["norm_final"], longest["norm_final"]
        if before and after is not None:
            (grown if after / before > BOUNDED else kept).append(name)
    if not grown:
        return f"no coordinate grows by more than {BOUNDED:g} times"
    text = f"{listed(grown)} grow by more than {BOUNDED:g} times"
    return f"{text}; {listed(kept)} keep their scale" if kept else text
