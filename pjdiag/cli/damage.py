"""A saved result with figures that no diagnostic writes: one error that names the file."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pjdiag.errors import DataError

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What such figures lead to where they are compared or shown."""


@contextmanager
def named(saved: Sequence[Path]) -> Iterator[None]:
    """Raises DataError in place of ``DAMAGE`` where results were read from files."""
    try:
        yield
    except DAMAGE as error:
        if not saved or os.environ.get("PJDIAG_DEBUG") == "1":
            raise
        from pjdiag.render.text import listed, visible

        names = listed([visible(str(path)) for path in saved], "or")
        raise DataError(
            f"{names} is damaged: {type(error).__name__}: {ascii(str(error))[1:-1]}",
            "write it again with -o json",
        ) from error
