"""pjdiag spectrum."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import Common, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import run
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def spectrum(
    common: Common,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also the norms of queries and keys on this text, or .npy file of token ids [N] "
            "or [N, T], -1 for padding. Runs the model.",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="T",
            help="Length in tokens for length-dependent frequencies; with --data, tokens of a "
            "window, by default the training length, at most 2,048.",
            min=1,
        ),
    ] = None,
    windows: Annotated[
        int, typer.Option(metavar="N", help="With --data: at most so many windows.", min=1)
    ] = 2,
) -> None:
    """Which wavelengths the rotary channels use, by their query-key mass."""

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        if data is None:
            return api.spectrum(reading)
        with progress_bar("reading windows", quiet=common.quiet) as progress:
            return api.spectrum(
                reading,
                data,
                length,
                windows=windows,
                allow_pickle=common.allow_pickle,
                progress=progress,
            )

    run(common, diagnose, by=Scope.LAYER, eval_length=length)
