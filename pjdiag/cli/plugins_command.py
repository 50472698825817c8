"""pjdiag plugins."""

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pjdiag.adapters.registry import Registration
    from pjdiag.render.tables import Table

NAMES_WIDTH = 76
"""Characters of a line with the model types of maps."""


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    all_rows: Annotated[
        bool, typer.Option("--all", help="A line for each architecture map too.")
    ] = False,
) -> None:
    """Adapters that are installed, where each comes from and whether it can be used.

    An adapter is a Python class or an architecture map in JSON.
    """
    from pjdiag.adapters import registrations, verified

    found = verified(registrations())
    if as_json:
        typer.echo(json.dumps([_described(entry) for entry in found], indent=1))
        return
    from pjdiag.render.console import print_tables

    usable = sum(entry.adapter is not None for entry in found)
    maps = sum(bool(_model_types(entry)) for entry in found)
    print_tables(
        f"{usable} of {len(found)} adapters can be used; {maps} of them are architecture maps.",
        _tables(found, all_rows),
        sys.stdout,
    )


def _tables(found: "Sequence[Registration]", all_rows: bool) -> "list[Table]":
    """What cannot be used and why, the classes, and the maps of each package together."""
    from pjdiag.render.tables import Header, Table, text_cell

    broken = [entry for entry in found if entry.adapter is None]
    maps = [entry for entry in found if _model_types(entry)]
    listed = [
        entry for entry in found if entry.adapter is not None and (all_rows or entry not in maps)
    ]
    names, origin = Header("adapter", key=True), Header("from", group=True)
    folded = [] if all_rows else _folded(maps)
    return [
        Table(
            "Not used",
            (names, origin, Header("because")),
            tuple(tuple(map(text_cell, (e.name, e.origin, e.problem))) for e in broken),
        ),
        Table(
            "Adapters",
            (names, origin, Header("reads")),
            tuple(tuple(map(text_cell, (e.name, e.origin, _reads(e)))) for e in listed),
        ),
        Table(
            "Architecture maps",
            (Header("from", key=True, group=True), Header("model types")),
            tuple(tuple(map(text_cell, line)) for line in folded),
            note="what each reads: --all",
        ),
    ]


def _folded(maps: "Sequence[Registration]") -> list[tuple[str, str]]:
    """The model types of each package's maps, as many to a line as fit."""
    by_origin: dict[str, list[str]] = {}
    for entry in maps:
        by_origin.setdefault(entry.origin, []).extend(_model_types(entry))
    return [
        (origin, line)
        for origin, types in by_origin.items()
        for line in textwrap.wrap(
            ", ".join(sorted(types)), NAMES_WIDTH, break_long_words=False, break_on_hyphens=False
        )
    ]


def _model_types(entry: "Registration") -> tuple[str, ...]:
    """The model types of an architecture map; none of a class."""
    from pjdiag.adapters.mapped_adapter import MappedAdapter

    adapter = entry.adapter
    if not isinstance(adapter, MappedAdapter) or adapter.reader_name:
        return ()
    return adapter.model_types


def _reads(entry: "Registration") -> str:
    return entry.adapter.description if entry.adapter is not None else ""


def _described(entry: "Registration") -> dict[str, Any]:
    return {
        "name": entry.name,
        "origin": entry.origin,
        "usable": entry.adapter is not None,
        "problem": entry.problem,
        "description": _reads(entry),
        "model_types": list(_model_types(entry)),
    }
