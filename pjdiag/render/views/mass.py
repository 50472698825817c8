"""Effective mass: sectors and jet orders of the bias, and apart from it, of RoPE-like heads."""

from __future__ import annotations

from collections.abc import Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, mechanism_title, places, split_to_fit
from pjdiag.render.tables import (
    BLANK,
    UNDEFINED,
    Cell,
    Header,
    Table,
    bare_share,
    figure_cell,
    share_cell,
    text_cell,
)
from pjdiag.results import Result, Row
from pjdiag.terms import JET_SECTORS, SECTOR_TITLES, Family, Scope, Sector

POOLED = "fj+lc"
ORDER_NOTE = "r = jet order: share of the Fourier-jet and light-cone mass"
LOGIT_NOTE = "r = jet order: effective mass in logits"

Line = tuple[Cell, ...]


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """The bias first, one line per scope and sector; RoPE-like mass in a table of its own.

    Where that is more than a screen, layers and heads take one line each.
    """
    additive = places(result.select(family=Family.ADDITIVE.value), by)
    multiplicative = places(result.select(family=Family.MULTIPLICATIVE.value), by)
    if not all_rows and additive and zero(additive[0]):
        return [_zero_table(additive[0]), _rotary_table(multiplicative)]
    orders = _orders(additive)
    detailed, compact = (additive, []) if all_rows else split_to_fit(additive, _line_count)
    if not all(map(_complete, compact)):
        detailed, compact = additive, []  # one sector was asked for: nothing to put side by side
    bias = [_sector_table(detailed, orders), _scope_table(compact, orders)]
    return [*bias, _rotary_table(multiplicative)]


def zero(place: Place) -> bool:
    """True where sectors are there and none has any mass: a bias that was not trained."""
    totals = [total for sector in Sector if (total := _total(place, sector.value)) is not None]
    masses = [total.get("effective_mass") for total in totals if not absent(total)]
    return bool(masses) and all(mass == 0 for mass in masses)


def _zero_table(place: Place) -> Table:
    """The sectors of the whole: of a bias that is zero there are no shares, nowhere."""
    headers = (
        Header("scope", key=True, group=True),
        Header("sector", key=True),
        Header("gate", numeric=True),
        Header("mass", numeric=True),
    )
    lines = [
        (
            Cell(place.label),
            Cell(SECTOR_TITLES[sector]),
            BLANK if absent(total) else figure_cell(total.get("sector_gate"), 2),
            Cell(numbers.ABSENT) if absent(total) else figure_cell(total.get("effective_mass")),
        )
        for sector in Sector
        if (total := _total(place, sector.value)) is not None
    ]
    title = "Effective mass of the position bias"
    return Table(title, headers, tuple(lines), "of zero there are no shares and no orders")


def _sector_table(found: Sequence[Place], orders: range) -> Table:
    pooled = any(map(_pooled, found))
    headers = (
        Header("scope", key=True, group=True),
        Header("sector", key=True),
        Header("share", numeric=True),
        Header("gate", numeric=True),
        Header("mass", numeric=True),
        Header("mean\norder", numeric=True),
        *(Header(f"r={order}", numeric=True) for order in orders),
    )
    lines = [line for place in found for line in _sector_lines(place, orders)]
    note = (ORDER_NOTE if pooled else LOGIT_NOTE) if orders else ""
    return Table("Effective mass of the position bias", headers, tuple(lines), note)


def _sector_lines(place: Place, orders: range) -> list[Line]:
    lines: list[Line] = []
    jets = 0
    for sector in Sector:
        total = _total(place, sector.value)
        if total is None:
            continue
        name = (Cell(place.label), Cell(SECTOR_TITLES[sector]))
        if absent(total):
            blanks = (BLANK,) * (3 + len(orders))
            lines.append((*name, Cell(numbers.ABSENT), *blanks))
            continue
        is_jet = sector in JET_SECTORS
        jets += is_jet
        lines.append(
            (
                *name,
                _share(total),
                figure_cell(total.get("sector_gate"), 2),
                figure_cell(total.get("effective_mass")),
                _mean_order(total) if is_jet else BLANK,
                *(_order_cell(place, sector, order) if is_jet else BLANK for order in orders),
            )
        )
    if jets > 1 and _pooled(place):
        name = (Cell(place.label), Cell("both jets"))
        lines.append((*name, BLANK, BLANK, BLANK, *_pooled_cells(place, orders)))
    return lines


def _scope_table(found: Sequence[Place], orders: range) -> Table:
    headers = (
        Header("scope", key=True),
        *(Header(SECTOR_TITLES[sector], numeric=True) for sector in Sector),
        Header("mean\norder", numeric=True),
        *(Header(f"r={order}", numeric=True) for order in orders),
    )
    lines = tuple(
        (
            Cell(place.label),
            *(_compact_share(_total(place, sector.value)) for sector in Sector),
            *_pooled_cells(place, orders),
        )
        for place in found
    )
    note = f"{ORDER_NOTE}; gate and mass of every sector: --all"
    return Table("Share of the effective mass by scope", headers, lines, note)


def _rotary_table(found: Sequence[Place]) -> Table:
    orders = _orders(found)
    several = len(orders) > 1
    whole = found[0] if len(found) > 1 and found[0].scope == Scope.MODEL else None
    headers = (
        Header("scope", key=True),
        Header("mechanism", key=True),
        Header("mass", numeric=True),
        *((Header("of the\nmodel", numeric=True),) if whole else ()),
        *((Header("mean\norder", numeric=True),) if several else ()),
        *(Header(f"r={order}", numeric=True) for order in orders if several),
    )
    lines: list[Line] = []
    for place in found:
        total = _total(place, Sector.FJ.value) or {}
        shares = {row["jet_order"]: row for row in place.rows if row.get("jet_order") is not None}
        lines.append(
            (
                Cell(place.label),
                text_cell(mechanism_title(place.rows[0].get("mechanism"))),
                figure_cell(total.get("effective_mass")),
                *((_part_of(place, whole),) if whole else ()),
                *((figure_cell(total.get("mean_order"), 2),) if several else ()),
                *(
                    bare_share(shares[order]["order_share"]) if order in shares else BLANK
                    for order in orders
                    if several
                ),
            )
        )
    return Table(
        "Query-key mass of the rotary channels",
        headers,
        tuple(lines),
        "in logits, summed over heads, from the weights; not to be compared with the mass of a bias"
        + ("; r = jet order: share of this mass" if several else ""),
    )


def _part_of(place: Place, whole: Place) -> Cell:
    """The place's part of the whole model's rotary mass."""
    part, total = ((_total(p, Sector.FJ.value) or {}).get("effective_mass") for p in (place, whole))
    return UNDEFINED if not total or part is None else share_cell(part / total)


def absent(total: Row) -> bool:
    """True where a sector's row says that the sector is disabled: gate exactly 0, no mass."""
    return total.get("sector_gate") == 0 and total.get("effective_mass") is None


def _total(place: Place, sector: str) -> Row | None:
    for row in place.rows:
        if row.get("sector") == sector and row.get("jet_order") is None:
            return row
    return None


def _line_count(place: Place) -> int:
    return len(_sector_lines(place, range(0)))


def _pooled(place: Place) -> bool:
    """True where the order shares over both jets are known: no sector was left out."""
    return any(row.get("sector") == POOLED for row in place.rows)


def _compact_share(total: Row | None) -> Cell:
    if total is None:
        return BLANK
    return Cell(numbers.ABSENT) if absent(total) else _share(total)


def _share(total: Row) -> Cell:
    """A sector's share; no share of a kernel that is zero exists."""
    share = total.get("sector_share")
    return UNDEFINED if share is None and total.get("effective_mass") == 0 else share_cell(share)


def _mean_order(total: Row) -> Cell:
    mean = total.get("mean_order")
    return UNDEFINED if mean is None and total.get("effective_mass") == 0 else figure_cell(mean, 2)


def _complete(place: Place) -> bool:
    """True where every sector has its row, be it absent: no sector was filtered away."""
    return all(_total(place, sector.value) is not None for sector in Sector)


def _pooled_cells(place: Place, orders: range) -> list[Cell]:
    rows = {row.get("jet_order"): row for row in place.rows if row.get("sector") == POOLED}
    if not rows:
        return [BLANK] * (1 + len(orders))
    mean = rows.get(None, {}).get("mean_order")
    if mean is None and _jet_mass(place) == 0:
        return [UNDEFINED] * (1 + len(orders))
    return [
        figure_cell(mean, 2),
        *(bare_share(rows[order]["order_share"]) if order in rows else BLANK for order in orders),
    ]


def _order_cell(place: Place, sector: Sector, order: int) -> Cell:
    """The sector's part of the jets' mass at ``order``; the mass itself where a jet is missing."""
    masses = {
        row["jet_order"]: row.get("effective_mass")
        for row in place.rows
        if row.get("sector") == sector.value and row.get("jet_order") is not None
    }
    if order not in masses:
        return BLANK
    if not _pooled(place):
        return figure_cell(masses[order])
    part, whole = masses[order], _jet_mass(place)
    if part is None or whole is None:
        return bare_share(None)
    return bare_share(part / whole) if whole > 0 else UNDEFINED


def _jet_mass(place: Place) -> float | None:
    """Mass of both jets; None where one of them is unknown."""
    totals = [_total(place, jet.value) for jet in JET_SECTORS]
    parts = [total.get("effective_mass") for total in totals if total and not absent(total)]
    return None if None in parts else sum(part for part in parts if part is not None)


def _orders(found: Sequence[Place]) -> range:
    """Jet orders that occur; empty where there is no jet sector."""
    orders = [
        row["jet_order"]
        for place in found
        for row in place.rows
        if row.get("jet_order") is not None and row.get("sector") != Sector.AFFINE.value
    ]
    return range(max(orders) + 1) if orders else range(0)
