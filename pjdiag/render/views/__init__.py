"""One module per diagnostic: rows of a Result to tables for a reader."""

from __future__ import annotations

from importlib import import_module

from pjdiag.errors import DataError
from pjdiag.render.places import coarsest
from pjdiag.render.tables import Table, shorten
from pjdiag.results import Result
from pjdiag.terms import Scope

VIEWS = (
    "inspect",
    "mass",
    "spectrum",
    "energy",
    "loo",
    "probe",
    "stability",
    "verify",
    "kernel",
    "nll",
    "gate",
    "compare",
    "reproduce",
)
"""Diagnostics with a module here; only the one that is shown is imported."""


def view(result: Result, by: Scope, all_rows: bool) -> list[Table]:
    """Tables of ``result`` down to the scope ``by``, one screen in all unless ``all_rows``.

    Where the result holds only finer rows (one head was asked for), these are shown.
    Raises DataError for a diagnostic without a view.

    >>> row = {"scope": "model", "family": "additive", "sector": "affine", "sector_share": 1.0,
    ...        "sector_gate": 1.0, "effective_mass": 2.0}
    >>> table, = view(Result("mass", {}, {}, (row,)), Scope.LAYER, False)
    >>> [cell.text for cell in table.lines[0]]
    ['model', 'affine recency', '100%', '1.0', '2.00', '']
    """
    if result.diagnostic not in VIEWS:
        raise DataError(
            f"no table is known for the diagnostic {result.diagnostic!r}", "write it as -o json"
        )
    found = coarsest(result.rows)
    scopes = tuple(Scope)
    if found and scopes.index(found[0].scope) > scopes.index(by):
        by = found[0].scope
    module = import_module(f"{__name__}.{result.diagnostic}")
    tables: list[Table] = [table for table in module.tables(result, by, all_rows) if table.lines]
    return tables if all_rows else shorten(tables)
