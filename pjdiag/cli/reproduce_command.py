"""pjdiag reproduce."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import AllRows, Outputs, Quiet
from pjdiag.cli.running import TOLD, command_line
from pjdiag.errors import EXIT_INCONCLUSIVE, MissingDependencyError, pip_install
from pjdiag.lab.experiments.registry import ALL, available, require_known
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path("runs/reproduce")


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"An experiment: {', '.join(available())}; or {ALL}, one after another.",
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Fewer steps and seeds: it shows in minutes that everything runs, and is no "
            "evidence.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the texts that some experiments train on."),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where finished parts and trained models are kept."),
    ] = FOLDER,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Processes that train at once, one thread each; by default one for each core.",
            min=1,
        ),
    ] = None,
    output: Outputs = None,
    all_rows: AllRows = False,
    quiet: Quiet = False,
) -> None:
    """Try a claim of the papers on this machine: train, measure, compare with what they say.

    The same command goes on where an interrupted one stopped.
    """
    from importlib.util import find_spec

    require_known(name, (*available(), ALL))
    if find_spec("torch") is None:
        raise MissingDependencyError("the experiments need torch", pip_install("torch"))
    from pjdiag.lab.experiments.base import Setting
    from pjdiag.lab.experiments.running import reproduce as run
    from pjdiag.render.output import emit, parse_specs

    specs = parse_specs(output or [])
    names = available() if name == ALL else (name,)
    setting = Setting(
        folder=folder,
        data=data,
        quick=quick,
        workers=workers or os.cpu_count() or 1,
        report=_reporter(quiet),
    )
    try:
        result = run(names, setting)
    except KeyboardInterrupt:
        if not quiet:
            typer.echo("Stopped. The same command goes on from here.", err=True)
            TOLD.set(True)
        raise
    emit(
        replace(result, provenance={**result.provenance, "command": command_line()}),
        specs,
        by=Scope.MODEL,
        all_rows=all_rows,
        stdout=sys.stdout,
        stderr=sys.stderr,
        quiet=quiet,
    )
    if len(result.provenance["experiments"]) < len(names):
        raise typer.Exit(EXIT_INCONCLUSIVE)


def _reporter(quiet: bool) -> "Callable[[str], None]":
    def report(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    return report
