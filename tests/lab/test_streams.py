"""Texts of the evidence chain: checked by digest, split in three."""

from __future__ import annotations

import hashlib

import pytest

from pjdiag.errors import DataError, UsageError
from pjdiag.lab.streams import (
    CHORALES,
    LANGUAGES,
    MUSIC,
    STREAMS,
    DataFile,
    Stream,
    read_checked,
    read_stream,
    split_text,
    text_stream,
)

BYTES = b"no text of the evidence chain"
FILE = DataFile("a.txt", hashlib.sha256(BYTES).hexdigest(), "the file a of b")


def test_a_file_is_read_where_its_digest_is_right(tmp_path):
    (tmp_path / "a.txt").write_bytes(BYTES)
    assert read_checked(tmp_path, FILE) == BYTES


def test_other_bytes_are_refused_and_both_digests_named(tmp_path):
    (tmp_path / "a.txt").write_bytes(BYTES + b"!")
    found = hashlib.sha256(BYTES + b"!").hexdigest()
    with pytest.raises(DataError, match=f"a.txt has SHA-256 {found}; expected {FILE.sha256}") as e:
        read_checked(tmp_path, FILE)
    assert e.value.hint == f"put the file a of b, there as a.txt (SHA-256 {FILE.sha256})"


def test_a_missing_file_or_folder_says_where_such_a_file_is_from(tmp_path):
    with pytest.raises(DataError, match=r"a\.txt does not exist") as missing:
        read_checked(tmp_path, FILE)
    with pytest.raises(DataError, match=r"a\.txt is needed, and no folder") as nowhere:
        read_checked(None, FILE)
    for error in (missing, nowhere):
        assert "the file a of b" in error.value.hint
        assert FILE.sha256 in error.value.hint


@pytest.mark.parametrize("name", [*LANGUAGES, "chorales"])
def test_every_stream_refuses_a_folder_without_its_file(name, tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_stream(name, tmp_path)


def test_an_unknown_stream_is_refused_and_the_others_named():
    with pytest.raises(UsageError, match="no stream is named 'birds'") as error:
        read_stream("birds", None)
    assert all(name in error.value.hint for name in (*LANGUAGES, *MUSIC))
    assert set(STREAMS) == {*LANGUAGES, *MUSIC}


@pytest.mark.parametrize("size", [40, 1000, 1_115_394])
def test_a_split_is_whole_and_in_order(size):
    data = bytes(i % 251 for i in range(size))
    corpus, test = split_text("a", data)
    assert corpus.train[0].data + corpus.held_out[0].data + test == data
    assert len(test) == corpus.held_out_bytes == int(0.05 * size)
    assert corpus.train[0].name != corpus.held_out[0].name


def test_a_text_has_one_kind_of_line_end():
    stream = text_stream("a", b"one\r\ntwo\r" * 50, "the file a")
    assert b"".join([stream.corpus.train[0].data, stream.corpus.held_out[0].data]).count(b"\r") == 0
    assert stream.source.startswith("The file a. The first 90 %")


def test_the_digest_knows_every_part():
    text = bytes(range(200))
    corpus, test = split_text("a", text)
    streams = [
        Stream("a", "language", corpus, test, ""),
        Stream("a", "language", corpus, test + b"!", ""),
        Stream("a", "language", split_text("a", text[::-1])[0], test, ""),
    ]
    assert len({stream.digest for stream in streams}) == 3
    assert CHORALES.name.endswith(".json")
