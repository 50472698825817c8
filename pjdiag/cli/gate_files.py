"""Files of `pjdiag gate` beside its outputs: baseline, starter policy, the summary on GitHub."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pjdiag.errors import OutputError, UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.render.output import OutputSpec
    from pjdiag.results import Result

STARTER = Path("pjdiag-gate.toml")
SUMMARY = "GITHUB_STEP_SUMMARY"


def write_baseline_file(result: "Result", path: Path, *, quiet: bool) -> None:
    """The figures of ``result`` as a baseline."""
    from pjdiag.gate.baseline import to_json
    from pjdiag.render.files import write_file
    from pjdiag.render.text import visible

    write_file(str(path), to_json(result).encode())
    if not quiet:
        print(f"wrote {visible(str(path))}", file=sys.stderr)  # noqa: T201


def summarise(specs: "list[OutputSpec]", result: "Result") -> None:
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


def refuse_own_files(specs: "list[OutputSpec]", *inputs: Path | None) -> None:
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


def write_starter(reading: "Reading", checkpoint: Path, path: Path, options: Sequence[str]) -> None:
    """A policy that the checkpoint fulfils; a file that is there is kept.

    ``options`` are what it took to read the checkpoint: the next command needs them too.
    """
    from datetime import UTC, datetime

    from pjdiag.gate.starter import starter
    from pjdiag.render.files import write_file
    from pjdiag.render.text import shell_word, visible

    if path.exists():
        raise UsageError(
            f"{visible(str(path))} is there already",
            f"leave out --init and pass --policy {shell_word(str(path))} to check against it, or "
            "write another with --init --policy NEW_FILE",
        )
    text = starter(reading, datetime.now(UTC).date())
    write_file(str(path), text.encode("utf-8", "backslashreplace"))
    rules = text.splitlines().count("[[rule]]")
    print(f"Wrote {visible(str(path))}: {rules} rules.")  # noqa: T201
    words = [shell_word(str(checkpoint)), *options, "--policy", shell_word(str(path))]
    print(f"Next: pjdiag gate {' '.join(words)}")  # noqa: T201
