"""Functional energy: jet orders against the kernel, over windows and lag buckets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pjdiag.render import numbers
from pjdiag.render.places import Place, bucket_title, places, split_to_fit
from pjdiag.render.tables import BLANK, UNDEFINED, Cell, Header, Table, figure_cell, share_cell
from pjdiag.results import Result, Row
from pjdiag.terms import SECTOR_TITLES, Scope, Sector

ALL_LAGS = "all"
POOLED = "fj+lc"
SECTOR_ORDER = (POOLED, *(sector.value for sector in Sector))
SET_TITLES = {POOLED: "both jets", **{sector.value: SECTOR_TITLES[sector] for sector in Sector}}
DEGENERATE = Cell("degenerate")
MEANING = "energy = ||C_r|| / ||sum over the orders||, above 1 where orders cancel"
SHARE_MEANING = "share: of all sectors' squared norms, for both jets of their orders'"
FITTED = (Sector.AFFINE, Sector.FJ, Sector.LC)
"""The order in which sectors are fitted to a table."""
FIT_NOTE = (
    "a fit, not parameters: each sector is what it adds to those on its left; kernel energy = "
    "||C|| / ||bias||, explained = part of the variance, both apart from a constant"
)
KERNEL_MEANING = "kernel energy = ||C|| / ||full kernel||"

Key = tuple[str, int | None]
"""Sector and jet order; None for the sum over the orders."""


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Ratios by window, with share and kernel energy at the longest; then by lag bucket.

    Where that is more than a screen, layers and heads take one line each.
    """
    fits = _fit_table(places([row for row in result.rows if row.get("fitted")], by))
    rows = [row for row in result.rows if not row.get("fitted")]
    windows = sorted({row["window"] for row in rows})
    if not windows:
        return [fits]
    found = places(rows, by)
    longest = windows[-1]
    if not all_rows and zero(found[0].rows):
        return [fits]  # the sentence says all there is to say
    detailed, compact = (found, []) if all_rows else split_to_fit(found, _line_count)
    buckets = _bucket_table(detailed if all_rows else found[:1], longest)
    tables = [_window_table(detailed, windows, result), _scope_table(compact, longest), buckets]
    return [*tables, fits]


def zero(rows: Iterable[Row]) -> bool:
    """True where no sector has any energy: a bias that was not trained."""
    return all(row.get("energy_share") is None and row.get("degenerate") for row in rows)


def _window_table(found: Sequence[Place], windows: Sequence[int], result: Result) -> Table:
    headers = (
        Header("scope", key=True, group=True),
        Header("sector", key=True, group=True),
        Header("jet\norder", key=True, numeric=True),
        *(Header(f"energy at\n{numbers.count(window)}", numeric=True) for window in windows),
        Header("share", numeric=True),
        Header("kernel\nenergy", numeric=True),
    )
    lines = []
    for place in found:
        rows = {(_key(row), row["window"]): row for row in place.rows if row["bucket"] == ALL_LAGS}
        for key in _keys(place):
            last = rows.get((key, windows[-1]))
            lines.append(
                (
                    *_names(place, key),
                    *(_functional(rows.get((key, window))) for window in windows),
                    BLANK if last is None else _share(last),
                    _kernel(last),
                )
            )
    weights = sorted({str(row["lag_weights"]) for row in result.rows if row.get("lag_weights")})
    lengths = f"; both at {numbers.count(windows[-1])}" if windows[1:] else ""
    told = [
        MEANING,
        SHARE_MEANING,
        KERNEL_MEANING + lengths,
        f"{' and '.join(weights)} lag weights",
    ]
    return Table("Functional energy by jet order", headers, tuple(lines), "; ".join(told))


def _fit_table(found: Sequence[Place]) -> Table:
    """A tabulated bias: what the fit explains of it, and how large each fitted sector is."""
    headers = (
        Header("scope", key=True, group=True),
        Header("lags", numeric=True, key=True),
        Header("explained", numeric=True),
        *(Header(f"{SECTOR_TITLES[sector]}\nkernel energy", numeric=True) for sector in FITTED),
    )
    lines = []
    for place in found:
        rows = {(row["window"], row["sector"]): row for row in fitted_sectors(place.rows)}
        for window in sorted({window for window, _ in rows}):
            sectors = [rows.get((window, sector.value)) for sector in FITTED]
            first = next(row for row in sectors if row is not None)
            constant = first.get("r2") is None
            lines.append(
                (
                    Cell(place.label),
                    Cell(numbers.count(window)),
                    UNDEFINED if constant else share_cell(first["r2"]),
                    *(_kernel(row) for row in sectors),
                )
            )
    return Table("Sectors fitted to the tabulated bias", headers, tuple(lines), FIT_NOTE)


def fitted_sectors(rows: Iterable[Row]) -> list[Row]:
    """Of each fitted sector the row of all its orders, over whole windows."""
    return [
        row
        for row in rows
        if row.get("fitted")
        and row["bucket"] == ALL_LAGS
        and row.get("jet_order") is None
        and row["sector"] != POOLED
    ]


def _scope_table(found: Sequence[Place], window: int) -> Table:
    """One line per scope: the orders of the first jet set, and what affine holds."""
    orders = sorted(
        {order for place in found for _, order in _main_keys(place) if order is not None}
    )
    headers = (
        Header("scope", key=True),
        *(Header(f"r={order}", numeric=True) for order in orders),
        Header("affine\nkernel energy", numeric=True),
    )
    lines = []
    for place in found:
        rows = {_key(row): row for row in place.rows if _is(row, window, ALL_LAGS)}
        by_order = {key[1]: rows.get(key) for key in _main_keys(place)}
        lines.append(
            (
                Cell(place.label),
                *(_functional(by_order.get(order)) for order in orders),
                _kernel(rows.get((Sector.AFFINE.value, None))),
            )
        )
    title = f"Functional energy by scope, {numbers.count(window)} tokens"
    note = f"{KERNEL_MEANING}; every sector, window and bucket: --all"
    return Table(title, headers, tuple(lines), note)


def _bucket_table(found: Sequence[Place], window: int) -> Table:
    buckets = list(
        dict.fromkeys(
            row["bucket"]
            for place in found
            for row in place.rows
            if row["window"] == window and row["bucket"] != ALL_LAGS
        )
    )
    headers = (
        Header("scope", key=True, group=True),
        Header("sector", key=True, group=True),
        Header("jet\norder", key=True, numeric=True),
        *(Header(bucket_title(bucket), numeric=True) for bucket in buckets),
    )
    lines = []
    for place in found:
        rows = {(_key(row), row["bucket"]): row for row in place.rows if row["window"] == window}
        for key in _main_keys(place) if len(buckets) > 1 else ():
            cells = (_functional(rows.get((key, bucket))) for bucket in buckets)
            lines.append((*_names(place, key), *cells))
    title = f"Functional energy by lag bucket, {numbers.count(window)} tokens"
    return Table(title, headers, tuple(lines), "L = train length; train = lags 1 to L-1")


def _names(place: Place, key: Key) -> tuple[Cell, Cell, Cell]:
    sector, order = key
    title = SET_TITLES.get(sector, sector)
    return Cell(place.label), Cell(title), Cell("all" if order is None else str(order))


def _is(row: Row, window: int, bucket: str) -> bool:
    return bool(row["window"] == window and row["bucket"] == bucket)


def _key(row: Row) -> Key:
    return str(row["sector"]), row.get("jet_order")


def _keys(place: Place) -> list[Key]:
    """Pooled jets first, orders before their sum; affine, of one order, once."""
    keys = {_key(row) for row in place.rows}
    affine = Sector.AFFINE.value
    if (affine, None) in keys:
        keys = {key for key in keys if key[0] != affine or key[1] is None}

    def rank(key: Key) -> tuple[int, float]:
        sector, order = key
        position = SECTOR_ORDER.index(sector) if sector in SECTOR_ORDER else len(SECTOR_ORDER)
        return position, float("inf") if order is None else order

    return sorted(_without_twin(keys), key=rank)


def _without_twin(keys: Iterable[Key]) -> set[Key]:
    """Keys without the pooled set where it is one jet sector alone."""
    kept = set(keys)
    jets = {sector for sector, _ in kept} - {POOLED, Sector.AFFINE.value}
    return {key for key in kept if key[0] != POOLED} if len(jets) == 1 else kept


def _main_keys(place: Place) -> list[Key]:
    """The orders of the first jet set of this place."""
    jets = [key for key in _keys(place) if key[0] != Sector.AFFINE.value and key[1] is not None]
    return [key for key in jets if key[0] == jets[0][0]]


def _line_count(place: Place) -> int:
    return len(_keys(place))


def _functional(row: Row | None) -> Cell:
    """Blank where the ratio has no meaning: affine is no part of the jets' sum."""
    if row is None or row["sector"] == Sector.AFFINE.value or row.get("jet_order") is None:
        return BLANK
    return _or_degenerate(row, "functional_energy")


def _kernel(row: Row | None) -> Cell:
    return BLANK if row is None else _or_degenerate(row, "kernel_energy")


def _share(row: Row) -> Cell:
    share = row.get("energy_share")
    return DEGENERATE if share is None and row.get("degenerate") else share_cell(share)


def _or_degenerate(row: Row, name: str) -> Cell:
    value = row.get(name)
    return DEGENERATE if value is None and row.get("degenerate") else figure_cell(value)
