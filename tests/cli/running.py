"""Running the command line in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pjdiag.cli.main import main


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str


def run(capsys: Any, *arguments: Any) -> Ran:
    """Exit code and output of ``pjdiag ARGUMENTS``."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Ran(code, captured.out, captured.err)
