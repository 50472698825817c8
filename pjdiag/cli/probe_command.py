"""pjdiag probe."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pjdiag.cli.options import Common, Lengths, Variants, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import print_table, run
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
    decision: Annotated[
        bool,
        typer.Option(
            help="Train a small classifier to tell lags apart and ask it about hard negatives; "
            "needs torch."
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option(help="Seed of the trained decision.", min=0, max=2**63 - 1)
    ] = 0,
    variants: Variants = False,
) -> None:
    """Can the checkpoint's own position codes tell every lag from every other?

    Without --length, at 32,768 tokens.
    """
    lengths = None if length is None else parse_lengths(length)
    precisions = [part.strip() for part in precision.split(",")]
    if variants:
        _print_variants(common, lengths, precisions, decision, seed)
        return

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("probing", quiet=common.quiet) as progress:
            return api.probe(
                reading,
                lengths,
                precisions=precisions,
                with_affine=with_affine,
                decision=decision,
                seed=seed,
                progress=progress,
            )

    run(common, diagnose, by=Scope.HEAD)


def _print_variants(
    common: Common, lengths: list[int] | None, precisions: list[str], decision: bool, seed: int
) -> None:
    def measure(settings: dict[str, Any]) -> "Result":
        from pjdiag.diagnostics.retrieval import probe_variants

        with progress_bar("probing", quiet=common.quiet) as progress:
            return probe_variants(
                lengths,
                precisions=precisions,
                decision=decision,
                seed=seed,
                progress=progress,
                **settings,
            )

    print_table(common, measure)
