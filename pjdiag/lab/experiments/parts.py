"""The parts of an experiment, each measured once and kept in a file of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pjdiag.lab.native import write_atomically

T = TypeVar("T")
POLL, GRACE = 0.5, 10.0
"""Seconds between two looks at whether a worker shall end, and those it has to do so."""


class Parts:
    """JSON values by name, in ``folder``, each with the identity of what it depends on.

    A part of another identity is measured again. ``seconds`` is the processor time that all the
    parts took which were asked for, whenever that was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     first = Parts(Path(place), {"quick": True}).part("a/b", lambda: [1.5])
    ...     again = Parts(Path(place), {"quick": True}).part("a/b", lambda: [0.0])
    ...     other = Parts(Path(place), {"quick": False}).part("a/b", lambda: [2.5])
    >>> first, again, other
    ([1.5], [1.5], [2.5])
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self.identity = _plain(dict(identity))
        self.seconds = 0.0

    def part(self, name: str, measure: Callable[[], T], of: Any = None) -> T:
        """The value kept under ``name``, or what ``measure`` gives.

        ``of``: what else it depends on, such as a recipe or a digest; a JSON value.
        """
        kept = self._kept(name, of)
        if kept is None:
            started = time.process_time()
            value = measure()
            kept = self._keep(name, of, value, time.process_time() - started)
        self.seconds += kept["seconds"]
        found: T = kept["value"]
        return found

    def each(
        self,
        jobs: Mapping[str, Callable[[], T]],
        workers: int,
        of: Mapping[str, Any] | None = None,
        done: Callable[[str], None] | None = None,
    ) -> dict[str, T]:
        """The value of every job by its name, missing ones measured by ``workers`` processes.

        A job is a function that can be pickled: one at the top of a module, or a
        ``functools.partial`` of one. Each worker has one thread and ends with this process.
        ``of`` may hold what each job depends on; ``done`` is told each name as it is there.
        """
        depends = of or {}
        tell = done or _nobody
        missing = [name for name in jobs if self._kept(name, depends.get(name)) is None]
        if workers > 1 and len(missing) > 1:
            self._spread({name: jobs[name] for name in missing}, workers, depends, tell)
        found = {}
        for name, job in jobs.items():
            new = self._kept(name, depends.get(name)) is None
            found[name] = self.part(name, job, depends.get(name))
            if new:
                tell(name)
        return found

    def _spread(
        self,
        jobs: Mapping[str, Callable[[], T]],
        workers: int,
        of: Mapping[str, Any],
        done: Callable[[str], None],
    ) -> None:
        context = get_context("spawn")
        stop = context.Event()
        pool = ProcessPoolExecutor(
            min(workers, len(jobs)), context, _in_worker, (os.getpid(), stop)
        )
        try:
            waiting: dict[Future[tuple[T, float]], str] = {
                pool.submit(_timed, job): name for name, job in jobs.items()
            }
            while waiting:
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    name = waiting.pop(future)
                    value, seconds = future.result()
                    self._keep(name, of.get(name), value, seconds)
                    done(name)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{quote(name, safe=' +,=')}.json"

    def _kept(self, name: str, of: Any) -> dict[str, Any] | None:
        """What the part's file holds, if it is whole and of this identity."""
        try:
            found = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or found.get("identity") != self._identity(of):
            return None
        return found if {"value", "seconds"} <= set(found) else None

    def _keep(self, name: str, of: Any, value: Any, seconds: float) -> dict[str, Any]:
        kept = {"identity": self._identity(of), "seconds": round(seconds, 3), "value": value}
        text = json.dumps(kept)
        write_atomically(self._path(name), lambda path: _write(path, text))
        found: dict[str, Any] = json.loads(text)
        return found

    def _identity(self, of: Any) -> Any:
        return {**self.identity, "of": _plain(of)}


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")


def _timed(job: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    return job(), time.process_time() - started


def _nobody(name: str) -> None:
    del name


def _leave(number: int, frame: object) -> None:
    """Ends without a traceback; what is half written is cleared away on the way."""
    del frame
    sys.exit(number)


def _in_worker(parent: int, stop: Event) -> None:
    """One thread; and a worker is stopped, in the midst of a job too, when ``stop`` is set or
    the process that started it has gone.
    """
    signal.signal(signal.SIGINT, _leave)
    import torch

    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent and not stop.wait(POLL):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
