"""What every diagnostic command does around its diagnosis."""

import shlex
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pjdiag.cli.options import Common
from pjdiag.errors import EXIT_INCONCLUSIVE, EXIT_VIOLATED, UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.render.output import OutputSpec
    from pjdiag.results import Result

TYPED: ContextVar[tuple[str, ...]] = ContextVar("TYPED", default=())
"""The arguments of this run of the command line."""

TOLD: ContextVar[bool] = ContextVar("TOLD", default=False)
"""Whether this run has said itself that it was stopped, and what is kept."""


def run(
    common: Common,
    diagnose: "Callable[[Reading], Result]",
    *,
    by: Scope,
    eval_length: int | None = None,
    sector: str | None = None,
    violated: "Callable[[Result], bool] | None" = None,
    unmeasured: "Callable[[Result], bool] | None" = None,
) -> None:
    """Read the checkpoint, diagnose it, print and write the result, exit with its code.

    ``violated`` says whether the result as restricted breaks what the command checks,
    ``unmeasured`` whether it has nothing of the checkpoint although it has rows.
    """
    from pjdiag import api
    from pjdiag.render.output import parse_specs

    specs = parse_specs(common.output or [])
    reading = api.read(
        checkpoint_or_sample(common.checkpoint, quiet=common.quiet),
        allow_pickle=common.allow_pickle,
        merge_base=common.base,
        train_length=common.train_length,
        eval_length=eval_length,
        strict=common.strict,
        min_coverage=common.min_coverage,
    )
    result = diagnose(reading).restricted(common.layer, common.head, sector)
    _print(common, specs, result, Scope.HEAD if common.head is not None else by)
    if violated is not None and violated(result):
        raise typer.Exit(EXIT_VIOLATED)
    if result.inconclusive or (unmeasured is not None and unmeasured(result)):
        raise typer.Exit(EXIT_INCONCLUSIVE)


def print_variants(
    context: typer.Context, common: Common, measure: "Callable[[dict[str, Any]], Result]"
) -> None:
    """Print the named coordinates; ``measure`` takes the settings that were given.

    Raises UsageError for a checkpoint that was typed: none is read. One from the environment or
    the settings is there for other commands, and is left to them.
    """
    from pjdiag.render.output import parse_specs

    source = context.get_parameter_source("checkpoint")
    if common.checkpoint is not None and getattr(source, "name", "") == "COMMANDLINE":
        raise UsageError(
            f"--variants measures the named coordinates and takes no checkpoint; found "
            f"{str(common.checkpoint)!a}",
            "leave out the checkpoint, or --variants",
        )

    specs = parse_specs(common.output or [])
    given = {} if common.train_length is None else {"train_length": common.train_length}
    _print(common, specs, measure(given), Scope.MODEL)


def _print(common: Common, specs: "Sequence[OutputSpec]", result: "Result", by: Scope) -> None:
    from pjdiag.render.output import emit

    result = replace(result, provenance={**result.provenance, "command": command_line()})
    emit(
        result,
        specs,
        by=common.by or by,
        all_rows=common.all_rows,
        stdout=sys.stdout,
        stderr=sys.stderr,
        quiet=common.quiet,
    )


def checkpoint_or_sample(path: Path | None, *, quiet: bool) -> Path:
    """The checkpoint asked for, else the shipped sample, saying so on stderr."""
    if path is not None:
        return path
    from pjdiag.samples import DEFAULT_SAMPLE, sample

    if not quiet:
        print(  # noqa: T201
            f"No checkpoint given: reading the shipped sample {DEFAULT_SAMPLE}.", file=sys.stderr
        )
    return sample()


def command_line() -> str:
    """The command as it was typed, quoted for a shell."""
    return shlex.join(["pjdiag", *TYPED.get()])
