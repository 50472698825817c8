"""pjdiag mass."""

from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import Common, with_common
from pjdiag.cli.running import run
from pjdiag.terms import Scope, Sector

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def mass(
    common: Common,
    sector: Annotated[Sector | None, typer.Option(help="Only this sector.")] = None,
    length: Annotated[
        int | None,
        typer.Option(metavar="T", help="Length in tokens for length-dependent frequencies."),
    ] = None,
) -> None:
    """Effective mass: how much of each sector and jet order the parameters use."""

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        return api.mass(reading)

    run(common, diagnose, by=Scope.LAYER, eval_length=length, sector=sector)
