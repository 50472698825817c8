"""Arguments of the Python API: one of another type is one clear line, as on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from pjdiag.errors import UsageError


def require_path(value: Any, name: str, also: str = "") -> None:
    """Raises UsageError where ``value`` is no path; ``also`` names what else could be passed.

    >>> require_path("model.safetensors", "the checkpoint")
    >>> require_path(5, "data")
    Traceback (most recent call last):
    pjdiag.errors.UsageError: data is int; expected a path. Next: pass a str or a pathlib.Path
    """
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise UsageError(
            f"{name} is {_kind(value)}; expected a path", f"pass a str or a pathlib.Path{also}"
        )


def require_whole(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"{name} is {_said(value)}; expected a whole number", "pass an int")


def require_number(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no number."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise UsageError(f"{name} is {_said(value)}; expected a number", "pass a float")


def require_texts(values: Any, name: str) -> None:
    """Raises UsageError where ``values`` are not several texts; a single text is not several."""
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    if not several or not all(isinstance(value, str) for value in values):
        raise UsageError(
            f"{name} is {_said(values)}; expected several texts", f"for example {name}=[...]"
        )


def require_choice(value: Any, choices: Iterable[str], name: str) -> None:
    """Raises UsageError where ``value`` is none of ``choices``."""
    known = [str(choice) for choice in choices]
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"{name} is {_said(value)}; expected {' or '.join(known)}", "pass one")


def require_lengths(values: Any) -> None:
    """Raises UsageError where ``values`` are not whole numbers of tokens, several of them."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(
            f"lengths is {_said(values)}; expected several whole numbers",
            "for example lengths=[2048, 32768]",
        )
    for value in values:
        require_whole(value, "length")


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _said(value: Any) -> str:
    """A short value as it was written, else its type."""
    text = ascii(value)
    return text if len(text) <= 40 and not isinstance(value, type) else _kind(value)
