"""pjdiag convert."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.damage import named
from pjdiag.cli.options import SHOWN, AllRows, OneHead, OneLayer, Quiet
from pjdiag.errors import UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.results import Result

FINEST = {
    "energy": Scope.MODEL,
    "loo": Scope.MODEL,
    "probe": Scope.HEAD,
    "stability": Scope.MODEL,
    "verify": Scope.MODEL,
    "kernel": Scope.MODEL,
    "gate": Scope.HEAD,
    "reproduce": Scope.MODEL,
}
"""As the commands themselves print; layers for the others."""


def convert(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT.json", help="A result that was written by -o json.")
    ],
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT[:PATH]|PATH",
            help="A format that the command knows whose result this is: table, json, csv, parquet, "
            "markdown, html, and for a gate junit, sarif or github; repeatable. Without it the "
            "table.",
        ),
    ] = None,
    by: Annotated[
        Scope | None,
        typer.Option(help="Finest scope in a table or in markdown.", rich_help_panel=SHOWN),
    ] = None,
    all_rows: AllRows = False,
    layer: OneLayer = None,
    head: OneHead = None,
    quiet: Quiet = False,
) -> None:
    """Write a saved result in another format; nothing is measured again."""
    from pjdiag.render.files import same_file
    from pjdiag.render.output import emit, parse_specs
    from pjdiag.render.text import visible
    from pjdiag.results import Result

    saved = Result.read(result)
    specs = parse_specs(output or [], checks=saved.diagnostic == "gate")
    if any(spec.path is not None and same_file(spec.path, str(result)) for spec in specs):
        raise UsageError(
            f"{visible(str(result))} is the result itself; it is not overwritten",
            "choose another path",
        )
    finest = _printed(saved) if head is None else Scope.HEAD
    with named([result]):
        emit(
            saved.restricted(layer, head),
            specs,
            by=by or finest,
            all_rows=all_rows,
            stdout=sys.stdout,
            stderr=sys.stderr,
            quiet=quiet,
        )


def _printed(saved: "Result") -> Scope:
    """The finest scope in the table of the command whose result this is."""
    measured = saved.provenance.get("scope")
    if measured in tuple(Scope):
        return Scope(measured)
    orders = {str(row.get("removed")).partition(":")[2] for row in saved.rows}
    if saved.diagnostic == "loo" and len(orders) == 1:  # as with --order
        return Scope.LAYER
    return FINEST.get(saved.diagnostic, Scope.LAYER)
