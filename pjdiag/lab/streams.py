"""The texts and tunes of the evidence chain: checked by digest, split in three."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pjdiag.errors import DataError, UsageError
from pjdiag.lab.corpora import Corpus, Work, decode

VALIDATION_SHARE = 0.05
"""Of a text that has no split of its own; the test part is as large."""


@dataclass(frozen=True)
class DataFile:
    """A file the user has: its name, the SHA-256 of its bytes, and where such a file is from."""

    name: str
    sha256: str
    origin: str


TINY_SHAKESPEARE = DataFile(
    "tinyshakespeare.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "the file input.txt of the char-rnn repository, data/tinyshakespeare, 1,115,394 bytes",
)
WAR_AND_PEACE = DataFile(
    "war_and_peace.txt",
    "bc7effe0389cf8e169f68a3de353ad8e963d2fd90193742a0a1cca689ebf7238",
    "the English War and Peace of char-rnn's list of texts, 3,258,245 bytes",
)
WIKITEXT_TEST = DataFile(
    "wikitext2_test.txt",
    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    "the file wiki.test.tokens of WikiText-2, 1,256,449 bytes",
)
WIKITEXT_VALID = DataFile(
    "wikitext2_valid.txt",
    "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    "the file wiki.valid.tokens of WikiText-2, 1,121,681 bytes",
)
CHORALES = DataFile(
    "jsb_chorales_16th.json",
    "8730aca7b64e7d29493733d1cf19fad4a5b351d8f1845e57dac27728104fd39f",
    "the file jsb-chorales-16th.json of the JSB-Chorales-dataset repository, 1,741,172 bytes",
)


@dataclass(frozen=True)
class Stream:
    """One corpus in three parts. The held-out part of ``corpus`` selects the checkpoint."""

    name: str
    kind: str
    """``language`` or ``music``: the experiment that trains its models."""
    corpus: Corpus
    test: bytes
    """Seen by no training run; every reported loss is measured on it."""
    source: str
    """Where it comes from and how it is split, in words."""

    @property
    def digest(self) -> str:
        """SHA-256 over the corpus's digest and the test part."""
        return hashlib.sha256(self.corpus.digest.encode() + self.test).hexdigest()


def read_checked(folder: Path | None, file: DataFile) -> bytes:
    """The bytes of ``folder / file.name``. Raises DataError: no folder, no file, other bytes."""
    hint = f"put {file.origin}, there as {file.name} (SHA-256 {file.sha256})"
    if folder is None:
        raise DataError(
            f"{file.name} is needed, and no folder of texts was given", f"--data: {hint}"
        )
    path = folder / file.name
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", hint) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint) from error
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise DataError(f"{path} has SHA-256 {found}; expected {file.sha256}", hint)
    return data


def split_text(name: str, data: bytes) -> tuple[Corpus, bytes]:
    """First 90 % to train on, the next 5 % held out, the last 5 % the test part.

    >>> corpus, test = split_text("a", bytes(range(100)))
    >>> corpus.train_bytes, corpus.held_out_bytes, test[:2]
    (90, 5, b'_`')
    """
    part = int(len(data) * VALIDATION_SHARE)
    first, second = len(data) - 2 * part, len(data) - part
    corpus = Corpus(
        train=(Work(f"{name}_train", data[:first]),),
        held_out=(Work(f"{name}_validation", data[first:second]),),
    )
    return corpus, data[second:]


def text_stream(name: str, data: bytes, origin: str) -> Stream:
    """A text in three parts by place; UTF-8, line ends ``\\n``."""
    corpus, test = split_text(name, decode(data, name).encode())
    split = "The first 90 % are trained on, the next 5 % select the checkpoint, the last 5 % test."
    return Stream(name, "language", corpus, test, f"{origin[0].upper()}{origin[1:]}. {split}")


def tiny_shakespeare(folder: Path | None) -> Stream:
    """Tiny Shakespeare, 90 / 5 / 5."""
    data = read_checked(folder, TINY_SHAKESPEARE)
    return text_stream("tinyshakespeare", data, TINY_SHAKESPEARE.origin)


def war_and_peace(folder: Path | None) -> Stream:
    """War and Peace in English, 90 / 5 / 5."""
    data = read_checked(folder, WAR_AND_PEACE)
    return text_stream("war_and_peace", data, WAR_AND_PEACE.origin)


def wikitext2(folder: Path | None) -> Stream:
    """WikiText-2 without its training file: the test file trains, the other is halved."""
    train = decode(read_checked(folder, WIKITEXT_TEST), WIKITEXT_TEST.name).encode()
    valid = decode(read_checked(folder, WIKITEXT_VALID), WIKITEXT_VALID.name).encode()
    middle = len(valid) // 2
    corpus = Corpus(
        train=(Work("wikitext2_test", train),),
        held_out=(Work("wikitext2_valid_first_half", valid[:middle]),),
    )
    source = (
        "WikiText-2 as tokenised text, without its training file: its test file is trained on, "
        "the first half of its validation file selects the checkpoint, the second half tests."
    )
    return Stream("wikitext2", "language", corpus, valid[middle:], source)


def chorales(folder: Path | None) -> Stream:
    """Bach's chorales as event tokens, in the usual three parts."""
    from pjdiag.lab.chorales import chorale_stream

    return chorale_stream(read_checked(folder, CHORALES))


def folk(folder: Path | None) -> Stream:
    """Folk tunes as event tokens."""
    from pjdiag.lab.folk_tunes import folk_stream

    return folk_stream(folder)


STREAMS: dict[str, Callable[[Path | None], Stream]] = {
    "tinyshakespeare": tiny_shakespeare,
    "war_and_peace": war_and_peace,
    "wikitext2": wikitext2,
    "chorales": chorales,
    "folk": folk,
}
LANGUAGES = ("tinyshakespeare", "war_and_peace", "wikitext2")
MUSIC = ("chorales", "folk")


def read_stream(name: str, folder: Path | None) -> Stream:
    """The stream ``name`` out of the user's folder. Raises UsageError, DataError."""
    if name not in STREAMS:
        raise UsageError(f"no stream is named {name!r}", f"the streams are {', '.join(STREAMS)}")
    return STREAMS[name](folder)
