"""Errors a person can act on: what was found and what was expected, then what to do next."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_VIOLATED = 1
EXIT_COULD_NOT_RUN = 2
EXIT_INCONCLUSIVE = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class PjdiagError(Exception):
    """A known failure, shown as one line on stderr.

    ``message`` says what was found and what was expected; ``hint`` says what to do next.
    ``exit_code`` is the exit status of a command that ends with it.

    >>> str(PjdiagError("length is 0; expected at least 2", "pass --length 32768"))
    'length is 0; expected at least 2. Next: pass --length 32768'
    """

    exit_code = EXIT_COULD_NOT_RUN

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. Next: {self.hint}" if self.hint else self.message


class CheckpointError(PjdiagError):
    """The bytes of a checkpoint cannot be read, or do not hold what its format promises."""


class AdapterError(PjdiagError):
    """No adapter, or more than one, can read this checkpoint."""


class DataError(PjdiagError):
    """A text, token or settings file cannot be used."""


class UsageError(PjdiagError):
    """An argument is out of range or does not fit this checkpoint."""


class PolicyError(PjdiagError):
    """A policy, a requirement or a baseline of the gate cannot be used.

    The message starts with the place: ``policy.toml:7:1: ...``.
    """


class OutputError(PjdiagError):
    """A result cannot be written."""


class MissingDependencyError(PjdiagError):
    """A package that this step needs is not installed."""


class InconclusiveError(PjdiagError):
    """Nothing could be analysed; there is no figure to print."""

    exit_code = EXIT_INCONCLUSIVE


def pip_install(*packages: str) -> str:
    """The command that adds packages to the environment that this runs in.

    Its interpreter is ``python`` where a shell finds this environment's under that name, else its
    path: with another, ``pip`` would install elsewhere.

    >>> pip_install("plotly").endswith("-m pip install plotly")
    True
    """
    import shlex  # only an error pays
    import shutil
    import sys
    from pathlib import Path

    found = shutil.which("python")
    here = found is not None and Path(found).parent == Path(sys.executable).parent
    interpreter = "python" if here else sys.executable or "python"
    return shlex.join([interpreter, "-m", "pip", "install", *packages])
