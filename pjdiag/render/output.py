"""Where a result goes: `-o FORMAT`, `-o FORMAT:PATH`, or `-o PATH` with a known suffix."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TextIO

from pjdiag.errors import MissingDependencyError, OutputError, UsageError, pip_install
from pjdiag.render.console import UNLIMITED, Target, page_text, render_console
from pjdiag.render.files import same_file, write_file
from pjdiag.render.page import page, skipped_lines
from pjdiag.render.text import visible
from pjdiag.results import Result
from pjdiag.terms import Scope


class Format(StrEnum):
    """The formats a result can be written in."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "markdown"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


OF_CHECKS = (Format.JUNIT, Format.SARIF, Format.GITHUB)
"""Formats that know checks only, which a gate makes."""
SUFFIXES = {
    ".txt": Format.TABLE,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xml": Format.JUNIT,
    ".sarif": Format.SARIF,
}
STDOUT = "-"


@dataclass(frozen=True)
class OutputSpec:
    """One output asked for."""

    format: Format
    path: str | None
    """None for stdout."""


def parse_specs(specs: Sequence[str], *, checks: bool = False) -> list[OutputSpec]:
    """What each ``-o`` asks for; the path ``-`` is stdout.

    ``checks`` says that the result is that of a gate. Raises UsageError for an unknown format,
    one that needs a gate, two outputs to stdout or to the same file, and Parquet to stdout.

    >>> parse_specs(["json", "csv:a.csv", "b.md"])[2]
    OutputSpec(format=<Format.MARKDOWN: 'markdown'>, path='b.md')
    """
    parsed = [_parse(spec, checks) for spec in specs]
    for spec in parsed:
        _require_checks(spec.format, checks)
    if sum(spec.path is None for spec in parsed) > 1:
        raise UsageError(
            "two outputs go to stdout; expected at most one", "give the others a path: -o json:PATH"
        )
    paths = [spec.path for spec in parsed if spec.path is not None]
    for index, path in enumerate(paths):
        if any(same_file(path, other) for other in paths[:index]):
            raise UsageError(
                f"two outputs go to the same file, {visible(path)}", "give each a path of its own"
            )
    return parsed


def require_writers(specs: Sequence[OutputSpec]) -> None:
    """Raises MissingDependencyError where a package is not installed that ``specs`` need.

    For long runs, to be told before; imports none of them. HTML needs plotly for its figures.
    """
    from importlib.util import find_spec

    formats = {spec.format for spec in specs}
    if Format.HTML in formats:
        from pjdiag.render.html.shell import require_plotly

        require_plotly()
    for name in ("pyarrow", "pandas") if Format.PARQUET in formats else ():
        if find_spec(name) is None:
            raise MissingDependencyError(
                f"Parquet needs {name}, which is not installed", pip_install(name)
            )


def emit(
    result: Result,
    specs: Sequence[OutputSpec],
    *,
    by: Scope,
    all_rows: bool,
    stdout: TextIO,
    stderr: TextIO,
    quiet: bool,
) -> None:
    """Write ``result`` to every output; the table goes to stdout unless another output does.

    Files come first, so that a reader that closes the pipe loses none; a file that cannot be
    written does not cost the result on stdout. ``stderr`` says what was written and, where no
    table shows it, what was skipped; ``quiet`` silences that. Raises
    OutputError or MissingDependencyError; BrokenPipeError of ``stdout`` passes through.
    """
    failures: list[OutputError | MissingDependencyError] = []
    for spec in specs:
        if spec.path is not None:
            try:
                _refuse_checkpoint(result, spec.path)
                write_file(spec.path, _bytes(result, spec.format, by, all_rows))
            except (OutputError, MissingDependencyError) as error:
                failures.append(error)
            else:
                if not quiet:
                    stderr.write(_writable(f"wrote {visible(spec.path)}\n", stderr))
    chosen = next((spec.format for spec in specs if spec.path is None), Format.TABLE)
    try:
        _to_stdout(result, chosen, by, all_rows, stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error
    if not quiet and chosen not in (Format.TABLE, Format.MARKDOWN):
        _tell(result, all_rows, stderr)
    if failures:
        raise failures[0]


def to_parquet(result: Result) -> bytes:
    """The rows as Parquet; everything else of the result as JSON in its metadata key ``pjdiag``.

    Raises MissingDependencyError without pandas or pyarrow.
    """
    try:
        import pyarrow  # type: ignore[import-untyped]  # only who asks for Parquet pays for it
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet needs pyarrow, which is not installed",
            pip_install("pyarrow"),
        ) from error
    kinds = {"count": "Int64", "flag": "boolean", "text": "string", "list": "object"}
    types = {column.name: kinds.get(column.kind, "float64") for column in result.columns}
    table = pyarrow.Table.from_pandas(result.frame.astype(types), preserve_index=False)
    rest = {name: value for name, value in result.to_dict().items() if name != "rows"}
    metadata = {**(table.schema.metadata or {}), b"pjdiag": json.dumps(rest).encode()}
    stream = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(metadata), stream)
    return stream.getvalue()


def _parse(spec: str, checks: bool) -> OutputSpec:
    name, colon, path = spec.partition(":")
    if name in tuple(Format):
        if colon and not path:
            raise UsageError(f"-o {visible(spec)} names no file", f"pass -o {name}:PATH")
        target = None if path in ("", STDOUT) else path
        if name == Format.PARQUET and target is None:
            raise UsageError("Parquet is binary and needs a file", "pass -o parquet:PATH")
        return OutputSpec(Format(name), target)
    suffix = os.path.splitext(spec)[1].lower()  # noqa: PTH122
    if suffix in SUFFIXES:
        return OutputSpec(SUFFIXES[suffix], spec)
    from pjdiag.checkpoint.text import near  # only an error pays

    what = f"suffix {suffix!r}" if suffix else f"format {name!r}"
    taken = [each for each in Format if checks or each not in OF_CHECKS]
    endings = [ending for ending, meant in SUFFIXES.items() if meant in taken]
    close = [] if suffix else near(name.lower(), taken)
    hint = f"-o FORMAT, -o FORMAT:PATH, or a path that ends in {', '.join(endings)}"
    raise UsageError(
        f"unknown output {visible(what)}; known formats: {', '.join(taken)}",
        f"pass -o {close[0]}; or {hint}" if close else f"pass {hint}",
    )


def _require_checks(wanted: Format, checks: bool) -> None:
    if wanted in OF_CHECKS and not checks:
        others = ", ".join(each for each in Format if each not in OF_CHECKS)
        raise UsageError(
            f"{wanted} is a format for checks; expected {others}", "run `pjdiag gate` for it"
        )


def _bytes(result: Result, wanted: Format, by: Scope, all_rows: bool) -> bytes:
    if wanted == Format.PARQUET:
        return to_parquet(result)
    return _text(result, wanted, by, all_rows).encode("utf-8", "backslashreplace")


def _text(result: Result, wanted: Format, by: Scope, all_rows: bool) -> str:
    if wanted == Format.JSON:
        return result.to_json()
    if wanted == Format.CSV:
        return "\n".join(visible(line) for line in result.to_csv().split("\n"))
    if wanted == Format.MARKDOWN:
        from pjdiag.render.markdown import to_markdown  # the table, the usual case, needs none

        return to_markdown(result, by=by, all_rows=all_rows)
    if wanted == Format.HTML:
        written: str = import_module("pjdiag.render.html.single").result_page(result, by, all_rows)
        return written
    if wanted in OF_CHECKS:
        _require_checks(wanted, result.diagnostic == "gate")
        module = import_module(f"pjdiag.render.{wanted}")  # a diagnosis needs none of them
        text: str = getattr(module, f"to_{wanted}")(result)
        return text
    return page_text(page(result, by, all_rows), Target(UNLIMITED, color=False, encoding="utf-8"))


def _to_stdout(result: Result, wanted: Format, by: Scope, all_rows: bool, stdout: TextIO) -> None:
    if wanted == Format.TABLE:
        render_console(result, stdout, by=by, all_rows=all_rows)
        return
    stdout.write(_writable(_text(result, wanted, by, all_rows), stdout))
    stdout.flush()


def _tell(result: Result, all_rows: bool, stderr: TextIO) -> None:
    lines = [f"warning: {warning}" for warning in result.warnings]
    lines += [f"skipped: {line}" for line in skipped_lines(result.skipped, all_rows)]
    stderr.write(_writable("".join(f"{visible(line)}\n" for line in lines), stderr))


def _writable(text: str, stream: TextIO) -> str:
    """``text`` with an escape for each character that ``stream`` cannot encode."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _refuse_checkpoint(result: Result, path: str) -> None:
    sources = [result.checkpoint.get("path"), *result.checkpoint.get("files", ())]
    if any(source and same_file(str(source), path) for source in sources):
        raise OutputError(
            f"{visible(path)} belongs to the checkpoint itself; it is not overwritten",
            "choose another path",
        )
