"""pjdiag compare."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pjdiag.cli.damage import named
from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import command_line
from pjdiag.errors import EXIT_INCONCLUSIVE
from pjdiag.terms import Scope, Sector


@with_common
def compare(
    common: Common,
    checkpoint: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B [C...]",
            help="Checkpoints, or results that were saved with -o json. Each is compared with A; "
            "three or more whose steps are known (step-1200, checkpoint-1200) are put in order. "
            "The shipped sample is never taken.",
        ),
    ],
    diagnostic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="mass, energy, spectrum, loo, probe, stability or inspect; repeatable. By "
            "default mass, or that of the saved results; inspect where no mass is shared.",
        ),
    ] = None,
    length: Lengths = None,
    sector: Annotated[Sector | None, typer.Option(help="Only this sector.")] = None,
) -> None:
    """What differs between checkpoints, or changed over a training run.

    Different architectures are compared at the level they share.
    """
    from pjdiag.comparison.comparing import compare as measure
    from pjdiag.render.output import emit, parse_specs

    specs = parse_specs(common.output or [])
    saved = [path for path in checkpoint if path.suffix == ".json"]
    with named(saved):
        with progress_bar("measuring", quiet=common.quiet) as progress:
            result = measure(
                *checkpoint,
                diagnostics=diagnostic,
                lengths=None if length is None else parse_lengths(length),
                allow_pickle=common.allow_pickle,
                merge_base=common.base,
                train_length=common.train_length,
                strict=common.strict,
                min_coverage=common.min_coverage,
                progress=progress,
            )
        result = result.restricted(common.layer, common.head, sector)
        emit(
            replace(result, provenance={**result.provenance, "command": command_line()}),
            specs,
            by=common.by or (Scope.LAYER if common.head is None else Scope.HEAD),
            all_rows=common.all_rows,
            stdout=sys.stdout,
            stderr=sys.stderr,
            quiet=common.quiet,
        )
    if result.inconclusive:
        raise typer.Exit(EXIT_INCONCLUSIVE)
