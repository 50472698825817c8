"""Arguments of the Python API: one of another type is one clear line, as on the command line."""

from __future__ import annotations

import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pjdiag.errors import UsageError

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
LARGEST_SEED = 2**63 - 1
LARGEST_LENGTH = 2**31
"""Tokens; no model has a window of so many."""
_LARGEST = sys.float_info.max


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number, and neither true nor false.

    >>> is_number(0.5), is_number(True), is_number(float("nan")), is_number(10**400)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _LARGEST  # an integer of any length can be written; NaN fails as well


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
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = None
    if whole is None:
        raise UsageError(f"{name} is {_said(value)}; expected a whole number", "pass an int")


def require_seed(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no whole number from 0 to 2^63 - 1."""
    require_whole(value, name)
    if not 0 <= value <= LARGEST_SEED:
        raise UsageError(f"{name} is {_said(value)}; expected 0 to 2^63 - 1", "pass 0")


def require_length(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no whole number, or is beyond any window."""
    require_whole(value, name)
    if value > LARGEST_LENGTH:
        raise UsageError(f"{name} is {_said(value)} tokens", f"pass at most {LARGEST_LENGTH}")


def require_number(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no number."""
    try:
        number = None if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        raise UsageError(f"{name} is {_said(value)}; expected a number", "pass a float")


def require_share(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no number from 0 to 1."""
    require_number(value, name)
    if not 0 <= float(value) <= 1:
        raise UsageError(f"{name} is {_said(value)}; expected 0 to 1", "pass a share such as 0.9")


def require_flag(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is neither true nor false."""
    if type(value).__name__ not in ("bool", "bool_"):  # numpy's own as well
        raise UsageError(f"{name} is {_said(value)}; expected True or False", "pass one")


def require_text(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {_said(value)}; expected a text", "pass a str")


def require_callable(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` cannot be called."""
    if not callable(value):
        raise UsageError(f"{name} is {_said(value)}; expected a function", "leave it out")


def require_date(value: Any, name: str) -> None:
    """Raises UsageError where ``value`` is no date."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise UsageError(
            f"{name} is {_said(value)}; expected a date", f"pass {name}=datetime.date(2027, 1, 1)"
        )


def require_kind(value: Any, kind: str, name: str) -> None:
    """Raises UsageError where ``value`` is none of the class with the name ``kind``."""
    if all(found.__name__ != kind for found in type(value).__mro__):
        raise UsageError(f"{name} is {_said(value)}; expected a {kind}", f"pass a {kind}")


def require_texts(values: Any, name: str) -> None:
    """Raises UsageError where ``values`` are not several texts; a single text is not several."""
    found = _several(values)
    if found is None or not all(isinstance(value, str) for value in found):
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
    found = _several(values)
    if found is None:
        raise UsageError(
            f"lengths is {_said(values)}; expected several whole numbers",
            "for example lengths=[2048, 32768]",
        )
    for value in found:
        require_length(value, "length")


def _several(values: Any) -> list[Any] | None:
    """The members of a list or the like, in their order; None where there are none to count on."""
    if isinstance(values, str | bytes | Iterator | Mapping | set | frozenset):
        return None
    try:
        return list(values)
    except TypeError:
        return None


CHECKS: dict[str, Callable[[Any, str], None]] = {
    **dict.fromkeys(("allow_pickle", "strict", "centred", "with_affine", "decision"), require_flag),
    **dict.fromkeys(("controls", "causal", "attention"), require_flag),
    **dict.fromkeys(("order", "windows", "batch", "skip_first", "layer", "head"), require_whole),
    **dict.fromkeys(("length", "train_length", "eval_length", "stride"), require_length),
    **dict.fromkeys(("progress", "announce", "target", "run", "fresh"), require_callable),
    **dict.fromkeys(("precisions", "require", "diagnostics", "remove"), require_texts),
    **dict.fromkeys(("command", "name", "tolerance"), require_text),
    "lengths": lambda values, _: require_lengths(values),
    "seed": require_seed,
    "min_coverage": require_share,
    "merge_base": require_path,
    "today": require_date,
    "in_model": lambda value, name: require_kind(value, "RetrievalTask", name),
    "ledger": lambda value, name: require_kind(value, "Ledger", name),
}
"""What an argument of the Python API must be, by its name."""


def checked(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """``function`` with its arguments checked first, each by its name; None where it is default.

    >>> @checked
    ... def measure(seed: int = 0, batch: int | None = None) -> int:
    ...     return seed
    >>> measure(seed="x")
    Traceback (most recent call last):
    pjdiag.errors.UsageError: seed is 'x'; expected a whole number. Next: pass an int
    """
    signature = inspect.signature(function)
    rest = [p.name for p in signature.parameters.values() if p.kind == p.VAR_KEYWORD]
    optional = {p.name for p in signature.parameters.values() if p.default is None}

    @wraps(function)
    def call(*arguments: Given.args, **options: Given.kwargs) -> Returned:
        given = dict(signature.bind(*arguments, **options).arguments)
        others = {key: value for name in rest for key, value in given.pop(name, {}).items()}
        for name, value in (*given.items(), *others.items()):
            if name in CHECKS and not (value is None and name in {*optional, *others}):
                CHECKS[name](value, name)
        return function(*arguments, **options)

    return call


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _said(value: Any) -> str:
    """A short value as it was written, else its type."""
    text = ascii(value)
    return text if len(text) <= 40 and not isinstance(value, type) else _kind(value)
