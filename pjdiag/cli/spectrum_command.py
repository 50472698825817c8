"""pjdiag spectrum."""

from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import Common, with_common
from pjdiag.cli.running import run
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def spectrum(
    common: Common,
    length: Annotated[
        int | None,
        typer.Option(metavar="T", help="Length in tokens for length-dependent frequencies."),
    ] = None,
) -> None:
    """Which wavelengths the rotary channels use, by their query-key mass."""

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        return api.spectrum(reading)

    run(common, diagnose, by=Scope.LAYER, eval_length=length)
