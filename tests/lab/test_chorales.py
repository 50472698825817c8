"""Chorales as event tokens."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.errors import DataError
from pjdiag.lab.chorales import (
    HOLD,
    REST,
    SEPARATOR,
    chorale_stream,
    decode,
    encode,
    voiced,
)

STEPS = st.tuples(*[st.one_of(st.none(), st.integers(0, 127))] * 4)
PIECES = st.lists(st.lists(STEPS, max_size=12), max_size=4)
CHORDS = st.lists(st.lists(st.integers(30, 90), max_size=4), max_size=12)


@given(PIECES)
def test_tokens_are_the_pieces_again(pieces):
    tokens = encode(pieces)
    assert len(tokens) == 4 * sum(len(piece) + 1 for piece in pieces)
    if pieces:
        assert decode(tokens) == pieces


@given(CHORDS)
def test_every_pitch_finds_a_voice_and_keeps_its_place_among_them(piece):
    steps = voiced(piece)
    assert [[p for p in step if p is not None] for step in steps] == piece
    assert all(len(step) == 4 for step in steps)


def test_four_pitches_are_the_voices_as_given_crossed_or_not():
    assert voiced([[64, 68, 59, 59]]) == [(64, 68, 59, 59)]


def test_fewer_pitches_go_to_the_nearest_voices():
    last = voiced([[74, 70, 65, 58], [71, 57], [74]])
    assert last[1:] == [(None, 71, None, 57), (74, None, None, None)]


def test_a_pitch_after_a_rest_is_new():
    piece = [(60, None, None, None), (None,) * 4, (60, None, None, None), (60, None, None, None)]
    soprano = list(encode([piece]))[::4]
    assert soprano == [60, REST, 60, HOLD, SEPARATOR]


@pytest.mark.parametrize(
    "tokens", [[60], [60, 60, 60, 60], [HOLD, REST, REST, REST, *[SEPARATOR] * 4]]
)
def test_other_tokens_are_refused(tokens):
    with pytest.raises(DataError):
        decode(bytes(tokens))


def test_the_parts_of_a_stream_are_those_of_the_file():
    chord = [74.0, 70.0, 65.0, 58.0]
    parts = {"train": [[chord] * 3, [[]]], "valid": [[chord]], "test": [[chord] * 2]}
    stream = chorale_stream(json.dumps(parts).encode())
    assert decode(stream.corpus.train[0].data) == [[(74, 70, 65, 58)] * 3, [(None,) * 4]]
    assert len(stream.corpus.held_out[0].data) == 8
    assert list(stream.test[4:8]) == [HOLD] * 4
    assert stream.kind == "music"


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"train": [], "valid": []}', b'{"train": [[[[]]]]}']
)
def test_another_file_is_refused(data):
    with pytest.raises(DataError, match="chorales cannot be read"):
        chorale_stream(data)


def test_five_pitches_are_refused():
    parts = {"train": [[[1, 2, 3, 4, 5]]], "valid": [], "test": []}
    with pytest.raises(DataError, match="chorales cannot be read"):
        chorale_stream(json.dumps(parts).encode())
