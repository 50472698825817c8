"""Where in a TOML text each key stands, which the standard library's parser does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})|'
    r"'''.*?'''(?:'{0,2})|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)

Path = tuple[str | int, ...]
"""A key from the root: ``("rule", 2, "min")`` is the key min of the third rule."""


@dataclass(frozen=True)
class Spot:
    """A place in a text; both numbers count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Places:
    """The places of the keys and of their values."""

    keys: dict[Path, Spot]
    values: dict[Path, Spot]

    def nearest(self, path: Path) -> Spot:
        """The place of ``path``, else of what holds it; the beginning where nothing does."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.keys:
                return self.keys[path[:length]]
        return Spot(1, 1)


def places(text: str) -> Places:
    r"""Places of every table and key of ``text``, which is valid TOML.

    Keys inside an inline table have the place of the key that holds it.

    >>> found = places('version = 1\n\n[[rule]]\nid = "a"\n[[rule]]\n  id = "b"\n')
    >>> found.keys["rule", 1], found.values["rule", 1, "id"]
    (Spot(line=5, column=1), Spot(line=6, column=8))
    """
    keys: dict[Path, Spot] = {}
    values: dict[Path, Spot] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    at = _after(_BLANK, text, 0)
    while at < len(text):
        header = re.compile(r"\[\[?").match(text, at)
        start = _after(_SPACE, text, header.end() if header else at)
        names = list(_dotted(text, start))
        if not names:
            break
        end = names[-1][1]
        spot = _spot(text, at)
        words = tuple(name for name, _ in names)
        if header:
            table = _opened(counts, words, array=header.group() == "[[")
            keys.setdefault(table, spot)
            at = _after(_BLANK, text, _line_end(text, end))
            continue
        path = (*table, *words)
        for length in range(len(table) + 1, len(path) + 1):
            keys.setdefault(path[:length], spot)
        value = _after(_SPACE, text, _after(_SPACE, text, end) + 1)
        values[path] = _spot(text, value)
        at = _after(_BLANK, text, _value_end(text, value))
    return Places(keys, values)


def _opened(counts: dict[Path, int], words: tuple[str, ...], *, array: bool) -> Path:
    """The path of a table whose header names ``words``: arrays on the way stand at their last."""
    path: Path = ()
    for index, word in enumerate(words):
        path = (*path, word)
        if array and index == len(words) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _dotted(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The parts of a dotted key with the end of each."""
    while (part := _KEY.match(text, at)) is not None:
        yield _unquoted(part.group()), part.end()
        dot = _after(_SPACE, text, part.end())
        if text[dot : dot + 1] != ".":
            return
        at = _after(_SPACE, text, dot + 1)


def _unquoted(key: str) -> str:
    return next(iter(tomllib.loads(f"{key} = 0")))


def _value_end(text: str, at: int) -> int:
    """The end of the value that begins at ``at``: the line's, outside of strings and brackets."""
    depth = 0
    while at < len(text):
        string = _STRING.match(text, at)
        if string is not None:
            at = string.end()
            continue
        character = text[at]
        if character == "#":
            at = _line_end(text, at)
            continue
        if character == "\n" and depth == 0:
            return at
        depth += (character in "[{") - (character in "]}")
        at += 1
    return at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _spot(text: str, at: int) -> Spot:
    return Spot(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
