"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from pjdiag.errors import OutputError
from pjdiag.render.text import visible


def write_file(path: str, data: bytes) -> None:
    """Replace ``path`` by ``data``: a new file beside it, flushed to disk, then renamed.

    The file keeps its permissions, and a link its target. A pipe or device is written to as it
    is. Raises OutputError, and then the old file is untouched and no other file is left.
    """
    try:
        target = os.path.realpath(path)
        mode = _existing_mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            raise OutputError(
                f"cannot write {visible(path)}: it is a folder", "give the name of a file inside it"
            )
        if mode is not None and not stat.S_ISREG(mode):
            _write_through(path, data)
        else:
            _replace(target, data, mode)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write {visible(path)}: {_reason(error)}", _hint(path)) from error


def same_file(first: str, second: str) -> bool:
    """True where both paths lead to one file, be it there already or not.

    >>> same_file("a/../b.json", "./b.json")
    True
    """
    return os.path.normcase(os.path.realpath(first)) == os.path.normcase(os.path.realpath(second))


def _existing_mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode  # noqa: PTH116  a path may hold any bytes
    except FileNotFoundError:
        return None


def _write_through(path: str, data: bytes) -> None:
    with open(path, "wb") as stream:  # noqa: PTH123
        stream.write(data)


def _replace(target: str, data: bytes, mode: int | None) -> None:
    if mode is not None:
        os.close(os.open(target, os.O_WRONLY))  # a read-only file is not replaced
    folder = os.path.dirname(target) or "."  # noqa: PTH120
    temporary = os.path.join(folder, f".pjdiag-{os.getpid()}-{os.urandom(4).hex()}.tmp")  # noqa: PTH118
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            Path(temporary).chmod(stat.S_IMODE(mode))
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _reason(error: OSError | ValueError) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]


def _hint(path: str) -> str:
    folder = os.path.dirname(path) or "."  # noqa: PTH120
    try:
        exists = os.path.isdir(folder)  # noqa: PTH112
    except ValueError:
        exists = True
    if not exists:
        return f"make the folder {visible(folder)} first"
    return "choose another path"
