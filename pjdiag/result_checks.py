"""Saved results from strangers: what their JSON may hold, and one error for whatever else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO, NoReturn

from pjdiag.arguments import is_number
from pjdiag.errors import DataError
from pjdiag.terms import DIAGNOSTICS, SCOPE_COLUMNS, Scope

SCHEMA_VERSION = 1
MAX_DEPTH = 64
MAX_BYTES = 2**30
"""A larger file is not opened."""
CHUNK = 2**20
LARGEST_COUNT = 2**63 - 1
LARGEST_INDEX = {"layer": 10**6, "head": 10**6, "jet_order": 999, "channel": 10**6}
"""Tables have a place for each number below these."""

WRITTEN_BY = "pass a file written by -o json"
AGAIN = "write it again with -o json"
FIELDS: dict[str, type] = {
    "checkpoint": dict,
    "provenance": dict,
    "rows": list,
    "skipped": list,
    "warnings": list,
}


def read_at_most(stream: BinaryIO, limit: int) -> bytes:
    """The first bytes of a stream, at most ``limit``; memory is taken for those that come.

    >>> import io
    >>> read_at_most(io.BytesIO(b"abc"), 2)
    b'ab'
    """
    chunks: list[bytes] = []
    while limit > 0 and (chunk := stream.read(min(limit, CHUNK))):
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def parsed(text: str) -> Any:
    """The JSON value in ``text``: finite numbers, no key twice, at most 64 levels.

    Raises DataError.

    >>> parsed('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        loaded = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except DataError:
        raise
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise DataError(f"not JSON: {error}", WRITTEN_BY) from error
    _check_depth(loaded)
    return loaded


def checked(loaded: Any) -> dict[str, Any]:
    """``loaded`` where it is a result as ``Result.to_dict`` makes it. Raises DataError.

    Columns that are missing in a row are let be; columns that are not known are not.
    """
    if not isinstance(loaded, dict):
        raise DataError("not a pjdiag result: no JSON object", WRITTEN_BY)
    version = loaded.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        found = "none" if "schema_version" not in loaded else shown(version)
        raise DataError(
            f"not a pjdiag result of schema version {SCHEMA_VERSION}: it states {found}",
            WRITTEN_BY,
        )
    diagnostic = loaded.get("diagnostic")
    if not isinstance(diagnostic, str) or diagnostic not in DIAGNOSTICS:
        raise DataError(f"unknown diagnostic {shown(diagnostic)}", "update pjdiag to read it")
    for name, kind in FIELDS.items():
        if not isinstance(loaded.get(name), kind):
            word = "an object" if kind is dict else "a list"
            _damaged(f"{name} is {shown(loaded.get(name))}; expected {word}")
    kinds = {column.name: column.kind for column in (*SCOPE_COLUMNS, *DIAGNOSTICS[diagnostic])}
    for number, row in enumerate(loaded["rows"]):
        _check_row(number, row, kinds)
    for entry in loaded["skipped"]:
        _check_skipped(entry)
    for warning in loaded["warnings"]:
        if not isinstance(warning, str):
            _damaged(f"a warning is {shown(warning)}; expected text")
    return loaded


def shown(value: Any) -> str:
    """A value from outside in a message: printable, short, and only its kind where it is long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = ascii(value)
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_row(number: int, row: Any, kinds: Mapping[str, str]) -> None:
    if not isinstance(row, dict):
        _damaged(f"row {number} is {shown(row)}; expected an object")
    if row.get("scope") not in tuple(Scope):
        _damaged(f"row {number} has the scope {shown(row.get('scope'))}")
    for name, value in row.items():
        if name not in kinds:
            raise DataError(
                f"row {number} has an unknown column {shown(name)}", "update pjdiag to read it"
            )
        if value is not None and not _fits(value, kinds[name]):
            _damaged(f"row {number} has {name} {shown(value)}; expected {_EXPECTED[kinds[name]]}")
    for name, largest in LARGEST_INDEX.items():
        if not 0 <= (row.get(name) or 0) <= largest:
            _damaged(f"row {number} has {name} {shown(row[name])}")


_EXPECTED = {
    "text": "text",
    "count": "a whole number",
    "flag": "true or false",
    "list": "a list",
    "share": "a finite number",
    "ratio": "a finite number",
    "real": "a finite number",
}


def _fits(value: Any, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "list":
        return isinstance(value, list)
    if not is_number(value):
        return False
    return kind != "count" or (abs(value) <= LARGEST_COUNT and value == int(value))


def _check_skipped(entry: Any) -> None:
    if not isinstance(entry, dict) or not {"layer", "reason"} <= set(entry):
        _damaged(f"an entry of skipped is {shown(entry)}; expected layer and reason")
    if set(entry) - {"layer", "reason", "head", "bad_values"}:
        _damaged(f"an entry of skipped has the keys {shown(', '.join(sorted(entry)))}")
    numbers = [entry["layer"], *([] if entry.get("head") is None else [entry["head"]])]
    if not all(type(number) is int and 0 <= number <= LARGEST_COUNT for number in numbers):
        _damaged("an entry of skipped names no layer or head by its number")
    if not isinstance(entry["reason"], str) or not isinstance(entry.get("bad_values", False), bool):
        _damaged("an entry of skipped has no reason in words, or bad_values is no flag")


def _damaged(what: str) -> NoReturn:
    raise DataError(f"damaged pjdiag result: {what}", AGAIN)


def _no_constant(name: str) -> NoReturn:
    raise DataError(f"not JSON: {name} is not a JSON number", AGAIN)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    loaded = dict(pairs)
    if len(loaded) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        _damaged(f"the key {shown(twice)} occurs twice in an object")
    return loaded


def _check_depth(loaded: Any) -> None:
    level = [loaded]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> DataError:
    return DataError(f"nested deeper than {MAX_DEPTH} levels: not a pjdiag result", WRITTEN_BY)
