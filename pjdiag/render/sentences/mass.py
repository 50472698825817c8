"""The opening sentence of `mass`."""

from __future__ import annotations

from pjdiag.render import numbers
from pjdiag.render.places import Place, mechanism_title
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed
from pjdiag.render.views.mass import POOLED, absent
from pjdiag.results import Result, Row
from pjdiag.terms import JET_SECTORS, SECTOR_TITLES, Family, Sector


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, sentence)


def sentence(place: Place) -> str:
    """Sectors by their share, the largest first; without a bias, what there is instead."""
    totals = {
        Sector(row["sector"]): row
        for row in place.rows
        if row.get("family") == Family.ADDITIVE.value
        and row.get("jet_order") is None
        and row.get("sector") != POOLED
    }
    if not totals:
        return _without_bias(place)
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


def _without_bias(place: Place) -> str:
    rows = [row for row in place.rows if row.get("jet_order") is None]
    row: Row = rows[0] if rows else {}
    mechanism = mechanism_title(row.get("mechanism"))
    mean = row.get("mean_order")
    text = f"no additive mass: position enters through {mechanism}, which multiplies"
    if mean is None:
        return text
    return f"{text}; mean jet order of its mass {numbers.figure(mean, 2)}"
