"""pjdiag probe."""

from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import run
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def probe(
    common: Common,
    length: Lengths = None,
    precision: Annotated[
        str, typer.Option(metavar="P[,P...]", help="fp32, fp64, int8, int4; separated by commas.")
    ] = "fp32,int8,int4",
    with_affine: Annotated[
        bool, typer.Option("--with-affine", help="Append the affine component to each code.")
    ] = False,
) -> None:
    """Can the checkpoint's own position codes tell every lag from every other?

    Without --length, at 32,768 tokens.
    """
    lengths = None if length is None else parse_lengths(length)
    precisions = [part.strip() for part in precision.split(",")]

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("probing", quiet=common.quiet) as progress:
            return api.probe(
                reading, lengths, precisions=precisions, with_affine=with_affine, progress=progress
            )

    run(common, diagnose, by=Scope.HEAD)
