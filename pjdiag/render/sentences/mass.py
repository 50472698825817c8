"""The opening sentence of `mass`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from pjdiag.render import numbers
from pjdiag.render.places import Place, mechanism_title
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed
from pjdiag.render.views.mass import POOLED, absent
from pjdiag.results import Result, Row
from pjdiag.terms import JET_SECTORS, SECTOR_TITLES, Family, Scope, Sector


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, partial(sentence, result))


def sentence(result: Result, place: Place) -> str:
    """Sectors by their share, the largest first; without a bias, what there is instead."""
    totals = {
        Sector(row["sector"]): row
        for row in place.rows
        if row.get("family") == Family.ADDITIVE.value
        and row.get("jet_order") is None
        and row.get("sector") != POOLED
    }
    if not totals:
        return _without_bias(result, place)
    enabled = {sector: row for sector, row in totals.items() if not absent(row)}
    parts = [_shares(enabled)]
    missing = [SECTOR_TITLES[sector] for sector in totals if sector not in enabled]
    if missing:
        parts.append(f"no {listed(missing, 'or')} sector")
    mean = _mean_order(place)
    if mean is not None:
        parts.append(f"mean jet order {numbers.figure(mean, 2)}")
    beside = [row for row in place.rows if row.get("family") == Family.MULTIPLICATIVE.value]
    if beside:
        parts.append(f"apart from it, {mechanism_title(beside[0].get('mechanism'))} multiplies")
    return "; ".join(parts)


def _shares(enabled: dict[Sector, Row]) -> str:
    if enabled and all(row.get("effective_mass") == 0 for row in enabled.values()):
        names = listed(SECTOR_TITLES[sector] for sector in enabled)
        return f"the position bias is zero: no mass in {names}"
    if not enabled:
        return "the sector is absent from this checkpoint"
    ranked = sorted(enabled, key=lambda sector: -(enabled[sector].get("sector_share") or 0.0))
    shares = [numbers.percent(enabled[sector].get("sector_share")) for sector in ranked]
    first = f"{SECTOR_TITLES[ranked[0]]} carries {shares[0]} of the effective mass"
    others = zip(ranked[1:], shares[1:], strict=True)
    rest = ", ".join(f"{SECTOR_TITLES[sector]} {share}" for sector, share in others)
    return f"{first}; {rest}" if rest else first


def _mean_order(place: Place) -> float | None:
    """Over both jets; the sector's own where only one jet was asked for."""
    means = {
        row["sector"]: row["mean_order"]
        for row in place.rows
        if row.get("family") == Family.ADDITIVE.value and row.get("mean_order") is not None
    }
    for name in (POOLED, *(sector.value for sector in JET_SECTORS)):
        if name in means:
            return float(means[name])
    return None


def _without_bias(result: Result, place: Place) -> str:
    """The mass per head, and the layers (of a layer: the heads) with the least and the most."""
    mechanism = mechanism_title(place.rows[0].get("mechanism"))
    text = f"no bias: position enters through {mechanism}, which multiplies"
    here = place.rows[0].get("layer"), place.rows[0].get("head")
    masses = _rotary_masses(result)
    if here not in masses:
        return text
    text += f"; its query-key mass is {numbers.figure(masses[here])} logits"
    text += " per head" if place.scope != Scope.HEAD else ""
    ranked = sorted(_finer(masses, *here), key=lambda where: masses[where]) or [here]
    least, most = ranked[0], ranked[-1]
    ends = [numbers.figure(masses[where]) for where in (least, most)]
    if ends[0] != ends[1]:
        text += f", least in {_name(least)} ({ends[0]}), most in {_name(most)} ({ends[1]})"
    if any((row.get("jet_order") or 0) > 0 for row in place.rows):
        means = [row["mean_order"] for row in place.rows if row.get("mean_order") is not None]
        text += f"; mean jet order {numbers.figure(means[0] if means else None, 2)}"
    return text


Where = tuple[int | None, int | None]
"""Layer and head; None in aggregates."""


def _rotary_masses(result: Result) -> dict[Where, float]:
    """Query-key mass per head of every scope."""
    rows = result.select(family=Family.MULTIPLICATIVE.value, jet_order=None)
    masses = {(row.get("layer"), row.get("head")): row["effective_mass"] for row in rows}
    heads: Counter[Where] = Counter()
    for layer, head in masses:
        if head is not None:
            heads.update([(layer, head), (layer, None), (None, None)])
    return {where: mass / heads[where] for where, mass in masses.items() if mass and heads[where]}


def _finer(masses: Mapping[Where, float], layer: int | None, head: int | None) -> list[Where]:
    """The layers of a model, the heads of a layer; none of a head."""
    if head is not None:
        return []
    return [
        (other, part)
        for other, part in masses
        if (other is not None and part is None if layer is None else other == layer)
        and (other, part) != (layer, head)
    ]


def _name(where: Where) -> str:
    layer, head = where
    return f"layer {layer}" if head is None else f"head {head}"
