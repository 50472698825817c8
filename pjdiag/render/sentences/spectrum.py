"""The opening sentence of `spectrum`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pjdiag.render import numbers
from pjdiag.render.places import Place, mechanism_title
from pjdiag.render.sentences._common import about
from pjdiag.render.text import listed, plural
from pjdiag.render.views.spectrum import UNKNOWN_BAND, bands, channels, of_data
from pjdiag.results import Result
from pjdiag.terms import Band, Scope

WORDS = {
    Band.LOCAL.value: "in less than 16 tokens",
    Band.MID.value: "more slowly",
    UNKNOWN_BAND: "at an unknown rate",
}


def headline(result: Result) -> str:
    """The sentence about the coarsest scope that has rows."""
    said = about(result, partial(sentence, result.checkpoint.get("train_length")))
    return "; ".join([said, *_windowed(result)])


def sentence(train_length: int | None, place: Place) -> str:
    """The share of each band, with how many channels lie in it."""
    found = bands(place.rows)
    mechanism = mechanism_title(place.rows[0].get("mechanism"))
    what = "rotary mass" if mechanism == "several" else f"{mechanism} mass"
    if set(found) == {UNKNOWN_BAND}:
        return f"the {what} cannot be placed: the frequencies are unknown"
    if all(row.get("share") is None for row in found.values()):
        return f"the {what} is zero"
    counts = _channel_counts(place)
    total = sum(counts.values())
    text = ""
    for name, row in found.items():
        if name == Band.BEYOND.value and not row["share"]:
            text += f", none longer than {_length(train_length)}"
            continue
        share = numbers.percent(row["share"])
        text += f", {share}" if text else f"{share} of the {what} turns"
        text += " " + (WORDS.get(name) or f"not once within {_length(train_length)}")
        if total:
            of_all = f" of {total} channels" if name == next(iter(found)) else ""
            text += f" ({counts.get(name, 0)}{of_all})"
    shares = [row.get("data_share") for row in found.values()]
    if of_data(place.rows):
        text += "; measured on the data"
    elif None not in shares:
        text += f"; on the data {listed(numbers.percent(share) for share in shares)}"
    return text if train_length is not None else f"{text}; the training length is unknown"


def _windowed(result: Result) -> Iterator[str]:
    """Layers that see less than the training length: a band of it says too much of them."""
    if not result.at(Scope.MODEL):
        return
    for entry in result.provenance.get("windowed") or ():
        count, share = len(entry["layers"]), entry["not_within"]
        if share is not None:
            one = count == 1
            see = f"{count} {plural('layer', count)} {'sees' if one else 'see'}"
            of = f"{numbers.percent(share)} of {'its' if one else 'their'} mass"
            tokens = numbers.count(entry["window"])
            yield f"{see} {tokens} tokens only, within which {of} does not turn once"


def _length(train_length: int | None) -> str:
    if train_length is None:
        return "any length"
    return f"the training length of {numbers.count(train_length)}"


def _channel_counts(place: Place) -> dict[str, int]:
    """Channels in each band; empty where layers have different frequencies."""
    counts: dict[str, int] = {}
    for row in channels(place.rows):
        if row["channel"] is None:
            return {}
        if row["jet_order"] == 0:
            name = row["band"] or UNKNOWN_BAND
            counts[name] = counts.get(name, 0) + 1
    return counts
