"""The entry point: one line for a known error, exit 2 with a hint for an unknown one."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from pjdiag.cli.coercion import without_pydantic
from pjdiag.cli.commands import app, asked
from pjdiag.cli.running import TOLD, TYPED
from pjdiag.cli.settings import COMMAND_KEYS, default_map
from pjdiag.errors import EXIT_COULD_NOT_RUN, EXIT_DONE, EXIT_INTERRUPTED, PjdiagError
from pjdiag.render.text import visible

CLICK_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""Typer brings its own click in newer versions; this is the one it raises."""
LONGEST_MESSAGE, LONGEST_HINT = 1200, 300
"""Characters; of a longer message the middle is left out, as the hint stands at its end."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 a check is violated, 2 could not run, 3 inconclusive. ``PJDIAG_DEBUG=1`` shows
    the traceback of an error.
    """
    _open_missing_streams()
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    TYPED.set(tuple(arguments))
    TOLD.set(False)
    try:
        return _invoke(arguments)
    except BrokenPipeError:
        return _closed_pipe()
    except OSError as error:
        if error.errno == errno.EPIPE:
            return _closed_pipe()
        if error.errno in (errno.ENOSPC, errno.EIO):
            return _fail(f"cannot write: {error.strerror}. Next: free some space", 2)
        return _unknown(error)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except SystemExit:
        return _closed_pipe()  # how Typer ends when the reader of a pipe has gone
    except PjdiagError as error:
        if _debugging():
            raise
        return _fail(str(error), error.exit_code)
    except MemoryError:
        return _fail(
            "there is not enough memory for this. Next: pass a shorter --length, or one at a time",
            EXIT_COULD_NOT_RUN,
        )
    except CLICK_ERROR as error:
        from pjdiag.cli.usage_words import usage_message  # only an error pays

        return _fail(usage_message(error, arguments), EXIT_COULD_NOT_RUN)
    except Exception as error:  # noqa: BLE001  the last line of defence against a traceback
        return _unknown(error)


def _invoke(arguments: list[str]) -> int:
    defaults: dict[str, Any] = {} if _needs_no_settings(arguments) else default_map(_here())
    code = without_pydantic(get_command(app(asked(arguments)))).main(
        args=arguments, prog_name="pjdiag", standalone_mode=False, default_map=defaults
    )
    sys.stdout.flush()
    if code == EXIT_INTERRUPTED:
        return EXIT_INTERRUPTED if TOLD.get() else _fail("interrupted", EXIT_INTERRUPTED)
    return code if isinstance(code, int) else EXIT_DONE


def _here() -> Path:
    """The working directory; the root where it has been deleted, so that no settings apply."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _open_missing_streams() -> None:
    """Python has None for a stream that was closed before it started."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _needs_no_settings(arguments: list[str]) -> bool:
    """Whether a broken settings file must not stop this: help, or a look at the environment."""
    asks = any(argument in ("--help", "-h", "--version") for argument in arguments)
    return asks or arguments[0] not in COMMAND_KEYS


def _fail(message: str, code: int) -> int:
    print(f"pjdiag: {_one_line(message)}", file=sys.stderr)  # noqa: T201
    return code


def _one_line(message: str) -> str:
    """The message on one line, whatever a checkpoint put into it: visible, of bounded length."""
    text = visible(" ".join(message.split()))
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:700]}...{text[-LONGEST_HINT:]}"


def _unknown(error: Exception) -> int:
    if _debugging():
        raise error
    name = type(error).__name__
    return _fail(
        f"unexpected {name}: {ascii(str(error))[1:-1]}. Next: run again with PJDIAG_DEBUG=1 and "
        "report what it prints",
        EXIT_COULD_NOT_RUN,
    )


def _closed_pipe() -> int:
    """The reader has gone: what was asked for is done, and nothing may be written any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_DONE


def _debugging() -> bool:
    return os.environ.get("PJDIAG_DEBUG") == "1"


def run() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
