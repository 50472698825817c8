"""Which part of relative-position space does a trained attention model use?

>>> import pjdiag
>>> pjdiag.mass(pjdiag.sample()).diagnostic
'mass'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pjdiag.api import (
        energy,
        inspect,
        kernel,
        loo,
        mass,
        nll,
        probe,
        read,
        spectrum,
        stability,
        verify,
    )
    from pjdiag.checkpoint import Checkpoint, load
    from pjdiag.comparison.comparing import compare
    from pjdiag.diagnostics.in_model_contexts import RetrievalTask
    from pjdiag.diagnostics.ledger import Interrupted, Ledger
    from pjdiag.errors import PjdiagError
    from pjdiag.gate.checking import gate
    from pjdiag.model_api import live, load_model, patch
    from pjdiag.models.trainer_callback import TrainerCallback
    from pjdiag.report_api import report
    from pjdiag.results import Result
    from pjdiag.samples import sample

_HOMES = {
    "compare": "pjdiag.comparison.comparing",
    "energy": "pjdiag.api",
    "gate": "pjdiag.gate.checking",
    "inspect": "pjdiag.api",
    "live": "pjdiag.model_api",
    "load_model": "pjdiag.model_api",
    "kernel": "pjdiag.api",
    "loo": "pjdiag.api",
    "mass": "pjdiag.api",
    "nll": "pjdiag.api",
    "patch": "pjdiag.model_api",
    "probe": "pjdiag.api",
    "read": "pjdiag.api",
    "report": "pjdiag.report_api",
    "Checkpoint": "pjdiag.checkpoint",
    "load": "pjdiag.checkpoint",
    "Interrupted": "pjdiag.diagnostics.ledger",
    "Ledger": "pjdiag.diagnostics.ledger",
    "PjdiagError": "pjdiag.errors",
    "Result": "pjdiag.results",
    "RetrievalTask": "pjdiag.diagnostics.in_model_contexts",
    "sample": "pjdiag.samples",
    "TrainerCallback": "pjdiag.models.trainer_callback",
    "spectrum": "pjdiag.api",
    "stability": "pjdiag.api",
    "verify": "pjdiag.api",
}

__all__ = [
    "Checkpoint",
    "Interrupted",
    "Ledger",
    "PjdiagError",
    "Result",
    "RetrievalTask",
    "TrainerCallback",
    "compare",
    "energy",
    "gate",
    "inspect",
    "kernel",
    "live",
    "load",
    "load_model",
    "loo",
    "mass",
    "nll",
    "patch",
    "probe",
    "read",
    "report",
    "sample",
    "spectrum",
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
