"""Rotary mass by wavelength, then how layers and heads share it out over the bands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pjdiag.render import numbers
from pjdiag.render.places import Place, mechanism_title, places
from pjdiag.render.tables import BLANK, Cell, Header, Table, bare_share, figure_cell, share_cell
from pjdiag.results import Result, Row
from pjdiag.terms import LOCAL_WAVELENGTH, Band, Mechanism, Scope

UNKNOWN_BAND = numbers.UNKNOWN
BAND_TITLES = {
    Band.LOCAL.value: "local",
    Band.MID.value: "mid",
    Band.BEYOND.value: "beyond training",
    UNKNOWN_BAND: numbers.UNKNOWN,
}
STILL = "does not turn"
STEP = 4
"""Ratio of the wavelengths between which channels share a line."""
BINS_NOTE = "mass in logits, from the weights; a wavelength is the tokens of a full turn"
ON_DATA_NOTE = (
    "mass in logits, on the data: of the product of |q| and |k|, their RMS norms over tokens and "
    "heads; a wavelength is the tokens of a full turn"
)
"""Where the data give the mass itself."""
NORMS = {"query_norm": "|q|\non data", "key_norm": "|k|\non data"}
DATA_NOTE = (
    "; |q| and |k| are RMS norms over tokens and heads, share on data is that of their product"
)
FLAT_NOTE = (
    "; flat: part of the mean |r_c|^2 that is |mean r_c|^2, in the band where it is lowest; 100% "
    "is a pure Fourier character"
)
BANDS_NOTE = "local: below 16 tokens; beyond training: longer than the training length"


def tables(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """The coarsest scope by wavelength, the bands of all scopes; every channel with all rows."""
    found = places(result.rows, by)
    if not found:
        return []
    length = result.checkpoint.get("train_length")
    alone = [place for place in found if place.scope == found[0].scope]
    if all_rows:
        return [_band_table(found), _channel_table(found)]
    bins = [_bin_table(alone[0], length)] if len(alone) == 1 else []
    return [*bins, *([_band_table(found)] if len(found) > 1 else [])]


def bands(rows: Iterable[Row]) -> dict[str, Row]:
    """The row of each band, all orders together; the unknown one is named so."""
    return {
        row["band"] or UNKNOWN_BAND: row
        for row in rows
        if row.get("jet_order") is None and row.get("channel") is None
    }


def channels(rows: Iterable[Row]) -> list[Row]:
    """The rows of channels, or of frequencies where layers have different ones."""
    return [row for row in rows if row.get("jet_order") is not None and _is_channel(row)]


@dataclass
class _Bin:
    """Channels of neighbouring wavelengths."""

    band: str
    low: float
    """Tokens; infinity for channels that do not turn, not a number where it is unknown."""
    frequencies: set[tuple[int | None, float | None]] = field(default_factory=set)
    turns: list[float] = field(default_factory=list)
    by_order: dict[int, float] = field(default_factory=dict)
    on_data: float = 0.0
    """Its share of the mass on data."""
    squares: dict[str, float] = field(default_factory=dict)
    """Of the norms on data."""

    def add(self, row: Row) -> None:
        """Take in one channel at one order."""
        self.frequencies.add((row["channel"], row["inv_freq"]))
        if row["wavelength"] is not None:
            self.turns.append(row["wavelength"])
        order = row["jet_order"]
        self.by_order[order] = self.by_order.get(order, 0.0) + row["mass"]
        if order == 0:
            self.on_data += row.get("data_share") or 0.0
            for name in NORMS:
                self.squares[name] = self.squares.get(name, 0.0) + (row.get(name) or 0.0) ** 2

    def title(self) -> str:
        """The wavelengths that occur."""
        if not self.turns:
            return numbers.UNKNOWN if math.isnan(self.low) else STILL
        ends = [numbers.tokens(end) for end in (min(self.turns), max(self.turns))]
        return " to ".join(dict.fromkeys(ends))


def _bin_table(place: Place, train_length: int | None) -> Table:
    bins = _bins(channels(place.rows), train_length)
    total = sum(sum(each.by_order.values()) for each in bins)
    orders = sorted({order for each in bins for order in each.by_order})
    several = orders if len(orders) > 1 else []
    numbered = any(channel is not None for each in bins for channel, _ in each.frequencies)
    measured = _measured([place])
    norms = NORMS if measured and numbered else {}
    compared = measured and not of_data(place.rows)
    headers = (
        Header("band", key=True, group=True),
        Header("wavelength\n(tokens)", key=True),
        Header("channels" if numbered else "frequencies", numeric=True),
        Header("mass", numeric=True),
        Header("share", numeric=True),
        *(Header(f"r={order}", numeric=True) for order in several),
        *(Header(title, numeric=True) for title in norms.values()),
        *((Header("share\non data", numeric=True),) if compared else ()),
    )
    lines = []
    for each in bins:
        mass = sum(each.by_order.values())
        shares = [each.by_order.get(order, 0.0) for order in several]
        lines.append(
            (
                Cell(BAND_TITLES[each.band]),
                Cell(each.title()),
                Cell(numbers.count(len(each.frequencies))),
                figure_cell(mass),
                share_cell(mass / total if total else None),
                *(Cell(numbers.share_cell(part / total if total else None)) for part in shares),
                *(figure_cell(math.sqrt(each.squares[name])) for name in norms),
                *((share_cell(each.on_data),) if compared else ()),
            )
        )
    note = _note([place], "; r = jet order: share of all mass" if several else "")
    who = "" if place.scope == Scope.MODEL else f", {place.label}"
    return Table(f"Rotary mass by wavelength{who}", headers, tuple(lines), note)


def _bins(rows: Sequence[Row], train_length: int | None) -> list[_Bin]:
    """Channels by powers of four of their wavelength; a bin lies in one band."""
    found: dict[tuple[int, float], _Bin] = {}
    rank = {name: position for position, name in enumerate(BAND_TITLES)}
    for row in rows:
        band = row["band"] or UNKNOWN_BAND
        low = _low(row, train_length)
        key = (rank[band], math.inf if math.isnan(low) else low)
        found.setdefault(key, _Bin(band, low)).add(row)
    return [found[key] for key in sorted(found)]


def _low(row: Row, train_length: int | None) -> float:
    """Lower edge of the channel's bin: 0, 16, 64, 256 .., and the train length."""
    turn = row["wavelength"]
    if turn is None:
        return math.nan if row["inv_freq"] is None else math.inf
    if row["band"] == Band.BEYOND.value:
        return float(train_length or 0)
    if turn < LOCAL_WAVELENGTH:
        return 0.0
    return float(LOCAL_WAVELENGTH * STEP ** math.floor(math.log(turn / LOCAL_WAVELENGTH, STEP)))


def _band_table(found: Sequence[Place]) -> Table:
    every = [bands(place.rows) for place in found]
    names = [name for name in BAND_TITLES if any(name in each for each in every)]
    mechanisms = {row["mechanism"] for place in found for row in place.rows} - {None}
    flat = any(_least_flat(each) is not None for each in every)
    headers = (
        Header("scope", key=True),
        *((Header("mechanism", key=True),) if len(mechanisms) > 1 else ()),
        *(Header(BAND_TITLES[name], numeric=True) for name in names),
        Header("mass", numeric=True),
        *((Header("flat\non data", numeric=True),) if flat else ()),
    )
    lines = tuple(
        (
            Cell(place.label),
            *((Cell(_mechanism(place)),) if len(mechanisms) > 1 else ()),
            *(_band_cell(each.get(name)) for name in names),
            figure_cell(sum(row["mass"] for row in each.values())),
            *((_known(bare_share, _least_flat(each)),) if flat else ()),
        )
        for place, each in zip(found, every, strict=True)
    )
    note = BANDS_NOTE + (FLAT_NOTE if flat else "")
    return Table("Share of the rotary mass by band", headers, lines, note)


def _least_flat(by_band: Mapping[str, Row]) -> float | None:
    """The lowest flatness of a scope's bands; None without data."""
    found = [row.get("flatness") for row in by_band.values()]
    return min((one for one in found if one is not None), default=None)


def _channel_table(found: Sequence[Place]) -> Table:
    rows = [(place, row) for place in found for row in channels(place.rows)]
    numbered = any(row["channel"] is not None for _, row in rows)
    several = len({row["jet_order"] for _, row in rows}) > 1
    measured = _measured(found)
    compared = measured and not of_data(row for _, row in rows)
    flat = any(row.get("flatness") is not None for _, row in rows)
    headers = (
        Header("scope", key=True, group=True),
        *((Header("channel", numeric=True, key=True),) if numbered else ()),
        Header("frequency\n(rad/token)", numeric=True, key=not numbered),
        Header("wavelength\n(tokens)", numeric=True),
        Header("band"),
        *((Header("jet\norder", numeric=True, key=True),) if several else ()),
        Header("mass", numeric=True),
        Header("share", numeric=True),
        *(Header(title, numeric=True) for title in NORMS.values() if measured),
        *((Header("share\non data", numeric=True),) if compared else ()),
        *((Header("flat\non data", numeric=True),) if flat else ()),
    )
    lines = tuple(
        (
            Cell(place.label),
            *((Cell("" if row["channel"] is None else str(row["channel"])),) if numbered else ()),
            figure_cell(row["inv_freq"]),
            Cell(_turn(row)),
            Cell(BAND_TITLES[row["band"] or UNKNOWN_BAND]),
            *((Cell(str(row["jet_order"])),) if several else ()),
            figure_cell(row["mass"]),
            share_cell(row["share"]),
            *(_known(figure_cell, row[name]) for name in NORMS if measured),
            *((_known(share_cell, row["data_share"]),) if compared else ()),
            *((_known(bare_share, row.get("flatness")),) if flat else ()),
        )
        for place, row in rows
    )
    note = _note(found)
    return Table("Every rotary channel", headers, lines, note)


def _measured(found: Sequence[Place]) -> bool:
    """True where the model was run on data."""
    return any(row.get("data_mass") is not None for place in found for row in place.rows)


def of_data(rows: Iterable[Row]) -> bool:
    """True where the masses are those on the data: PoPE has no others."""
    return {row["mechanism"] for row in rows} == {Mechanism.POPE.value}


def _note(found: Sequence[Place], more: str = "") -> str:
    """What the masses of a table are."""
    if of_data(row for place in found for row in place.rows):
        return ON_DATA_NOTE + more
    return BINS_NOTE + more + (DATA_NOTE if _measured(found) else "")


def _known(cell: Callable[[float], Cell], value: float | None) -> Cell:
    """Blank where a layer has no norms on data."""
    return BLANK if value is None else cell(value)


def _is_channel(row: Row) -> bool:
    return row.get("channel") is not None or row.get("inv_freq") is not None


def _turn(row: Row) -> str:
    if row["wavelength"] is not None:
        return numbers.tokens(row["wavelength"])
    return numbers.UNKNOWN if row["inv_freq"] is None else STILL


def _mechanism(place: Place) -> str:
    return mechanism_title(place.rows[0].get("mechanism"))


def _band_cell(row: Row | None) -> Cell:
    return Cell("") if row is None else share_cell(row.get("share"))
