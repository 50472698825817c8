"""pjdiag plugins."""

import json
import sys
from typing import Annotated

import typer


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Adapters that are installed, where each comes from and whether it can be used."""
    from pjdiag.adapters import registrations

    found = registrations()
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {
                        "name": entry.name,
                        "origin": entry.origin,
                        "usable": entry.adapter is not None,
                        "problem": entry.problem,
                        "description": entry.adapter.description if entry.adapter else "",
                    }
                    for entry in found
                ],
                indent=1,
            )
        )
        return
    from pjdiag.render.console import print_tables
    from pjdiag.render.tables import Header, Table, text_cell

    usable = sum(entry.adapter is not None for entry in found)
    lines = tuple(
        (
            text_cell(entry.name),
            text_cell(entry.origin),
            text_cell("usable" if entry.adapter else entry.problem),
            text_cell(entry.adapter.description if entry.adapter else ""),
        )
        for entry in found
    )
    headers = (Header("adapter", key=True), Header("from"), Header("state"), Header("reads"))
    print_tables(
        f"{usable} of {len(found)} adapters can be used.",
        [Table("Adapters", headers, lines)],
        sys.stdout,
    )
