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
    bar = _Bar(title)
    try:
        yield bar.show
    finally:
        bar.close()


class _Bar:
    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._drawn = False

    def show(self, share: float) -> None:
        waited = time.monotonic() - self._started
        if waited < PATIENCE:
            return
        left = waited * (1 - share) / share if share > 0 else 0.0
        sys.stderr.write(f"\r{self._title} {share:4.0%}, {left:,.0f} s left \x1b[K")
        sys.stderr.flush()
        self._drawn = True

    def close(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
