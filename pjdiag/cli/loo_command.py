"""pjdiag loo."""

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
def loo(
    common: Common,
    order: Annotated[
        int | None, typer.Option(help="Jet order to remove. Without it, everything is tested.")
    ] = None,
    length: Lengths = None,
) -> None:
    """Leave one order or sector out of the kernel: does the attention prior notice?

    Without --length, over the training length.
    """
    lengths = None if length is None else parse_lengths(length)

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("removing", quiet=common.quiet) as progress:
            return api.loo(reading, order=order, lengths=lengths, progress=progress)

    run(common, diagnose, by=Scope.LAYER if order is not None else Scope.MODEL)
