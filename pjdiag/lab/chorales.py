"""Chorales as event tokens: four voices interleaved, one token a voice and 16th step.

A token is a MIDI pitch where it is new in its voice, ``HOLD`` where the pitch goes on, ``REST``
where the voice is silent; a step of four ``SEPARATOR`` ends a piece. The data hold the pitches
that sound at each step, soprano to bass, so a pitch that is struck again at once looks held.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from pjdiag.errors import DataError
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.streams import Stream

HOLD = 128
REST = 129
SEPARATOR = 130
VOICES = 4

Step = tuple[int | None, ...]
"""The pitches of soprano, alto, tenor, bass; None is silence."""


def voiced(piece: Sequence[Sequence[int]]) -> list[Step]:
    """Each step's pitches by voice. Four pitches are the voices in their order.

    Fewer keep their order and go to the voices that move least from the pitch each sang last;
    the higher voices where that is equal.

    >>> voiced([[74, 70, 65, 58], [74, 65, 58], []])
    [(74, 70, 65, 58), (74, None, 65, 58), (None, None, None, None)]
    """
    last: list[int | None] = [None] * VOICES
    steps = []
    for pitches in piece:
        places = min(
            combinations(range(VOICES), len(pitches)),
            key=lambda chosen: _movement(chosen, pitches, last),
        )
        step: list[int | None] = [None] * VOICES
        for voice, pitch in zip(places, pitches, strict=True):
            step[voice] = last[voice] = int(pitch)
        steps.append(tuple(step))
    return steps


def encode(pieces: Sequence[Sequence[Step]]) -> bytes:
    """The tokens of pieces, one byte each.

    >>> list(encode([[(74, 70, 65, 58), (74, 71, None, 58)]]))
    [74, 70, 65, 58, 128, 71, 129, 128, 130, 130, 130, 130]
    """
    tokens = bytearray()
    for piece in pieces:
        before: Step = (None,) * VOICES
        for step in piece:
            for pitch, held in zip(step, before, strict=True):
                tokens.append(REST if pitch is None else HOLD if pitch == held else pitch)
            before = step
        tokens += bytes([SEPARATOR] * VOICES)
    return bytes(tokens)


def decode(tokens: bytes) -> list[list[Step]]:
    """The pieces that ``encode`` made tokens of. Raises DataError for another sequence.

    >>> decode(encode([[(74, 70, 65, 58), (74, 71, None, 58)]]))
    [[(74, 70, 65, 58), (74, 71, None, 58)]]
    """
    pieces: list[list[Step]] = []
    piece: list[Step] = []
    if len(tokens) % VOICES or not tokens.endswith(bytes([SEPARATOR] * VOICES)):
        raise DataError("the tokens do not end with a piece", "pass whole pieces")
    for start in range(0, len(tokens), VOICES):
        step = tokens[start : start + VOICES]
        if step == bytes([SEPARATOR] * VOICES):
            pieces.append(piece)
            piece = []
            continue
        before: Step = piece[-1] if piece else (None,) * VOICES
        piece.append(tuple(_pitch(token, held) for token, held in zip(step, before, strict=True)))
    return pieces


def chorale_stream(data: bytes) -> Stream:
    """The three parts of the JSON file, each part's pieces one after another.

    Raises DataError where the file is not what it should be.
    """
    try:
        parts: dict[str, Any] = json.loads(data)
        tokens = {
            name: encode([voiced(piece) for piece in parts[name]])
            for name in ("train", "valid", "test")
        }
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"the chorales cannot be read: {error}", "pass the usual file") from error
    corpus = Corpus(
        train=(Work("chorales_train", tokens["train"]),),
        held_out=(Work("chorales_valid", tokens["valid"]),),
    )
    source = (
        "Bach's chorales (JSB chorales at 16th steps, the usual split of 229, 76 and 77 pieces) "
        "as event tokens: four voices interleaved, a pitch, a hold or a rest for each voice and "
        "16th step, four separators after a piece. Train, validation and test pieces as given."
    )
    return Stream("chorales", "music", corpus, tokens["test"], source)


def _movement(
    voices: Sequence[int], pitches: Sequence[int], last: Sequence[int | None]
) -> tuple[float, ...]:
    moved = 0.0
    for voice, pitch in zip(voices, pitches, strict=True):
        before = last[voice]
        moved += 0 if before is None else abs(pitch - before)
    return (moved, *voices)


def _pitch(token: int, held: int | None) -> int | None:
    if token == REST:
        return None
    if token < HOLD:
        return token
    if token == HOLD and held is not None:
        return held
    raise DataError(f"token {token} continues no pitch", "pass tokens of encode")
