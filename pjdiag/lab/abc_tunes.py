"""Tunes in ABC notation as notes: pitch, duration, bar lines. One voice, as written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

BAR = "bar"
Note = tuple[int | None, Fraction]
"""MIDI pitch (None: silence) and duration in whole notes."""
Event = Note | str
"""A note, or ``BAR``."""

_FIELD = re.compile(r"([A-Za-z]):(?![|:])\s*(.*)")
_ITEM = re.compile(
    r'"[^"]*"|![^!\n]*!|\{[^}]*\}'  # words, decorations, grace notes
    r"|\[(?P<inline>[A-Za-z]):(?P<value>[^\]]*)\]"
    r"|\((?P<tuplet>\d)(?::(?P<in>\d?))?(?::(?P<of>\d?))?"
    r"|(?P<chord>\[[^\]|\[:\d\s][^\]|]*\])(?P<chordlength>\d*/*\d*)"
    r"|(?P<accidental>\^\^|__|[\^_=])?(?P<letter>[A-Ga-g])(?P<octave>[,']*)(?P<length>\d*/*\d*)"
    r"|(?P<rest>[zx])(?P<restlength>\d*/*\d*)"
    r"|(?P<broken>>+|<+)"
    r"|(?P<bar>[:|\[\]]*\|[:|\]]*|::)"
    r"|(?P<tie>-)"
    r"|."
)
_NOTE = re.compile(r"(\^\^|__|[\^_=])?([A-Ga-g])([,']*)(\d*/*\d*)")
_SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_SHARPS = "FCGDAEB"
_MODES = {"": 0, "maj": 0, "ion": 0, "m": -3, "min": -3, "aeo": -3}
_MODES |= {"mix": -1, "dor": -2, "phr": -4, "lyd": 1, "loc": -5}
_SHIFTS = {"^": 1, "^^": 2, "_": -1, "__": -2, "=": 0}
_TUPLETS = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}
"""So many notes in the time of; two for any other number."""


def tunes(text: str) -> Iterator[list[Event]]:
    """The tunes of a file; those in several voices and those without a key are left out.

    Repeats are not played out, and a chord is its highest note.

    >>> [tune] = tunes("X:1\\nL:1/8\\nK:G\\nF2 (3gag|^c>d|]")
    >>> [event if event == BAR else (event[0], str(event[1])) for event in tune][:5]
    [(66, '1/4'), (79, '1/12'), (81, '1/12'), (79, '1/12'), 'bar']
    """
    for block in re.split(r"^(?=X:)", text.replace("\r", ""), flags=re.MULTILINE):
        if block.startswith("X:") and not re.search(r"^V:", block, re.MULTILINE):
            found = _Tune().read(block)
            if any(event != BAR for event in found):
                yield found


def key_signature(words: str) -> dict[str, int]:
    """Semitones that the key adds to letters; empty for a key that is none.

    >>> key_signature("A Dorian"), key_signature("Bb")
    ({'F': 1}, {'B': -1, 'E': -1})
    """
    found = re.match(r"([A-G])([#b]?)\s*([A-Za-z]*)", words)
    if not found:
        return {}
    letter, sign, mode = found.groups()
    mode = mode.lower()[:3] if mode.lower() != "m" else "m"
    fifths = _SHARPS.index(letter) - 1 + {"#": 7, "b": -7, "": 0}[sign] + _MODES.get(mode, 0)
    if fifths >= 0:
        return dict.fromkeys(_SHARPS[:fifths], 1)
    return dict.fromkeys(_SHARPS[::-1][:-fifths], -1)


@dataclass
class _Tune:
    unit: Fraction | None = None
    meter: Fraction = Fraction(1)
    key: dict[str, int] | None = None
    events: list[Event] = field(default_factory=list)
    in_bar: dict[str, int] = field(default_factory=dict)
    tuplet: tuple[int, Fraction] = (0, Fraction(1))
    next_factor: Fraction = Fraction(1)
    tied: bool = False
    last_length: Fraction = Fraction(0)
    """Of the last note as written; what it is tied to is not in it."""

    def read(self, block: str) -> list[Event]:
        for line in block.split("\n"):
            plain = re.sub(r"(?<!\\)%.*", "", line)
            stated = _FIELD.fullmatch(plain.strip())
            if stated:
                self._field(*stated.groups())
            elif self.key is not None:
                for item in _ITEM.finditer(plain):
                    self._item(item)
        return self.events

    def _field(self, name: str, value: str) -> None:
        number = re.match(r"(\d+)/(\d+)", value)
        if name == "K":
            self.key = key_signature(value)
        elif name == "L" and number and int(number[2]):
            self.unit = Fraction(int(number[1]), int(number[2]))
        elif name == "M" and number and int(number[2]):
            self.meter = Fraction(int(number[1]), int(number[2]))

    def _item(self, item: re.Match[str]) -> None:
        if item["inline"]:
            self._field(item["inline"], item["value"])
        elif item["tuplet"]:
            count = int(item["tuplet"])
            time = int(item["in"] or _TUPLETS.get(count, 2))
            self.tuplet = (int(item["of"] or count), Fraction(time, max(count, 1)))
        elif item["chord"]:
            notes = [self._pitch(*n.groups()[:3]) for n in _NOTE.finditer(item["chord"])]
            first = _NOTE.search(item["chord"])
            if notes and first:
                self._note(max(notes), _length(first[4]) * _length(item["chordlength"]))
        elif item["letter"]:
            pitch = self._pitch(item["accidental"], item["letter"], item["octave"])
            self._note(pitch, _length(item["length"]))
        elif item["rest"]:
            self._note(None, _length(item["restlength"]))
        elif item["broken"]:
            self._broken(item["broken"])
        elif item["bar"]:
            self.in_bar = {}
            if self.events and self.events[-1] != BAR:
                self.events.append(BAR)
        elif item["tie"]:
            self.tied = True

    def _pitch(self, accidental: str | None, letter: str, octave: str) -> int:
        name = letter.upper()
        height = 12 * (5 + letter.islower() + octave.count("'") - octave.count(","))
        place = f"{name}{height}"
        if accidental:
            self.in_bar[place] = _SHIFTS[accidental]
        shift = self.in_bar.get(place, (self.key or {}).get(name, 0))
        return min(127, max(0, height + _SEMITONES[name] + shift))

    def _note(self, pitch: int | None, length: Fraction) -> None:
        usual = Fraction(1, 16) if self.meter < Fraction(3, 4) else Fraction(1, 8)
        length *= (self.unit or usual) * self.next_factor
        left, factor = self.tuplet
        if left:
            length *= factor
            self.tuplet = (left - 1, factor)
        self.next_factor = Fraction(1)
        place = self._last()
        tied, self.tied = self.tied, False
        if tied and place is not None and self.events[place][0] == pitch:
            self.events[place] = (pitch, _duration(self.events[place]) + length)
        else:
            self.events.append((pitch, length))
        self.last_length = length

    def _broken(self, signs: str) -> None:
        place = self._last()
        if place is None:
            return
        short = Fraction(1, 2 ** len(signs))
        before, self.next_factor = (2 - short, short) if signs[0] == ">" else (short, 2 - short)
        event = self.events[place]
        if not isinstance(event, str):
            self.events[place] = (event[0], event[1] + self.last_length * (before - 1))

    def _last(self) -> int | None:
        """The place of the last note."""
        for place in range(len(self.events) - 1, -1, -1):
            if self.events[place] != BAR:
                return place
        return None


def _duration(event: Event) -> Fraction:
    return Fraction(0) if isinstance(event, str) else event[1]


def _length(words: str) -> Fraction:
    """``3/2``, ``/``, ``//``, ``2`` in units of the tune."""
    found = re.fullmatch(r"(\d*)(/*)(\d*)", words)
    if not found or not words:
        return Fraction(1)
    above, strokes, below = found.groups()
    under = int(below) if below else 2 ** len(strokes)
    return Fraction(int(above or 1), max(under, 1))
