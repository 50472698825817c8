"""Runs a command line as a person would, and says what is wrong with how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pjdiag.adapters import reading, registry
from pjdiag.cli import main as command_line
from pjdiag.diagnostics import outcome
from tests.memory import STATUS, peak_bytes

SECONDS = 5
"""Processor time that a case may take."""
MEMORY = 500 * 2**20
"""Bytes beyond what the process had before."""
INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
CODES = (0, 1, 2, 3)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FORBIDDEN = (
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.kill",
)
_PATHS = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate")


class TooSlowError(BaseException):
    """The case took longer than it may; nothing that catches errors may stop this."""


@dataclass
class Watch:
    """What the process did while a case ran; an audit hook reports to it."""

    folder: str = ""
    allowed: str = ""
    faults: list[str] = field(default_factory=list)
    armed: bool = False

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One audit event."""
        if not self.armed:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, bytes | str) and isinstance(flags, int):
                self._opened(os.fsdecode(path), flags)
        elif event in _FORBIDDEN:
            self.faults.append(f"event {event}")
        elif event in _PATHS and not self._within(os.fsdecode(arguments[0])):
            self.faults.append(f"event {event} outside the output folder")

    def _opened(self, path: str, flags: int) -> None:
        if flags & _WRITES and path != os.devnull and not self._within(path):
            self.faults.append("wrote outside the output folder")
        if path.startswith(self.folder) and path.endswith((".py", ".pyc", ".so", ".pth")):
            self.faults.append("read a module of the checkpoint's folder")

    def _within(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self.allowed)


WATCH = Watch()
_hooked: list[bool] = []


@dataclass(frozen=True)
class Ran:
    """How one command line ended."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str
    faults: tuple[str, ...]
    peak: int = 0
    """Bytes of memory beyond those before."""


def prepare() -> None:
    """Makes this process ready to judge: the audit hook; what never changes is built once."""
    if _hooked:
        return
    _hooked.append(True)
    sys.dont_write_bytecode = True
    sys.addaudithook(WATCH.hear)


def keep_what_never_changes() -> None:
    """For long campaigns: the tree of commands and the list of adapters are made once."""
    for module, name in (
        (command_line, "app"),
        (command_line, "get_command"),
        (command_line, "without_pydantic"),
        (registry, "registrations"),
        (reading, "registrations"),
        (outcome, "tool_version"),
    ):
        setattr(module, name, cache(getattr(module, name)))


def judge(arguments: Sequence[str], folder: Path, output: Path) -> Ran:
    """Runs ``pjdiag ARGUMENTS``; only ``output`` may be written to, ``folder`` stays as it is."""
    prepare()
    before = _listing(folder)
    out, err = io.StringIO(), io.StringIO()
    WATCH.folder, WATCH.allowed = f"{folder}/", os.path.realpath(output)
    WATCH.faults = faults = []
    _forget_peak()
    start = peak_bytes()
    code = -1
    with warnings.catch_warnings(), _limited():
        warnings.simplefilter("always")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                WATCH.armed = True
                code = command_line.main([*arguments])
        except TooSlowError:
            faults.append(f"longer than {SECONDS} s")
        except BaseException as error:  # noqa: BLE001  whatever passes through is a fault
            faults.append(f"raised {type(error).__name__}")
            if os.environ.get("PJDIAG_DEBUG") == "1":
                traceback.print_exception(error, file=sys.__stderr__)
        finally:
            WATCH.armed = False
    peak = peak_bytes() - start
    if peak > MEMORY:
        faults.append(f"more than {MEMORY // 2**20} MB of memory")
    if _listing(folder) != before:
        faults.append("changed the checkpoint's folder")
    faults += _about_streams(code, out.getvalue(), err.getvalue(), arguments)
    return Ran(tuple(arguments), code, out.getvalue(), err.getvalue(), tuple(faults), peak)


def _about_streams(code: int, out: str, err: str, arguments: Sequence[str]) -> Iterator[str]:
    if code not in CODES:
        yield f"exit code {code}"
    if "Traceback" in out + err:
        yield "a traceback"
    if "pjdiag: unexpected" in err:
        yield "an unexpected error: " + err[err.index("unexpected ") + 11 :].split(":")[0]
    if re.search(r"\w+Warning: ", err):
        yield "a warning of Python"
    if "not enough memory" in err:
        yield "not enough memory"
    messages = [line for line in err.splitlines() if line.startswith("pjdiag: ")]
    if code == 2 and (len(messages) != 1 or "Next: " not in messages[0]):
        yield "no message, or none that says what to do"
    if code == 2 and out and "-o" not in arguments:
        yield "a table beside an error"
    if any(len(line) > 1500 for line in messages):
        yield "a message of more than 1500 characters"
    page = re.sub(r"<script.*?</script>", "", out, flags=re.DOTALL)  # its code may hold tabs
    for name, text in (("output", page), ("message", err)):
        odd = {c for c in text if c not in "\n" and unicodedata.category(c) in INVISIBLE}
        if odd:
            yield f"invisible characters in the {name}"
    if "json" in arguments and out:
        yield from _about_json(out)


def _about_json(out: str) -> Iterator[str]:
    try:
        json.loads(out, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        yield "an output that is no JSON"


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(place, name))  # noqa: PTH118
            found.append((f"{place}/{name}", status.st_size, status.st_mtime_ns))
    return sorted(found)


def _forget_peak() -> None:
    """Linux forgets the highest memory so far; elsewhere a later case may hide behind it."""
    if STATUS.exists():
        with contextlib.suppress(OSError):
            STATUS.with_name("clear_refs").write_text("5", encoding="ascii")


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
