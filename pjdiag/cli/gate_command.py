"""pjdiag gate."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from pjdiag.cli.gate_files import (
    STARTER,
    refuse_own_files,
    summarise,
    write_baseline_file,
    write_starter,
)
from pjdiag.cli.options import NAMED_CHECKPOINT_HELP, SHOWN, Common, bracketed, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import command_line
from pjdiag.cli.settings import policy_file
from pjdiag.errors import EXIT_DONE, OutputError, PjdiagError, PolicyError, UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.gate.policy import Policy
    from pjdiag.render.output import OutputSpec
    from pjdiag.results import Result

ASKED, COMPARED = "What is asked", "What it is compared with"


@with_common
def gate(
    common: Common,
    checkpoint: Annotated[
        Path | None,
        typer.Argument(
            metavar="CHECKPOINT",
            envvar="PJDIAG_CHECKPOINT",
            help=f"{NAMED_CHECKPOINT_HELP}; never the shipped sample.",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The policy. When omitted: the table 'gate' of pjdiag.toml or 'tool.pjdiag.gate' "
            "of pyproject.toml.",
            rich_help_panel=ASKED,
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPR",
            help=bracketed(
                "One more rule, such as 'mass.sector_share[affine] >= 0.5'; repeatable."
            ),
            rich_help_panel=ASKED,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A text, or a .npy file of token ids, that figures on data (kernel, nll) are "
            "measured on; goes before the policy's.",
            rich_help_panel=ASKED,
        ),
    ] = None,
    init: Annotated[
        bool,
        typer.Option(
            "--init",
            help="Write a commented policy that this checkpoint fulfils to --policy, by default "
            f"{STARTER}; an existing file is kept.",
            rich_help_panel=ASKED,
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Figures of an earlier checkpoint: drift from them is a violation, what was "
            "violated before is not.",
            rich_help_panel=COMPARED,
        ),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="X|P%",
            help="Drift that is allowed: absolute, or a part of the baseline's figure.",
            rich_help_panel=COMPARED,
        ),
    ] = "1%",
    write_baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the figures of this checkpoint as a baseline.",
            rich_help_panel=COMPARED,
        ),
    ] = None,
    exit_zero: Annotated[
        bool,
        typer.Option("--exit-zero", help="Exit with 0 instead of 1 where a rule is violated."),
    ] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT[:PATH]|PATH",
            help="table, json, csv, parquet, markdown, html, junit, sarif or github; repeatable. A "
            "bare FORMAT goes to stdout and replaces the table.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
) -> None:
    """Does a checkpoint keep to a policy? For continuous integration.

    Exits with 1 where a rule is violated, 3 where a figure that a rule needs is missing.
    """
    from pjdiag.render.output import parse_specs

    specs = parse_specs(output or [], checks=True)
    if checkpoint is None:
        raise UsageError(
            "gate needs a checkpoint; it never takes the shipped sample",
            "pass CHECKPOINT, set PJDIAG_CHECKPOINT, or set checkpoint in pjdiag.toml",
        )
    if init:
        reading = _read(common, checkpoint)
        write_starter(reading, checkpoint, policy or STARTER, _reading_options(common))
        return
    if policy is None:
        policy = policy_file(Path.cwd())
    refuse_own_files(specs, policy, baseline, write_baseline)
    try:
        stated = _policy(policy, require or [], data)
        recording = write_baseline is not None
        result = _checked(common, checkpoint, stated, baseline, tolerance, recording=recording)
    except PjdiagError as error:
        _tell_files(common, specs, error)
        raise
    _finish(common, specs, result, write_baseline, exit_zero=exit_zero)


def _checked(
    common: Common,
    checkpoint: Path,
    stated: "Policy",
    baseline: Path | None,
    tolerance: str,
    *,
    recording: bool,
) -> "Result":
    from datetime import UTC, datetime

    from pjdiag.gate.baseline import parse_tolerance, read_baseline
    from pjdiag.gate.running import run as check

    allowed = parse_tolerance(tolerance)
    before = None if baseline is None else read_baseline(baseline)
    reading = _read(common, checkpoint)
    with progress_bar("measuring", quiet=common.quiet) as progress:
        result = check(
            reading,
            stated,
            today=datetime.now(UTC).date(),
            baseline=before,
            tolerance=allowed,
            min_coverage=common.min_coverage,
            recording=recording,
            allow_pickle=common.allow_pickle,
            progress=progress,
        )
    result = result.restricted(common.layer, common.head)
    return replace(result, provenance={**result.provenance, "command": command_line()})


def _policy(path: Path | None, require: list[str], data: Path | None) -> "Policy":
    from pjdiag.gate.policy import Policy
    from pjdiag.gate.policy_file import load_policy, required, with_rules

    if path is None and not require:
        raise PolicyError(
            "there is no policy",
            f"pass --policy {STARTER}, which is here"
            if STARTER.is_file()
            else "write one with `pjdiag gate CHECKPOINT --init`, and pass it with --policy",
        )
    stated = with_rules(Policy() if path is None else load_policy(path), required(require))
    return stated if data is None else stated.on(data)


def _read(common: Common, checkpoint: Path) -> "Reading":
    from pjdiag import api

    return api.read(
        checkpoint,
        allow_pickle=common.allow_pickle,
        merge_base=common.base,
        train_length=common.train_length,
        strict=common.strict,
    )


def _reading_options(common: Common) -> list[str]:
    """What the checkpoint was read with, as it is typed."""
    from pjdiag.render.text import shell_word

    words = ["--allow-pickle"] if common.allow_pickle else []
    if common.base is not None:
        words += ["--base", shell_word(str(common.base))]
    if common.train_length is not None:
        words += ["--train-length", str(common.train_length)]
    return words + (["--strict"] if common.strict else [])


def _finish(
    common: Common,
    specs: "list[OutputSpec]",
    result: "Result",
    write_baseline: Path | None,
    *,
    exit_zero: bool,
) -> None:
    """Write everything that was asked for, then exit with the gate's code."""
    from pjdiag.gate.verdict import exit_code

    failure: OutputError | None = None
    try:
        if write_baseline is not None:
            write_baseline_file(result, write_baseline, quiet=common.quiet)
        summarise(specs, result)
    except OutputError as error:  # the other outputs are written all the same
        failure = error
    _emit(common, specs, result, sys.stdout)
    if failure is not None:
        raise failure
    code = exit_code(result, exit_zero=exit_zero)
    if code != EXIT_DONE:
        raise typer.Exit(code)


def _emit(common: Common, specs: "list[OutputSpec]", result: "Result", stdout: TextIO) -> None:
    from pjdiag.render.output import emit

    emit(
        result,
        specs,
        by=common.by or Scope.HEAD,
        all_rows=common.all_rows,
        stdout=stdout,
        stderr=sys.stderr,
        quiet=common.quiet,
    )


def _tell_files(common: Common, specs: "list[OutputSpec]", error: PjdiagError) -> None:
    """The error for those who read only files or annotations; the caller still raises it."""
    from pjdiag.gate.verdict import failed

    told = [spec for spec in specs if spec.path is not None or spec.format == "github"]
    if not told:
        return
    provenance: dict[str, Any] = {"tool": "pjdiag", "command": command_line()}
    result = failed(error, {"path": str(common.checkpoint)}, provenance)
    on_stdout = any(spec.path is None for spec in told)
    try:
        summarise(specs, result)
        _emit(replace(common, quiet=True), told, result, sys.stdout if on_stdout else io.StringIO())
    except PjdiagError:
        return  # the first error is the one to report
