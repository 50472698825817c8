"""Folk tunes as event tokens, and the stream that is made of them."""

from __future__ import annotations

import sys
import zipfile
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.errors import DataError
from pjdiag.lab.abc_tunes import BAR
from pjdiag.lab.folk_tunes import (
    DURATIONS,
    FIRST_DURATION,
    REST,
    SEPARATOR,
    WHEEL,
    decode,
    encode,
    folk_stream,
    stream_of,
)

NOTES = st.tuples(st.one_of(st.none(), st.integers(0, 127)), st.sampled_from(DURATIONS))
TUNES = st.lists(st.lists(st.one_of(st.just(BAR), NOTES), max_size=12), max_size=4)


@given(TUNES)
def test_tokens_are_the_tunes_again(pieces):
    assert decode(encode(pieces)) == pieces


def test_every_token_is_a_byte():
    assert FIRST_DURATION + len(DURATIONS) <= 256


@given(st.fractions(Fraction(1, 200), Fraction(3)))
def test_any_duration_is_taken_to_a_nearest(length):
    [[(_, found)]] = decode(encode([[(60, length)]]))
    assert abs(found - length) == min(abs(known - length) for known in DURATIONS)


@pytest.mark.parametrize("tokens", [[60], [60, 60, SEPARATOR], [128, 140, SEPARATOR], [REST, 255]])
def test_other_tokens_are_refused(tokens):
    with pytest.raises(DataError):
        decode(bytes(tokens))


def test_of_twenty_tunes_one_is_held_out_and_one_tests():
    pieces = [bytes([n, FIRST_DURATION, SEPARATOR]) for n in range(60)]
    stream = stream_of(pieces)
    assert stream.corpus.held_out[0].data == pieces[18] + pieces[38] + pieces[58]
    assert stream.test == pieces[19] + pieces[39] + pieces[59]
    assert len(stream.corpus.train[0].data) == 3 * 54
    assert stream.source.startswith("60 folk tunes")


def test_another_wheel_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as archive:
        archive.writestr("music21/corpus/airdsAirs/book1.abc", "X:1\nK:C\nA")
    with pytest.raises(DataError, match=r"the tunes of music21==10\.5\.1 have SHA-256"):
        folk_stream(tmp_path)
    (tmp_path / WHEEL).write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot be read"):
        folk_stream(tmp_path)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "music21", None)  # as if it were not installed
    with pytest.raises(DataError, match="not installed") as error:
        folk_stream(tmp_path)
    assert "pip install --no-deps music21==10.5.1" in error.value.hint
