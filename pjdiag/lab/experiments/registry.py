"""The experiments by name; a module is imported when its experiment is asked for."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pjdiag.errors import UsageError

if TYPE_CHECKING:
    from pjdiag.lab.experiments.base import Experiment

ALL = "all"
NAMES = (
    "fixed-recovery",
    "adaptive-recovery",
    "synthetic-query",
    "indirect-indexing",
    "language",
    "music",
    "length-extrapolation",
    "stability",
)
"""In the order in which ``all`` runs them: the last one reads what the others have trained."""


def available() -> tuple[str, ...]:
    """Names of the experiments that are there."""
    return tuple(name for name in NAMES if find_spec(_module(name)) is not None)


def experiment(name: str) -> Experiment:
    """The experiment ``name``. Raises UsageError for one that is not there.

    >>> experiment("fixed-recovery").seeds
    ()
    """
    require_known(name, available())
    found: Experiment = import_module(_module(name)).EXPERIMENT
    return found


def require_known(name: str, choices: Collection[str]) -> None:
    """Raises UsageError for a name that is none of ``choices``, with the nearest that is one."""
    if name in choices:
        return
    from pjdiag.checkpoint.text import near  # its package costs more than --help may

    close = near(name, choices)[:1]
    nearest = f"; near it: {close[0]}" if close else ""
    every = ", ".join((*available(), ALL))
    raise UsageError(f"no experiment {name!a}{nearest}", f"pass one of {every}")


def _module(name: str) -> str:
    return f"{__package__}.{name.replace('-', '_')}"
