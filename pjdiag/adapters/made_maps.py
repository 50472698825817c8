"""From what map files say to whole maps: a map may extend another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pjdiag.adapters.architecture_map import ArchitectureMap, checked_values
from pjdiag.adapters.map_files import Stated, stated_maps, unusable
from pjdiag.checkpoint.text import listed, near
from pjdiag.errors import AdapterError

OWN: dict[str, Any] = {"description": "", "model_types": [], "text_of": []}
"""What a map does not take from the one that it extends."""


def parse_maps(texts: Mapping[str, str]) -> list[ArchitectureMap]:
    """Maps from texts by file name. Raises AdapterError for one that cannot be used.

    >>> maps = parse_maps({
    ...     "a.json": '{"name": "a", "model_types": ["a"], "softcap": "cap"}',
    ...     "b.json": '{"name": "b", "extends": "a", "model_types": ["b"]}',
    ... })
    >>> maps[1].softcap
    'cap'
    """
    stated, faults = stated_maps(texts)
    for why in faults.values():
        raise AdapterError(why, "correct the map")
    return [made_map(name, stated) for name in stated]


def made_map(
    name: str, stated: Stated, above: tuple[str, ...] = (), shipped: Stated | None = None
) -> ArchitectureMap:
    """One of the maps; ``extends`` names another of them, or one of ``shipped``.

    ``above`` are the maps that extend it. Raises AdapterError.
    """
    file, values = stated[name]
    own = {key: value for key, value in values.items() if key != "extends"}
    base = values.get("extends")
    parent = None if base is None else _parent(file, base, stated, (*above, name), shipped or {})
    try:
        if parent is None:
            return ArchitectureMap(**{"model_types": (), **checked_values(own)})
        return parent.with_values({**OWN, **own})
    except (TypeError, ValueError) as error:
        raise unusable(file, str(error)) from error


def _parent(
    file: str, base: str, stated: Stated, above: tuple[str, ...], shipped: Stated
) -> ArchitectureMap:
    """The map that ``file`` extends: one beside it before one that comes with pjdiag."""
    if base in stated and base not in above:
        parent = made_map(base, stated, above, shipped)
    elif base in shipped and stated is not shipped:
        parent = made_map(base, shipped)
    elif base in stated:
        raise unusable(file, f"it extends {base!r}, which is an extension of it")
    else:
        close = near(base, sorted({*stated, *shipped}))
        hint = f" (near it: {listed(close)})" if close else ""
        why = f"it extends {base!r}, which is no map beside it and none of pjdiag's{hint}"
        raise unusable(file, why)
    if parent.reader:
        why = f"it extends {base!r}, which {parent.reader} reads: that class has fields of its own"
        raise unusable(file, why)
    return parent
