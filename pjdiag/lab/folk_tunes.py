"""Folk tunes as event tokens: a pitch and a duration for each note, and the bar lines.

The tunes are those of three collections in the corpus of the package ``music21``, read out of
the installed package or its wheel; nothing of them is kept here.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from pjdiag.errors import DataError, pip_install
from pjdiag.lab.abc_tunes import BAR, Event, tunes
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.streams import Stream

PACKAGE = "music21==10.5.1"
WHEEL = "music21-10.5.1-py3-none-any.whl"
COLLECTIONS = ("airdsAirs", "oneills1850", "ryansMammoth")
SHA256 = "f1b3e2d4ad33f10aed423f9f953fc4c2a080a38b88771840278fc5f448fadf6e"
"""Of the names and bytes of the collections' files."""

REST = 129
SEPARATOR = 130
BAR_TOKEN = 131
FIRST_DURATION = 132
DURATIONS = tuple(
    sorted(
        {Fraction(n, 64) for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)}
        | {Fraction(n, 96) for n in (1, 2, 4, 8, 16, 32)}
        | {Fraction(n, 8) for n in (5, 6, 7, 8, 9, 10, 12, 16)}
    )
)
"""In whole notes; another one is taken to the nearest, the shorter of two."""
HELD_OUT, TEST, OUT_OF = 18, 19, 20
"""Of every 20 tunes one is held out and one tests."""


def encode(pieces: Iterable[Sequence[Event]]) -> bytes:
    """The tokens of tunes, one byte each; a separator ends a tune.

    >>> list(encode([[(62, Fraction(1, 8)), BAR, (None, Fraction(1, 4))]]))
    [62, 143, 131, 129, 148, 130]
    """
    tokens = bytearray()
    for piece in pieces:
        for event in piece:
            if isinstance(event, str):
                tokens.append(BAR_TOKEN)
                continue
            pitch, length = event
            tokens.append(REST if pitch is None else pitch)
            tokens.append(FIRST_DURATION + _nearest(length))
        tokens.append(SEPARATOR)
    return bytes(tokens)


def decode(tokens: bytes) -> list[list[Event]]:
    """The tunes that ``encode`` made tokens of. Raises DataError for another sequence."""
    pieces: list[list[Event]] = []
    piece: list[Event] = []
    stream = iter(tokens)
    for token in stream:
        if token == SEPARATOR:
            pieces.append(piece)
            piece = []
        elif token == BAR_TOKEN:
            piece.append(BAR)
        else:
            place = next(stream, 0) - FIRST_DURATION
            if token > REST or token == 128 or not 0 <= place < len(DURATIONS):
                raise DataError(f"token {token} begins no note", "pass tokens of encode")
            piece.append((None if token == REST else token, DURATIONS[place]))
    if piece:
        raise DataError("the tokens do not end with a tune", "pass whole tunes")
    return pieces


def folk_stream(folder: Path | None) -> Stream:
    """The tunes in three parts. Raises DataError where the package is not there, or another."""
    files = _files(folder)
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(f"{name}\n{len(files[name])}\n".encode() + files[name])
    if found.hexdigest() != SHA256:
        raise DataError(
            f"the tunes of {PACKAGE} have SHA-256 {found.hexdigest()}; expected {SHA256}",
            pip_install("--no-deps", PACKAGE),
        )
    return stream_of(_pieces(tuple(files[name] for name in sorted(files))))


@lru_cache(maxsize=1)
def _pieces(files: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The tokens of every tune, of equal ones the first; parsing takes many seconds."""
    texts = (file.decode("utf-8", "replace") for file in files)
    return tuple(dict.fromkeys(encode([tune]) for text in texts for tune in tunes(text)))


@cache
def _nearest(length: Fraction) -> int:
    """The place of a duration, or of the nearest."""
    return min(range(len(DURATIONS)), key=lambda place: abs(DURATIONS[place] - length))


def stream_of(pieces: Sequence[bytes]) -> Stream:
    """The stream of tunes that are tokens, each with its separator."""
    parts: dict[int, list[bytes]] = {}
    for place, piece in enumerate(pieces):
        parts.setdefault(place % OUT_OF, []).append(piece)
    train = [p for place, p in enumerate(pieces) if place % OUT_OF not in (HELD_OUT, TEST)]
    corpus = Corpus(
        train=(Work("folk_train", b"".join(train)),),
        held_out=(Work("folk_validation", b"".join(parts.get(HELD_OUT, []))),),
    )
    source = (
        f"{len(pieces):,} folk tunes (Aird, O'Neill, Ryan) in the ABC files of the corpus of "
        f"{PACKAGE}, as event tokens: a pitch or rest and a duration for each note, bar lines, a "
        "separator after a tune; as written, without repeats. Of every 20 tunes one selects the "
        "checkpoint and one tests. Some are settings of one tune."
    )
    return Stream("folk", "music", corpus, b"".join(parts.get(TEST, [])), source)


def _files(folder: Path | None) -> dict[str, bytes]:
    """The ABC files by collection and name."""
    wheel = folder / WHEEL if folder is not None else None
    if wheel is not None and wheel.is_file():
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if _is_wanted(name)]
                return {"/".join(name.split("/")[-2:]): archive.read(name) for name in names}
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{wheel} cannot be read: {error}", "download it again") from error
    package = find_spec("music21")
    places = list(package.submodule_search_locations or ()) if package else []
    if not places:
        raise DataError(
            f"the folk tunes come with {PACKAGE}, which is not installed",
            f"{pip_install('--no-deps', PACKAGE)}, or put {WHEEL} into the folder of --data",
        )
    corpus = Path(places[0]) / "corpus"
    return {
        f"{collection}/{path.name}": path.read_bytes()
        for collection in COLLECTIONS
        for path in (corpus / collection).glob("*.abc")
    }


def _is_wanted(name: str) -> bool:
    place = name.split("/")
    return len(place) == 4 and place[2] in COLLECTIONS and name.endswith(".abc")
