"""The measurements, each a function from a reading to a Result."""

from pjdiag.diagnostics.energy import energy
from pjdiag.diagnostics.inspection import inspect
from pjdiag.diagnostics.leave_one_out import leave_one_out
from pjdiag.diagnostics.mass import mass
from pjdiag.diagnostics.retrieval import DEFAULT_PRECISIONS, PRECISIONS, probe, probe_variants
from pjdiag.diagnostics.stability import stability, stability_variants
from pjdiag.diagnostics.verification import verify, violated

__all__ = [
    "DEFAULT_PRECISIONS",
    "PRECISIONS",
    "energy",
    "inspect",
    "leave_one_out",
    "mass",
    "probe",
    "probe_variants",
    "stability",
    "stability_variants",
    "verify",
    "violated",
]
