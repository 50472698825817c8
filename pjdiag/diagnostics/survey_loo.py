"""Leaving parts out of the running model for a report: few windows, and no longer than agreed."""

from __future__ import annotations

import os
from typing import Any

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.ledger import Ledger
from pjdiag.diagnostics.progress import Announce, Estimate, Progress, no_progress
from pjdiag.errors import UsageError
from pjdiag.results import Result

LOO_ON_DATA = "loo on data"
"""What a survey calls it, beside ``loo`` of the kernel alone."""
WINDOWS = (32, 8, 2)
"""At most so many windows; fewer where they would take longer than ``LONGEST``."""
LONGEST = 120.0
"""Seconds."""
SINGLE = ("fj:", "lc:")
"""Removals that a report leaves to the command: one sector's orders."""


class _TooLongError(Exception):
    """The run would take ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def loo_on_data(
    reading: Reading,
    data: str | os.PathLike[str],
    *,
    seed: int,
    allow_pickle: bool,
    announce: Announce,
    progress: Progress = no_progress,
    ledger: Ledger | None = None,
) -> tuple[tuple[str, ...], Result]:
    """What the model loses without whole orders, sectors and bands; with the command's options.

    Raises UsageError where even the fewest windows would take longer than ``LONGEST`` seconds,
    and what ``model_leave_one_out`` raises.
    """
    from pjdiag.diagnostics.model_loo import known_removals, model_leave_one_out

    chosen = [name for name in known_removals(reading) if not name.startswith(SINGLE)]
    given: dict[str, Any] = {"remove": chosen or None, "seed": seed, "allow_pickle": allow_pickle}
    kept = Ledger() if ledger is None else ledger
    before = _windows_of(kept)  # to go on with: whether they take too long was asked before
    needed = 0.0
    for windows in (before,) if before is not None else WINDOWS:
        told = _within(announce) if before is None else announce
        try:
            result = model_leave_one_out(
                reading,
                data,
                windows=windows,
                announce=told,
                progress=progress,
                ledger=kept,
                **given,
            )
        except _TooLongError as error:
            needed = error.seconds
            continue
        words = [word for name in chosen for word in ("--remove", name)]
        seeded = ["--seed", str(seed)] if seed else []
        return (*words, "--windows", str(windows), *seeded), result
    raise UsageError(
        f"{WINDOWS[-1]} windows would take about {needed:.0f} s; a report spends at most "
        f"{LONGEST:.0f}",
        "run `pjdiag loo --data FILE` by itself",
    )


def _windows_of(ledger: Ledger) -> int | None:
    """The choice among ``WINDOWS`` of the run that ``ledger`` goes on from; None without one."""
    if ledger.goes_on_from is None:
        return None
    read = max(ledger.goes_on_from["windows"].values())
    return min(each for each in WINDOWS if each >= read)


def _within(announce: Announce) -> Announce:
    """``announce``, for runs that do not take too long; others end here."""

    def told(estimate: Estimate) -> None:
        if estimate.seconds is not None and estimate.seconds > LONGEST:
            raise _TooLongError(estimate.seconds)
        announce(estimate)

    return told
