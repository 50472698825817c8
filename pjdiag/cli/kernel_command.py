"""pjdiag kernel."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.announcing import announce
from pjdiag.cli.options import Common, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.resuming import Resume, resumable
from pjdiag.cli.running import run
from pjdiag.errors import UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.results import Result


@with_common
def kernel(
    common: Common,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text to read, or a .npy file of token ids [N] or [N, T], -1 for padding. May be "
            "omitted only where the checkpoint is the shipped sample by default.",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="T",
            help="Tokens of a window; by default the training length, at most 2,048.",
            min=1,
        ),
    ] = None,
    windows: Annotated[int, typer.Option(metavar="N", help="At most so many windows.", min=1)] = 2,
    skip_first: Annotated[
        int,
        typer.Option(
            "--skip-first",
            metavar="N",
            help="Positions at the beginning that are left out as queries and as keys.",
            min=0,
        ),
    ] = 4,
    controls: Annotated[
        bool,
        typer.Option(
            help="Also measure shuffled tokens and a freshly initialised model of the same shape."
        ),
    ] = True,
    causal: Annotated[
        bool | None,
        typer.Option(
            "--causal/--no-causal",
            help="Refuse attention that is not causal, or measure both sides of it; by default "
            "refused where the checkpoint says that it is causal.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of both controls.", min=0, max=2**63 - 1)] = 0,
    resume: Resume = False,
) -> None:
    """What does each attention head really do with the lag, on data?

    The lag effect of the logits by least squares, whatever mechanism makes it; its shape, and the
    sectors it could be made of.
    """
    text = _data(common, data)
    shorter = "--no-controls takes a third of it" if controls else ""

    def diagnose(reading: "Reading", ledger: "Ledger") -> "Result":
        from pjdiag import api

        with progress_bar("reading windows", quiet=common.quiet) as progress:
            return api.kernel(
                reading,
                text,
                length,
                windows=windows,
                skip_first=skip_first,
                controls=controls,
                causal=causal,
                seed=seed,
                allow_pickle=common.allow_pickle,
                progress=progress,
                announce=lambda estimate: announce(estimate, quiet=common.quiet, hint=shorter),
                ledger=ledger,
            )

    with resumable(common, "kernel", resume, "fewer --windows make the parts small") as ledger:
        run(common, lambda reading: diagnose(reading, ledger), by=Scope.MODEL)


def _data(common: Common, data: Path | None) -> Path:
    if data is not None:
        return data
    if common.checkpoint is not None:
        raise UsageError("kernel needs a text to read", "pass --data FILE")
    from pjdiag.samples import DEFAULT_SAMPLE, held_out_text

    if not common.quiet:
        print(  # noqa: T201
            f"No data given: reading the held-out excerpt of {DEFAULT_SAMPLE}.", file=sys.stderr
        )
    return held_out_text()
