"""A reading and a policy to a result."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pjdiag.adapters import Reading
from pjdiag.diagnostics.outcome import outcome
from pjdiag.diagnostics.progress import Progress, no_progress
from pjdiag.errors import PolicyError
from pjdiag.gate.baseline import Baseline, Tolerance
from pjdiag.gate.checks import Evaluation
from pjdiag.gate.locations import from_root
from pjdiag.gate.measure import measured
from pjdiag.gate.policy import Policy
from pjdiag.gate.verdict import NAME
from pjdiag.results import Result, Skipped


def run(
    reading: Reading,
    policy: Policy,
    *,
    today: date,
    baseline: Baseline | None = None,
    tolerance: Tolerance | None = None,
    min_coverage: float = 0.0,
    recording: bool = False,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
) -> Result:
    """Every rule of ``policy`` at every place of its scope: one row each.

    A share of layers read below ``min_coverage`` makes the result inconclusive. ``recording``: a
    first baseline is to be made of it, so what asks for one only passes. Raises
    PolicyError for a policy without rules, one that needs data and names none, and a rule that
    matches several rows without a scope.
    """
    if not policy.rules:
        raise PolicyError(
            f"{policy.source or 'the policy'} has no rule, so there is nothing to check",
            "add a [[rule]], pass --require, or write a policy with `pjdiag gate --init`",
        )
    found = measured(reading, policy, allow_pickle=allow_pickle, progress=progress)
    evaluation = Evaluation(policy, today, baseline, tolerance or Tolerance(), recording)
    checked = evaluation.checked(found.results, found.missing)
    low = reading.coverage < min_coverage
    reasons = [f"coverage is {reading.coverage:.0%}, below {min_coverage:.0%}"] if low else []
    warnings = [text for result in found.results.values() for text in result.warnings]
    return outcome(
        reading,
        NAME,
        checked.rows,
        _skipped(found.results.values()),
        dict.fromkeys(
            text
            for text in (*warnings, *checked.warnings, *reasons)
            if text not in reading.warnings
        ),
        policy=policy.source,
        policy_uri=None if policy.source is None else from_root(policy.source),
        checkpoint_uri=from_root(reading.checkpoint.path),
        diagnostics=[*found.results, *found.missing],
        baseline=None if baseline is None else baseline.source,
        tolerance=None if baseline is None else str(tolerance or Tolerance()),
        inconclusive=reasons,
    )


def _skipped(results: Iterable[Result]) -> list[Skipped]:
    """What any of the diagnostics left out, once."""
    return list(dict.fromkeys(entry for result in results for entry in result.skipped))
