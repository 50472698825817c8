"""A checkpoint and a policy file to a result, for Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from pjdiag import adapters
from pjdiag.adapters import Reading
from pjdiag.arguments import checked, require_path
from pjdiag.checkpoint import Checkpoint, load
from pjdiag.diagnostics.progress import Progress, no_progress
from pjdiag.gate.baseline import DEFAULT_TOLERANCE, parse_tolerance, read_baseline
from pjdiag.gate.policy import Policy
from pjdiag.gate.policy_file import load_policy, required, with_rules
from pjdiag.gate.running import run
from pjdiag.results import Result


@checked
def gate(
    source: Reading | Checkpoint | str | os.PathLike[str],
    policy: str | os.PathLike[str] | None = None,
    *,
    require: Sequence[str] = (),
    data: str | os.PathLike[str] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    tolerance: str = DEFAULT_TOLERANCE,
    today: date | None = None,
    min_coverage: float = 0.0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
) -> Result:
    """Check a policy file and the comparisons in ``require``.

    ``data``, a text or a file of token ids, is what kernel, nll and loo of the running model are
    measured on, in place of the policy's. One row per rule and place, with its ``status``.
    ``tolerance`` is the distance from the figures of ``baseline`` that is allowed: ``"0.02"``, or
    a part of them, ``"5%"``.
    ``today`` (default: the date in UTC) decides which suppressions hold. Raises UsageError,
    PolicyError with line and column, and what the diagnostics raise.

    >>> import pjdiag
    >>> checks = pjdiag.gate(pjdiag.sample(), require=["mass.sector_share[fj] >= 0.5"])
    >>> [(row["status"], round(row["value"], 2)) for row in checks.rows]
    [('passed', 0.79)]
    """
    for given, name in ((policy, "the policy"), (data, "data"), (baseline, "the baseline")):
        if given is not None:
            require_path(given, name)
    stated = Policy() if policy is None else load_policy(Path(policy))
    stated = with_rules(stated, required(require))
    if data is not None:
        stated = stated.on(Path(data))
    if not isinstance(source, Reading):
        opened = (
            source if isinstance(source, Checkpoint) else load(source, allow_pickle=allow_pickle)
        )
        source = adapters.read(opened)
    return run(
        source,
        stated,
        today=datetime.now(UTC).date() if today is None else today,
        baseline=None if baseline is None else read_baseline(Path(baseline)),
        tolerance=parse_tolerance(tolerance),
        min_coverage=min_coverage,
        allow_pickle=allow_pickle,
        progress=progress,
    )
