"""Byte corpora: decoding, boilerplate, the split by whole works, and what is refused."""

from pathlib import Path

import pytest

from pjdiag.errors import DataError
from pjdiag.lab.corpora import Corpus, Work, decode, read_corpus, read_text, split, strip_gutenberg

NEW_STYLE = """\
The Project Gutenberg eBook of Macbeth
Title: Macbeth

*** START OF THE PROJECT GUTENBERG EBOOK MACBETH ***

When shall we three meet again?

*** END OF THE PROJECT GUTENBERG EBOOK MACBETH ***
Updated editions will replace the previous one.
"""
OLD_STYLE = """\
This is a retranscription of one of the first Project Gutenberg Etexts.
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

When shall we three meet again?

End of the Project Gutenberg Etext of Macbeth
"""


def test_boilerplate_of_two_ages_is_removed() -> None:
    assert strip_gutenberg(NEW_STYLE) == "When shall we three meet again?\n"
    assert strip_gutenberg(OLD_STYLE) == "When shall we three meet again?\n"


def test_a_text_without_boilerplate_keeps_every_word() -> None:
    text = "MACBETH\n\n  The end of the matter *** is this.\n"
    assert strip_gutenberg(text) == text


def test_decoding() -> None:
    accented = "caf\u00e9 \u2014 \u00bd"
    assert decode(accented.encode()) == accented
    assert decode(b"\xef\xbb\xbfplain") == "plain"
    assert decode("caf\u00e9".encode("latin-1")) == "caf\u00e9"
    assert decode(b"one\r\ntwo\rthree\n") == "one\ntwo\nthree\n"
    with pytest.raises(DataError, match="play is not text: it holds NUL bytes"):
        decode(b"PK\x00\x01", "play")


def test_a_folder_is_read_in_order_as_utf8(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes("caf\u00e9\r\n".encode("latin-1"))
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "c.md").write_text("not a text of the corpus")
    corpus = read_corpus([tmp_path], ["a"])
    assert corpus.train == (Work("b", "caf\u00e9\n".encode()),)
    assert corpus.held_out == (Work("a", b"alpha\n"),)
    assert (corpus.train_bytes, corpus.held_out_bytes) == (6, 6)


def test_files_and_folders_together(tmp_path: Path) -> None:
    folder = tmp_path / "plays"
    folder.mkdir()
    (folder / "x.txt").write_text("x")
    (tmp_path / "z.text").write_text("z")
    corpus = read_corpus([tmp_path / "z.text", folder], ["x"])
    assert [work.name for work in corpus.train] == ["z"]


def works(*names: str) -> list[Work]:
    return [Work(name, name.encode()) for name in names]


def test_whole_works_are_held_out() -> None:
    corpus = split(works("a", "b", "c"), ["c", "a"])
    assert [work.name for work in corpus.train] == ["b"]
    assert [work.name for work in corpus.held_out] == ["a", "c"]


@pytest.mark.parametrize(
    ("names", "held_out", "message"),
    [
        ("ab", "d", "no work is named d, so it cannot be held out. Next: the works are a, b$"),
        ("ab", "", "no work is held out. Next: name one with --held-out; the works are a, b"),
        ("a", "", "there is one work, a; expected one to train on and another to hold out"),
        ("a", "a", "one work, a; .* Next: pass a folder of .txt files, one work each, or"),
        ("ab", "ab", "every work is held out"),
        ("aba", "b", "two works are named a"),
        ("abcdefghij", "z", "the works are a, b, c, d, e, f, g, h, ...$"),
    ],
)
def test_splits_that_are_refused(names: str, held_out: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(works(*names), list(held_out))


def test_the_digest_sees_names_split_and_bytes() -> None:
    base = split(works("a", "b", "c"), ["c"])
    others = [
        split(works("a", "b", "c"), ["b"]),
        Corpus((Work("a", b"a"), Work("x", b"b")), base.held_out),
        Corpus((Work("a", b"ab"), Work("b", b"")), base.held_out),
    ]
    assert base.digest == split(works("a", "b", "c"), ["c"]).digest
    assert len({base.digest, *(corpus.digest for corpus in others)}) == 4


def test_files_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"play\.txt does not exist"):
        read_text(tmp_path / "play.txt")
    with pytest.raises(DataError, match=r"holds no \*.txt"):
        read_corpus([tmp_path], ["a"])
    with pytest.raises(DataError, match="no text files were given"):
        read_corpus([], ["a"])
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(DataError, match=r"empty\.txt holds no text"):
        read_text(tmp_path / "empty.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(DataError, match=r"folder\.txt cannot be read: Is a directory"):
        read_text(tmp_path / "folder.txt")


def test_a_work_must_fill_a_window() -> None:
    corpus = split([Work("long", b"x" * 129), Work("short", b"x" * 128)], ["short"])
    corpus.require_windows(128)
    with pytest.raises(DataError, match="short has 128 bytes; a window has 129"):
        corpus.require_windows(129)
