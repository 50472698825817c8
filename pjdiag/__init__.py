"""Which part of relative-position space does a trained attention model use?

>>> import pjdiag
>>> pjdiag.mass(pjdiag.sample()).diagnostic
'mass'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjdiag.api import energy, inspect, loo, mass, nll, probe, read, stability, verify
    from pjdiag.checkpoint import Checkpoint, load
    from pjdiag.errors import PjdiagError
    from pjdiag.results import Result
    from pjdiag.samples import sample

_HOMES = {
    "energy": "pjdiag.api",
    "inspect": "pjdiag.api",
    "loo": "pjdiag.api",
    "mass": "pjdiag.api",
    "nll": "pjdiag.api",
    "probe": "pjdiag.api",
    "read": "pjdiag.api",
    "Checkpoint": "pjdiag.checkpoint",
    "load": "pjdiag.checkpoint",
    "PjdiagError": "pjdiag.errors",
    "Result": "pjdiag.results",
    "sample": "pjdiag.samples",
    "stability": "pjdiag.api",
    "verify": "pjdiag.api",
}

__all__ = [
    "Checkpoint",
    "PjdiagError",
    "Result",
    "energy",
    "inspect",
    "load",
    "loo",
    "mass",
    "nll",
    "probe",
    "read",
    "sample",
    "stability",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Names are imported at their first use: ``pjdiag --help`` pays for none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pjdiag' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
