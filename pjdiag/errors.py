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
