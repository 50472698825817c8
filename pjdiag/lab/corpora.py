"""Byte corpora made of whole works, some of them held out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pjdiag.errors import DataError

_START = re.compile(
    r"^[^\n]*\*\*\*\s*START OF (?:THE|THIS) PROJECT GUTENBERG[^\n]*\n"
    r"|^[^\n]*\*END\*? ?THE SMALL PRINT![^\n]*\n",
    re.IGNORECASE | re.MULTILINE,
)
_END = re.compile(
    r"^[^\n]*\*\*\*\s*END OF (?:THE|THIS) PROJECT GUTENBERG"
    r"|^\s*END OF (?:THE |THIS )?PROJECT GUTENBERG",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class Work:
    """One whole work: its name (the file's, without suffix) and its UTF-8 bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Corpus:
    """Works to train on and works held out."""

    train: tuple[Work, ...]
    held_out: tuple[Work, ...]

    @property
    def train_bytes(self) -> int:
        """Bytes to train on."""
        return sum(len(work.data) for work in self.train)

    @property
    def held_out_bytes(self) -> int:
        """Bytes held out."""
        return sum(len(work.data) for work in self.held_out)

    @property
    def digest(self) -> str:
        """SHA-256 over the names, the split and the bytes."""
        total = hashlib.sha256()
        for part, works in (("train", self.train), ("held out", self.held_out)):
            for work in works:
                total.update(f"{part}\n{work.name}\n{len(work.data)}\n".encode())
                total.update(work.data)
        return total.hexdigest()

    def require_windows(self, length: int) -> None:
        """Raise DataError for a work that is shorter than a window of ``length`` bytes."""
        for work in (*self.train, *self.held_out):
            if len(work.data) < length:
                raise DataError(
                    f"{work.name} has {len(work.data)} bytes; a window has {length}",
                    "leave the file out, or train with a shorter train length",
                )


def read_corpus(paths: Iterable[Path], held_out: Sequence[str]) -> Corpus:
    """The works of files and folders (their ``*.txt``, sorted), split by ``held_out`` names.

    Project Gutenberg headers and footers are removed, line ends are ``\\n``, bytes are UTF-8.
    Raises DataError for a missing, empty or binary file, two works of one name, a held-out name
    that no work has, or a split that leaves one side empty.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise DataError("no text files were given", "pass files or folders with *.txt")
    return split([Work(file.stem, read_text(file).encode()) for file in files], held_out)


def split(works: Sequence[Work], held_out: Sequence[str]) -> Corpus:
    """The corpus of ``works``, in their order, with the works named in ``held_out`` held out.

    Raises DataError as ``read_corpus`` does.

    >>> corpus = split([Work("a", b"train"), Work("b", b"test")], ["b"])
    >>> corpus.train_bytes, corpus.held_out_bytes
    (5, 4)
    """
    names = [work.name for work in works]
    if len(works) == 1:
        raise DataError(
            f"there is one work, {names[0]}; expected one to train on and another to hold out",
            "pass a folder of .txt files, one work each, or --data twice, and name the work to "
            "hold out with --held-out",
        )
    known = f"the works are {', '.join(sorted(names)[:8])}" + (", ..." if len(names) > 8 else "")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two works are named {name}", "rename one of the files")
    for name in held_out:
        if name not in names:
            raise DataError(f"no work is named {name}, so it cannot be held out", known)
    corpus = Corpus(
        train=tuple(work for work in works if work.name not in held_out),
        held_out=tuple(work for work in works if work.name in held_out),
    )
    if not corpus.held_out:
        raise DataError("no work is held out", f"name one with --held-out; {known}")
    if not corpus.train:
        raise DataError("every work is held out; nothing is left to train on", known)
    return corpus


def read_text(path: Path) -> str:
    """The text of a file: decoded, line ends ``\\n``, Gutenberg boilerplate removed.

    Raises DataError for a missing, unreadable, empty or binary file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", "check the path") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check the file") from error
    text = strip_gutenberg(decode(data, str(path)))
    if not text.strip():
        raise DataError(f"{path} holds no text", "leave the file out")
    return text


def decode(data: bytes, name: str = "the data") -> str:
    """Text from UTF-8 bytes, or from Latin-1 where they are not UTF-8; line ends become ``\\n``.

    Raises DataError for bytes that are not text (they hold a NUL).

    >>> decode(b"caf\\xe9\\r\\n") == decode("caf\\u00e9\\n".encode())
    True
    """
    if b"\0" in data:
        raise DataError(f"{name} is not text: it holds NUL bytes", "pass plain text files")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def strip_gutenberg(text: str) -> str:
    """The text without the header and the footer of Project Gutenberg, ending in a newline.

    >>> strip_gutenberg("x\\n*** START OF THIS PROJECT GUTENBERG EBOOK A ***\\n\\nO, be some other "
    ...                 "name!\\n\\nEnd of Project Gutenberg's A\\n")
    'O, be some other name!\\n'
    """
    starts = list(_START.finditer(text))
    body = text[starts[-1].end() :] if starts else text
    end = _END.search(body)
    return (body[: end.start()] if end else body).strip() + "\n"


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.txt"))
    if not files:
        raise DataError(f"{path} holds no *.txt", "pass a folder of text files")
    return files
