"""The opening sentence of `energy`."""

from __future__ import annotations

from pjdiag.render import numbers
from pjdiag.render.places import Place
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed, plural
from pjdiag.render.views.energy import ALL_LAGS, POOLED, fitted_sectors, zero
from pjdiag.results import Result, Row
from pjdiag.terms import JET_SECTORS, SECTOR_TITLES, Sector

JET_NAMES = {POOLED: "jet", **{sector.value: SECTOR_TITLES[sector] for sector in JET_SECTORS}}


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    return about(result, sentence)


def sentence(place: Place) -> str:
    """Orders by their share of the jets' energy over the longest window."""
    window = max(row["window"] for row in place.rows)
    here = [row for row in place.rows if row["window"] == window and row["bucket"] == ALL_LAGS]
    lead = f"over {numbers.count(window)} lags"
    rows = [row for row in here if not row.get("fitted")]
    if not rows:
        return f"{lead} {_fitted(here)}"
    if zero(rows):
        return f"{lead} the position bias is zero: there is no energy to share until it is trained"
    jets = {name: orders for name in JET_NAMES if (orders := _orders(rows, name))}
    parts = []
    if jets:
        name, orders = next(iter(jets.items()))
        parts = [f"{lead} {_jet_part(JET_NAMES[name], orders)}"]
    affine = _affine(rows)
    if affine is not None:
        parts.append(affine if parts else f"{lead} {affine}")
    return "; ".join(parts) if parts else f"{lead} no sector has energy"


def _fitted(rows: list[Row]) -> str:
    """What a tabulated bias looks like."""
    sectors = fitted_sectors(rows)
    if all(row.get("r2") is None for row in sectors):
        return "the tabulated bias is constant"
    largest = max(sectors, key=lambda row: row.get("kernel_energy") or 0.0)
    title = SECTOR_TITLES[Sector(largest["sector"])]
    size, explained = numbers.figure(largest["kernel_energy"], 2), numbers.percent(largest["r2"])
    return (
        f"the tabulated bias is mostly {title} ({size} times its norm); "
        f"a fit of the sectors explains {explained} of it"
    )


def _orders(rows: list[Row], sector: str) -> list[Row]:
    return [row for row in rows if row["sector"] == sector and row.get("jet_order") is not None]


def _jet_part(name: str, orders: list[Row]) -> str:
    """Shares are over all sectors in one sector's rows: taken among its own orders here."""
    if any(row.get("energy_share") is None for row in orders):
        return f"the {name} energy is {numbers.UNDEFINED}"
    shares: dict[int, float] = {row["jet_order"]: row["energy_share"] for row in orders}
    whole = sum(shares.values())
    if whole == 0:
        return f"the {name} energy is 0"
    ranked = sorted(shares, key=lambda order: -shares[order])
    by_figure: dict[str, list[str]] = {}
    for order in ranked[1:]:
        by_figure.setdefault(numbers.percent(shares[order] / whole), []).append(str(order))
    largest = numbers.percent(shares[ranked[0]] / whole)
    text = f"jet order {ranked[0]} holds {largest} of the {name} energy"
    for figure, same in by_figure.items():
        each = " each" if len(same) > 1 else ""
        text += f", {plural('order', len(same))} {listed(same)} {figure}{each}"
    cancelling = [
        str(row["jet_order"]) for row in orders if (row.get("functional_energy") or 0.0) > 1.0
    ]
    if any(row.get("degenerate") for row in orders):
        text += "; the orders cancel so far that no ratio can be formed"
    elif len(cancelling) > 1:
        text += f"; orders {listed(cancelling)} cancel in part"
    return text


def _affine(rows: list[Row]) -> str | None:
    for row in rows:
        if row["sector"] == Sector.AFFINE.value and row.get("jet_order") is None:
            figure = row.get("kernel_energy")
            if figure is not None:
                return (
                    f"affine recency has {numbers.figure(figure, 2)} times the full kernel's norm"
                )
    return None
