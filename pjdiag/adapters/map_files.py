"""The map files of a package: what each says of itself, before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from types import ModuleType
from typing import Any

from pjdiag.errors import AdapterError

MATCHING = ("model_types", "text_of", "config_fields", "tensor_parts")
"""Lists of what makes a checkpoint one of a map's own."""
LAST_RESORT = "last_resort"
Stated = dict[str, tuple[str, dict[str, Any]]]
"""By the map's name: its file, and what it says."""


def read_maps(module: ModuleType) -> tuple[Stated, dict[str, str]]:
    """Every ``*.json`` beside a package's ``__init__.py``, in the order of their names.

    The second part holds what is wrong with those that are no maps, by the file's stem.
    """
    found = {entry.name: entry for entry in files(module).iterdir()}
    names = sorted(name for name in found if name.endswith(".json"))
    return stated_maps({name: found[name].read_bytes() for name in names})


def stated_maps(texts: Mapping[str, str | bytes]) -> tuple[Stated, dict[str, str]]:
    """What maps say, from texts by file name, and what is wrong with the others.

    >>> good, faults = stated_maps({"a.json": '{"name": "a", "model_types": ["b"]}', "c.json": "{"})
    >>> good["a"]
    ('a.json', {'name': 'a', 'model_types': ['b']})
    >>> list(faults)
    ['c']
    """
    stated: Stated = {}
    faults: dict[str, str] = {}
    for file, text in texts.items():
        try:
            values = _parsed(file, text)
            if values["name"] in stated:
                other = stated[values["name"]][0]
                raise unusable(file, f"its name {values['name']!r} is that of {other}")
        except AdapterError as error:
            faults[file.removesuffix(".json")] = error.message
        else:
            stated[values["name"]] = (file, values)
    return stated, faults


def _parsed(file: str, text: str | bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unusable(file, f"it is not JSON: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise unusable(file, "it is not an object with a name")
    for name in ("extends", "description", "reader"):
        if not isinstance(values.get(name, ""), str):
            raise unusable(file, f"{name} is {values[name]!r}; expected a string")
    for name in MATCHING:
        entries = values.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
            raise unusable(file, f"{name} is {entries!r}; expected a list of strings")
    if not any(values.get(name) for name in (*MATCHING, LAST_RESORT)):
        raise unusable(file, "it names no model_types")
    return values


def unusable(file: str, why: str) -> AdapterError:
    """The error for a map that cannot be used."""
    return AdapterError(f"the architecture map {file} cannot be used: {why}", "correct the map")
