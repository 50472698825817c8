"""A progress bar on stderr, for a person at a terminal who waits more than a moment."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds before a bar appears."""


@contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A callback for the share of the work that is done; it draws nothing off a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=1.0)
    started = time.monotonic()

    def show(share: float) -> None:
        bar.update(task, completed=share)
        if time.monotonic() - started > PATIENCE:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()
