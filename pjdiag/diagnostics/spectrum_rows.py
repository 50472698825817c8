"""Rows of a rotary spectrum: bands and channels, masses summed over heads and then divided."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.diagnostics.scopes import Group
from pjdiag.results import Row
from pjdiag.terms import DIAGNOSTICS, LOCAL_WAVELENGTH, Band

if TYPE_CHECKING:
    from pjdiag.diagnostics.channel_norms import ChannelNorms

Frequencies = tuple[float | None, ...]
Key = tuple[int | None, float | None]
"""Channel and frequency; the channel is None where layers have different frequencies."""


@dataclass(frozen=True)
class HeadSpectrum:
    """What the rotary channels of one head weigh."""

    inv_freq: Frequencies
    """``[C]`` in rad per token; None where it is unknown."""
    mass: np.ndarray
    """``[C, R+1]`` in logits."""
    norms: ChannelNorms | None = None
    """Of this head alone, H = 1; None without data."""


@dataclass
class _Sums:
    """Figures of one channel, or of several, summed over heads."""

    mass: np.ndarray
    """``[R+1]``."""
    on_data: float = 0.0
    """Mass on data."""
    query: float = 0.0
    """Squared norms."""
    key: float = 0.0
    heads: int = 0
    """How many heads have norms."""
    pairs: np.ndarray = field(default_factory=lambda: np.zeros(4))
    """Of r_c: amplitude, its square, mean square, and what a line in the lag adds to that."""

    def add(self, other: _Sums) -> None:
        """Adds the figures of the same channel in other heads."""
        short, long = sorted((self.mass, other.mass), key=len)
        self.mass = long.copy()
        self.mass[: short.shape[0]] += short
        self.on_data += other.on_data
        self.query += other.query
        self.key += other.key
        self.heads += other.heads
        self.pairs = self.pairs + other.pairs

    def figures(self, heads: int, on_data: float) -> dict[str, float | None]:
        """What the data say, over this many heads; nothing where no head has norms."""
        if not heads:
            return {}
        character, flat, power, line = self.pairs.tolist()
        return {
            "query_norm": math.sqrt(self.query / heads),
            "key_norm": math.sqrt(self.key / heads),
            "data_mass": self.on_data,
            "data_share": self.on_data / on_data if on_data > 0 else None,
            "character": character if power > 0 else None,
            "flatness": flat / power if power > 0 else None,
            "line_share": line / power if power > 0 else None,
        }


@dataclass
class _Whole:
    """What a group's rows are divided by."""

    mass: float
    on_data: float
    heads: int
    orders: range = field(default=range(1))


def wavelength(inv_freq: float | None) -> float | None:
    """Tokens of a full turn; None where the frequency is unknown, infinity where it is 0.

    >>> wavelength(math.pi), wavelength(0.0), wavelength(None)
    (2.0, inf, None)
    """
    if inv_freq is None:
        return None
    return 2 * math.pi / abs(inv_freq) if inv_freq else math.inf


@cache
def band_of(inv_freq: float | None, train_length: int | None) -> Band | None:
    """The band of a channel; None where its frequency is unknown.

    >>> [band_of(w, 2048) for w in (1.0, 0.1, 0.001, 0.0)]
    [<Band.LOCAL: 'local'>, <Band.MID: 'mid'>, <Band.BEYOND: 'beyond'>, <Band.BEYOND: 'beyond'>]
    """
    turn = wavelength(inv_freq)
    if turn is None:
        return None
    if turn < LOCAL_WAVELENGTH:
        return Band.LOCAL
    # A channel that does not turn is beyond any length, known or not.
    longest = math.inf if train_length is None else train_length
    return Band.BEYOND if turn > longest or math.isinf(turn) else Band.MID


def spectrum_rows(group: Group[HeadSpectrum], train_length: int | None) -> Iterator[Row]:
    """The rows of the bands, then those of the channels at every order."""
    by_key = _summed(group.values)
    whole = _Whole(
        sum(float(sums.mass.sum()) for sums in by_key.values()),
        sum(sums.on_data for sums in by_key.values()),
        sum(head.norms is not None for head in group.values),
        range(max(sums.mass.shape[0] for sums in by_key.values())),
    )
    bands = {key: band_of(key[1], train_length) for key in by_key}
    for name in _possible_bands(bands.values(), train_length):
        inside = _Sums(np.zeros(len(whole.orders)))
        for key, sums in by_key.items():
            if bands[key] == name:
                inside.add(sums)
        shown = inside.figures(whole.heads, whole.on_data)
        yield _row(group, whole, float(inside.mass.sum()), name, **shown)
        for order in whole.orders if len(whole.orders) > 1 else ():
            yield _row(group, whole, float(inside.mass[order]), name, jet_order=order)
    for key, sums in by_key.items():
        channel, inv_freq = key
        if channel is None and inv_freq is None:
            continue  # what layers of unknown frequencies have in common is the band's row
        turn = wavelength(inv_freq)
        figures: dict[str, Any] = {
            "channel": channel,
            "inv_freq": inv_freq,
            "wavelength": None if turn is None or math.isinf(turn) else turn,
            **sums.figures(sums.heads, whole.on_data),
        }
        for order in range(sums.mass.shape[0]):
            mass = float(sums.mass[order])
            yield _row(group, whole, mass, bands[key], jet_order=order, **figures)


def _possible_bands(found: Iterable[Band | None], train_length: int | None) -> list[Band | None]:
    """Bands that have a row, be it with no mass: those of known frequencies, then the unknown."""
    present = set(found)
    known = present - {None}
    possible: list[Band | None] = [Band.LOCAL, Band.MID] if known else []
    if known and (train_length is not None or Band.BEYOND in known):
        possible.append(Band.BEYOND)
    return [*possible, *([None] if None in present else [])]


def _summed(heads: Sequence[HeadSpectrum]) -> dict[Key, _Sums]:
    """Sums by channel where all heads have the same frequencies, else by frequency."""
    by_frequencies: dict[Frequencies, list[HeadSpectrum]] = {}
    for head in heads:
        by_frequencies.setdefault(head.inv_freq, []).append(head)
    alike = len(by_frequencies) == 1
    merged: dict[Key, _Sums] = {}
    for frequencies, found in by_frequencies.items():
        for channel, sums in enumerate(_by_channel(found)):
            key = (channel if alike else None, frequencies[channel])
            if key in merged:
                merged[key].add(sums)
            else:
                merged[key] = sums
    if alike:
        return merged
    return dict(sorted(merged.items(), key=lambda entry: -abs(entry[0][1] or 0)))


def _by_channel(heads: Sequence[HeadSpectrum]) -> list[_Sums]:
    """Sums of each channel of heads with the same frequencies."""
    orders = max(head.mass.shape[1] for head in heads)
    mass = np.zeros((heads[0].mass.shape[0], orders))
    for head in heads:
        mass[:, : head.mass.shape[1]] += head.mass
    norms = [head.norms for head in heads if head.norms is not None]
    on_data, query, key = np.zeros((3, mass.shape[0]))
    pairs = np.zeros((mass.shape[0], 4))
    for each in norms:
        on_data += each.mass[0]
        query += each.query[0] ** 2
        key += each.key[0] ** 2
        if each.pairs is not None:
            character = each.pairs.character[0]
            parts = (character, character**2, each.pairs.power[0], each.pairs.line[0])
            pairs += np.stack(parts, axis=-1)
    return [
        _Sums(mass[c], float(on_data[c]), float(query[c]), float(key[c]), len(norms), pairs[c])
        for c in range(mass.shape[0])
    ]


def _row(
    group: Group[HeadSpectrum], whole: _Whole, mass: float, band: Band | None, **figures: Any
) -> Row:
    named = {"band": None if band is None else band.value}
    shared = {"mass": mass, "share": mass / whole.mass if whole.mass > 0 else None}
    return group.row(**{**BLANK, **figures, **named, **shared})


BLANK = dict.fromkeys(column.name for column in DIAGNOSTICS["spectrum"])
