"""pjdiag gate."""

import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

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
STARTER = Path("pjdiag-gate.toml")
SUMMARY = "GITHUB_STEP_SUMMARY"


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
            help="table, json, csv, parquet, markdown, junit, sarif or github; repeatable. A bare "
            "FORMAT goes to stdout and replaces the table.",
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
        _write_starter(common, checkpoint, policy or STARTER)
        return
    if policy is None:
        policy = policy_file(Path.cwd())
    _refuse_own_files(specs, policy, baseline, write_baseline)
    try:
        result = _checked(common, checkpoint, policy, require or [], baseline, tolerance)
    except PjdiagError as error:
        _tell_files(common, specs, error)
        raise
    _finish(common, specs, result, write_baseline, exit_zero=exit_zero)


def _checked(
    common: Common,
    checkpoint: Path,
    policy: Path | None,
    require: list[str],
    baseline: Path | None,
    tolerance: str,
) -> "Result":
    from datetime import UTC, datetime

    from pjdiag.gate.baseline import parse_tolerance, read_baseline
    from pjdiag.gate.running import run as check

    stated = _policy(policy, require)
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
            allow_pickle=common.allow_pickle,
            progress=progress,
        )
    result = result.restricted(common.layer, common.head)
    return replace(result, provenance={**result.provenance, "command": command_line()})


def _policy(path: Path | None, require: list[str]) -> "Policy":
    from pjdiag.gate.policy import Policy
    from pjdiag.gate.policy_file import load_policy, required, with_rules

    if path is None and not require:
        raise PolicyError(
            "there is no policy",
            "write one with `pjdiag gate CHECKPOINT --init`, and pass it with --policy",
        )
    return with_rules(Policy() if path is None else load_policy(path), required(require))


def _read(common: Common, checkpoint: Path) -> "Reading":
    from pjdiag import api

    return api.read(
        checkpoint,
        allow_pickle=common.allow_pickle,
        merge_base=common.base,
        train_length=common.train_length,
        strict=common.strict,
    )


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
            _write_baseline(result, write_baseline, quiet=common.quiet)
        _summarise(specs, result)
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


def _write_baseline(result: "Result", path: Path, *, quiet: bool) -> None:
    from pjdiag.gate.baseline import to_json
    from pjdiag.render.files import write_file
    from pjdiag.render.text import visible

    write_file(str(path), to_json(result).encode())
    if not quiet:
        print(f"wrote {visible(str(path))}", file=sys.stderr)  # noqa: T201


def _summarise(specs: "list[OutputSpec]", result: "Result") -> None:
    """The page of GitHub's run, where the annotations are asked for."""
    path = os.environ.get(SUMMARY)
    if not path or all(spec.format != "github" for spec in specs):
        return
    from pjdiag.render.markdown import to_markdown

    try:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(f"{to_markdown(result, by=Scope.HEAD, all_rows=False)}\n")
    except OSError as error:
        raise OutputError(f"cannot write to {SUMMARY}: {error.strerror or error}") from error


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
        _summarise(specs, result)
        _emit(replace(common, quiet=True), told, result, sys.stdout if on_stdout else io.StringIO())
    except PjdiagError:
        return  # the first error is the one to report


def _refuse_own_files(specs: "list[OutputSpec]", *inputs: Path | None) -> None:
    """An output may not take the place of what the gate reads, nor of the new baseline."""
    from pjdiag.render.files import same_file
    from pjdiag.render.text import visible

    for spec in specs:
        for path in inputs:
            if spec.path is not None and path is not None and same_file(spec.path, str(path)):
                raise UsageError(
                    f"{visible(spec.path)} is both an output and a file of the gate",
                    "choose another path",
                )


def _write_starter(common: Common, checkpoint: Path, path: Path) -> None:
    from datetime import UTC, datetime

    from pjdiag.gate.starter import starter
    from pjdiag.render.files import write_file
    from pjdiag.render.text import shell_word, visible

    if path.exists():
        raise UsageError(f"{visible(str(path))} is there already", "pass --policy NEW_FILE")
    text = starter(_read(common, checkpoint), datetime.now(UTC).date())
    write_file(str(path), text.encode("utf-8", "backslashreplace"))
    print(f"Wrote {visible(str(path))}: {text.count('[[rule]]') - 2} rules.")  # noqa: T201
    words = [shell_word(str(checkpoint)), "--policy", shell_word(str(path))]
    print(f"Next: pjdiag gate {' '.join(words)}")  # noqa: T201
