"""JSON from strangers: bounded depth, no key twice, one error for whatever is wrong."""

from __future__ import annotations

import json
from typing import Any

from pjdiag.checkpoint.text import shown

MAX_DEPTH = 64
MAX_VALUES = 1_000_000
"""As Python objects they take a few hundred bytes each; a header has about ten for a tensor."""


class JsonError(ValueError):
    """What is wrong with a JSON text, in words."""


def parse_object(raw: bytes, *, plain_numbers: bool = False) -> dict[str, Any]:
    """The JSON object in ``raw`` (UTF-8, no byte-order mark). Raises JsonError.

    ``plain_numbers`` refuses NaN, infinities, and negative integers (a minus zero too).

    >>> parse_object(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise JsonError(f"more than {MAX_VALUES:,} values")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 at byte {error.start}") from error
    try:
        loaded = json.loads(
            text,
            object_pairs_hook=_no_repeats,
            parse_int=_natural if plain_numbers else None,
            parse_constant=_no_constant if plain_numbers else None,
        )
    except JsonError:
        raise
    except RecursionError as error:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise JsonError(f"not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise JsonError(f"a JSON {_kind(loaded)}, expected an object")
    _check_depth(loaded)
    return loaded


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _natural(digits: str) -> int:
    if digits.startswith("-"):
        raise JsonError(f"negative number {shown(digits)}")
    return int(digits)


def _no_constant(name: str) -> float:
    raise JsonError(f"{name} is not a JSON number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    loaded = dict(pairs)
    if len(loaded) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonError(f"the key {shown(name)} occurs twice")
            seen.add(name)
    return loaded


def _check_depth(loaded: dict[str, Any]) -> None:
    level: list[Any] = [loaded]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
