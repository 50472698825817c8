"""Text from a checkpoint made safe to print: nothing invisible, nothing a terminal would obey."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder, hide, or cannot be drawn."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, encoding: str = "utf-8") -> str:
    r"""``text`` with every invisible or unencodable character written as an escape.

    >>> visible("a\u202eb\x1b[31m")
    'a\\u202eb\\x1b[31m'
    >>> visible("caf\u00e9 \u2588", "cp1252")
    'caf\xe9 \\u2588'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, encoding) for character in text)


def encodable(characters: str, encoding: str) -> bool:
    """True where ``encoding`` can write every one of ``characters``."""
    try:
        characters.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def shell_word(path: str) -> str:
    r"""``path`` as one word for a POSIX shell, printable as it stands.

    >>> shell_word("my model.pt"), shell_word("-o.pt"), shell_word("a\x1bb")
    ("'my model.pt'", './-o.pt', "$'a\\x1bb'")
    """
    safe = f"./{path}" if path.startswith("-") else path
    if all(unicodedata.category(character) not in INVISIBLE for character in safe):
        return shlex.quote(safe)
    return "$'" + "".join(_ansi_c(character) for character in safe) + "'"


def listed(words: Iterable[str], last: str = "and") -> str:
    """Words in prose.

    >>> listed(["0", "1", "2"]), listed(["a", "b"], "or"), listed(["a"])
    ('0, 1 and 2', 'a or b', 'a')
    """
    items = list(words)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def spans(numbers: Iterable[int]) -> str:
    """Numbers with runs joined.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def some_spans(numbers: Iterable[int], width: int = 20) -> str:
    """As ``spans``; where that is longer than ``width``, the first runs and the last.

    >>> some_spans([0, 1, 2, 5]), some_spans(n for n in range(62) if n % 6 < 5)
    ('0-2, 5', '0-4, 6-10 .. 60-61')
    """
    text = spans(numbers)
    if len(text) <= width:
        return text
    first, second, *_, last = text.split(", ")
    return f"{first}, {second} .. {last}"


def plural(word: str, number: int) -> str:
    """The word for ``number`` of it.

    >>> plural("layer", 1), plural("layer", 2)
    ('layer', 'layers')
    """
    return word if number == 1 else f"{word}s"


def counted(number: int, word: str) -> str:
    """A number of things.

    >>> counted(1, "layer"), counted(1200, "step")
    ('1 layer', '1,200 steps')
    """
    return f"{number:,} {plural(word, number)}"


def capitalised(text: str) -> str:
    """``text`` with its first letter in upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def _shown(character: str, encoding: str) -> str:
    if unicodedata.category(character) not in INVISIBLE and encodable(character, encoding):
        return character
    return _SHORT.get(character) or _escape(character)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _ansi_c(character: str) -> str:
    """One character inside ``$'...'``; an undecodable byte of a file name is written as is."""
    if character in "\\'":
        return f"\\{character}"
    if 0xDC80 <= ord(character) <= 0xDCFF:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return _shown(character, "utf-8")
