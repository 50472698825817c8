"""Text from a checkpoint is untrusted: how it is shown in a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from os import PathLike, fspath

_LONGEST = 120
_COMPARED = 5000


def shown(value: object) -> str:
    r"""A name as a quoted literal without control characters, shortened where it is long.

    >>> shown("a\x1b[31m")
    "'a\\x1b[31m'"
    >>> len(shown("w" * 1000))
    122
    """
    text = str(value)
    if len(text) > _LONGEST:
        half = (_LONGEST - 3) // 2
        text = f"{text[:half]}...{text[-half - 1 :]}"
    return repr(text)


def shown_path(path: str | PathLike[str]) -> str:
    """A path as it is where that is harmless, else quoted.

    >>> shown_path("runs/model.pt")
    'runs/model.pt'
    """
    text = fspath(path)
    return text if text.isprintable() and text else repr(text)


def listed(values: Iterable[object], limit: int = 5) -> str:
    """The first few values, shown, and how many more there are.

    >>> listed(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    items = list(values)
    text = ", ".join(shown(item) for item in items[:limit])
    more = len(items) - limit
    return f"{text} and {more} more" if more > 0 else text


def near(name: str, candidates: Iterable[str]) -> list[str]:
    """Up to three candidates that look like ``name``, the nearest first.

    >>> near("omga", ["omega", "gate_logits"])
    ['omega']
    """
    compared = list(islice(candidates, _COMPARED))
    return difflib.get_close_matches(name[:_LONGEST], compared, n=3, cutoff=0.6)
