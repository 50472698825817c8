"""pjdiag report."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pjdiag.cli.announcing import announce
from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.resuming import Resume, resumable
from pjdiag.cli.running import checkpoint_or_sample, command_line
from pjdiag.errors import EXIT_INCONCLUSIVE, OutputError, UsageError

DEFAULT_OUTPUT = "report.html"
SUFFIXES = (".html", ".htm")
MEASURED_FIRST = "a page of fewer --length takes less"
"""Said where nothing at all was measured before the run was stopped."""


@partial(with_common, without=("by", "all_rows", "layer", "head"))
def report(
    common: Common,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The page to write, ending in .html; by default report.html in this folder, "
            "which is then never overwritten.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A text: adds the loss, the measured kernel, and what the model loses without a "
            "part; the last takes at most about 2 minutes.",
        ),
    ] = None,
    length: Lengths = None,
    decision: Annotated[
        bool, typer.Option(help="Also train the probe's decision: hard against random pairs.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of whatever is random.", min=0)] = 0,
    resume: Resume = False,
) -> None:
    """Everything that applies to a checkpoint, as one page that works offline.

    --length is for energy and stability; loo takes the first two, probe the longest. Without it
    they are the training length, multiples of it and, for up to 64 heads, 32,768.
    """
    from pjdiag import api, report_api
    from pjdiag.diagnostics.survey import require_text
    from pjdiag.render.files import write_file
    from pjdiag.render.html.page import report_page
    from pjdiag.render.html.shell import require_plotly
    from pjdiag.render.text import visible

    path = _target(output)
    require_text(data)  # before a package: installing one would not help
    require_plotly()
    lengths = None if length is None else parse_lengths(length)
    source = checkpoint_or_sample(common.checkpoint, quiet=common.quiet)
    reading = api.read(
        source,
        allow_pickle=common.allow_pickle,
        merge_base=common.base,
        train_length=common.train_length,
        strict=common.strict,
        min_coverage=common.min_coverage,
    )
    _refuse_inputs(path, [*reading.checkpoint.files, *([data] if data is not None else [])])
    with resumable(common, "report", resume, MEASURED_FIRST, path) as ledger:
        with progress_bar("measuring", quiet=common.quiet) as progress:
            report = report_api.surveyed(
                reading,
                data,
                lengths,
                decision=decision,
                seed=seed,
                command=command_line().replace(" --resume", ""),  # the page is the same
                allow_pickle=common.allow_pickle,
                progress=progress,
                announce=partial(announce, quiet=common.quiet),
                ledger=ledger,
            )
        write_file(path, report_page(report).encode("utf-8", "backslashreplace"))
        if not common.quiet:
            print(f"wrote {visible(path)}", file=sys.stderr)  # noqa: T201
        if report.survey.bad_values:
            raise typer.Exit(EXIT_INCONCLUSIVE)


def _target(output: str | None) -> str:
    """The path to write. Raises before anything is measured where it cannot be meant."""
    if output is None:
        if Path(DEFAULT_OUTPUT).exists():
            raise OutputError(
                f"{DEFAULT_OUTPUT} exists, and no other path was given",
                f"pass -o {DEFAULT_OUTPUT} to replace it, or another path",
            )
        return DEFAULT_OUTPUT
    if not output.lower().endswith(SUFFIXES):
        raise UsageError(
            f"{ascii(output)[1:-1]} does not end in .html; a report is an HTML page",
            "for example -o report.html",
        )
    return output


def _refuse_inputs(path: str, inputs: list[Path]) -> None:
    from pjdiag.render.files import same_file

    if any(same_file(path, str(each)) for each in inputs):
        raise OutputError(
            f"{ascii(path)[1:-1]} is what the report reads; it is not overwritten",
            "choose another path",
        )
