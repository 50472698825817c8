"""What a stopped command leaves behind, and how the next one goes on from it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pjdiag.cli.options import Common
from pjdiag.cli.running import TOLD
from pjdiag.errors import EXIT_INTERRUPTED, EXIT_TERMINATED

if TYPE_CHECKING:
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.results import Result

Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on from what an interrupted run of this command has left, if there is anything.",
    ),
]


@contextmanager
def resumable(
    common: Common,
    diagnostic: str,
    resume: bool,
    smaller: str = "--batch 1 makes the parts small",
    beside: str | None = None,
) -> "Iterator[Ledger]":
    """A ledger for a long run; where SIGINT or SIGTERM ends it, its partial result is written.

    The file lies beside the first file that ``-o`` names: ``PATH`` without its suffix and
    ``.partial.json``; without one it is ``pjdiag-DIAGNOSTIC.partial.json`` in the working folder.
    With ``resume`` the run goes on from there, and the file is removed once the run is done.
    ``smaller`` is what to do where the first part was too long to keep anything. ``beside`` is
    the file to write, of a command whose ``-o`` names one only. Raises MissingDependencyError,
    before anything is measured, where a package is not there that an output needs.
    """
    from pjdiag.diagnostics.ledger import Interrupted
    from pjdiag.render.output import parse_specs, require_writers

    if beside is None:
        require_writers(parse_specs(common.output or []))
    path = _partial_path(common, diagnostic, beside)
    ledger = _earlier(path, resume, quiet=common.quiet)
    with _terminable() as stopped_by:
        try:
            yield ledger
        except Interrupted as stopped:
            _keep(path, stopped.result, smaller)
            raise typer.Exit(_code(stopped_by)) from stopped
        except KeyboardInterrupt as stopped:
            _keep_bare(path, diagnostic, ledger, smaller)
            raise typer.Exit(_code(stopped_by)) from stopped
        except typer.Exit:
            _clear(path, resume)
            raise
    _clear(path, resume)


def _code(stopped_by: list[int]) -> int:
    """The exit code of a run that has said what it leaves behind."""
    TOLD.set(True)
    return stopped_by[0] if stopped_by else EXIT_INTERRUPTED


def _clear(path: Path, resume: bool) -> None:
    if resume:
        path.unlink(missing_ok=True)


def _partial_path(common: Common, diagnostic: str, beside: str | None) -> Path:
    from pjdiag.render.output import parse_specs

    if beside is not None:
        return Path(beside).with_suffix(".partial.json")
    named = [spec.path for spec in parse_specs(common.output or []) if spec.path is not None]
    return Path(named[0] if named else f"pjdiag-{diagnostic}").with_suffix(".partial.json")


def _earlier(path: Path, resume: bool, *, quiet: bool) -> "Ledger":
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.render.text import visible
    from pjdiag.results import Result

    if not resume:
        return Ledger()
    if not path.exists():
        if not quiet:
            _say(f"There is no {visible(str(path))} to go on from: starting from the beginning.")
        return Ledger()
    return Ledger(Result.read(path), None if quiet else _say_where)


def _say_where(finished: int, parts: int) -> None:
    _say(f"going on from {finished} of {parts} parts")


def _keep_bare(path: Path, diagnostic: str, ledger: "Ledger", smaller: str) -> None:
    """What there is where the run was stopped before or after its parts."""
    from pjdiag.diagnostics.ledger import CARRIER
    from pjdiag.results import Result
    from pjdiag.terms import DIAGNOSTICS

    if ledger.figures:
        carrier = diagnostic if diagnostic in DIAGNOSTICS else CARRIER
        _keep(path, ledger.partial(Result(carrier, {}, {}, ())), smaller)
    else:
        _say("nothing was measured yet, and nothing is kept")


def _keep(path: Path, result: "Result", smaller: str) -> None:
    from pjdiag.render.files import write_file
    from pjdiag.render.text import visible

    partial = result.provenance["partial"]
    if not partial["finished"]:
        _say(
            f"stopped in the first of {partial['parts']} parts, and nothing is kept. Next: "
            f"{smaller}"
        )
        return
    write_file(str(path), result.to_json().encode())
    inner = "".join(
        f", and of {name} {within['finished']} of {within['parts']}"
        for name, kept in partial.get("unfinished", {}).items()
        for within in [kept["provenance"]["partial"]]
    )
    _say(
        f"{partial['finished']} of {partial['parts']} parts are finished and kept in "
        f"{visible(str(path))}{inner}. Next: the same command with --resume goes on from there"
    )


@contextmanager
def _terminable() -> Iterator[list[int]]:
    """SIGINT or SIGTERM ends the block; gives the exit code in a list of one.

    Only the first one counts: what it leaves behind is written undisturbed.
    """
    import signal  # whoever reads no model waits for nobody's signal

    code: list[int] = []

    def stop(number: int, _: Any) -> None:
        if code:
            return
        code.append(EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED)
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # a job in the background, say
            # elsewhere than in the main thread, whoever runs that owns the signals
            with suppress(ValueError):
                before[number] = signal.signal(number, stop)
    try:
        yield code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    print(f"pjdiag: {text}", file=sys.stderr)  # noqa: T201
