"""Every diagnostic that applies to a checkpoint, and why the others do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pjdiag.adapters.protocol import Reading
from pjdiag.arguments import require_path
from pjdiag.diagnostics.kernel_curves import KernelCurves, kernel_curves
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.ledger import CARRIER, Ledger, identity_of
from pjdiag.diagnostics.outcome import tool_version
from pjdiag.diagnostics.progress import Announce, Progress, no_announcement
from pjdiag.diagnostics.rotary_only import massless
from pjdiag.diagnostics.survey_loo import LOO_ON_DATA, loo_on_data
from pjdiag.diagnostics.windows import read_bytes
from pjdiag.errors import DataError, PjdiagError
from pjdiag.results import Result

LONGEST = 32_768
"""Tokens of the longest window, unless lengths are given."""
MANY_HEADS = 64
"""From so many heads on, windows reach 4 train lengths only: a report must not take an hour."""
WINDOWS = (1, 4, 16)
"""Windows in train lengths, before the longest."""
ON_DATA = ("nll", "kernel", LOO_ON_DATA)
NEEDS_DATA = "it needs a text; none was given"


@dataclass(frozen=True)
class Measured:
    """A result and the options that give the same figures again."""

    result: Result
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """What is known about one checkpoint."""

    measured: dict[str, Measured]
    """By diagnostic."""
    left_out: dict[str, str]
    """Diagnostic -> why it has no figures."""
    curves: KernelCurves | None
    variants: Result | None
    """The probe of the named coordinates, where the checkpoint has one to compare."""

    @property
    def bad_values(self) -> bool:
        """True where a head was left out for values that are NaN or infinite."""
        return any(
            entry.bad_values for found in self.measured.values() for entry in found.result.skipped
        )


def require_text(data: str | os.PathLike[str] | None) -> None:
    """Raises UsageError for what is no path, DataError where it is no file; None is no text."""
    if data is None:
        return
    require_path(data, "data")
    if not Path(data).is_file():
        raise DataError(f"{str(data)!a} is not a file", "pass a text, or leave it out")


def survey(
    reading: Reading,
    data: str | os.PathLike[str] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    decision: bool = False,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Survey:
    """Run what applies; a diagnostic that refuses is left out with its reason.

    ``lengths`` in tokens: windows of energy and stability, the first two those of loo, the
    longest that of probe; without them the train length, multiples of it and 32,768. On ``data``
    parts are left out of the running model as well, with few windows; ``announce`` is told what
    that and the loss will take. The spectrum of PoPE is on ``data``: its weights have none.
    ``ledger`` keeps each diagnostic's result, and of the one that is stopped on ``data`` its parts.
    Raises UsageError for such a length below 2, DataError where there is no file ``data``, and
    Interrupted where a KeyboardInterrupt ends the run.
    """
    chosen = list(check_lengths(lengths)) if lengths is not None else _windows(reading)
    require_text(data)
    plan = _plan(reading, chosen, decision, seed)
    if data is not None:
        plan |= _on_data(reading, data, seed, allow_pickle, announce)
    kept = Ledger() if ledger is None else ledger
    kept.begin(_identity(reading, data, chosen, decision, seed), len(plan))
    found: list[Survey] = []
    with kept.stoppable():
        left_out = {} if data is not None else dict.fromkeys(ON_DATA, NEEDS_DATA)
        measured = _measured(plan, kept, left_out, progress)
        curves = _curves(reading)
        progress(len(plan) / (len(plan) + 1))
        probed = measured.get("probe")
        compared = _variants() if probed is not None and probed.result.rows else None
        progress(1.0)
        found.append(Survey(measured, left_out, curves, compared))
    kept.finish(Result(CARRIER, {}, {}, ()))
    return found[0]


Measure = Callable[[Ledger, Progress], tuple[tuple[str, ...], Result]]
"""Gives the options of a diagnostic's command, and its result."""
Plan = dict[str, Measure]
"""By diagnostic."""


def _measured(
    plan: Plan, ledger: Ledger, left_out: dict[str, str], progress: Progress
) -> dict[str, Measured]:
    """Every diagnostic of ``plan`` that does not refuse; ``left_out`` is told why others have no
    figures.
    """
    measured: dict[str, Measured] = {}
    for done, (name, measure) in enumerate(plan.items()):
        start = done / (len(plan) + 1)
        progress(start)
        within = partial(_within, progress, start, 1 / (len(plan) + 1))
        try:
            measured[name] = _one(name, measure, ledger, within)
        except PjdiagError as error:
            left_out[name] = error.message
            continue
        if not measured[name].result.rows:
            left_out[name] = _reason(measured[name].result)
    return measured


def _within(progress: Progress, start: float, size: float, share: float) -> None:
    progress(start + size * share)


def _one(name: str, measure: Measure, ledger: Ledger, progress: Progress) -> Measured:
    """One diagnostic's result: that which is kept, or a new one."""
    kept = ledger.figures.get(name)
    if kept is not None:
        return Measured(Result.from_dict(kept["result"]), tuple(kept["options"]))
    inner = ledger.inner(name)
    with ledger.keeping(name, inner):
        options, result = measure(inner, progress)
    ledger.part(name, lambda: {"options": list(options), "result": result.to_dict()})
    return Measured(result, options)


def _identity(
    reading: Reading,
    data: str | os.PathLike[str] | None,
    lengths: list[int],
    decision: bool,
    seed: int,
) -> dict[str, Any]:
    """All that the figures of a survey depend on."""
    return {
        "survey": tool_version(),
        "checkpoint": identity_of(reading.checkpoint),
        "train_length": reading.train_length.value,
        "data": None if data is None else [os.fspath(data), read_bytes(data).digest],
        "lengths": lengths,
        "decision": decision,
        "seed": seed,
    }


def _plan(reading: Reading, lengths: list[int], decision: bool, seed: int) -> Plan:
    """What needs no data; how to measure each."""
    from pjdiag.diagnostics.energy import energy
    from pjdiag.diagnostics.inspection import inspect
    from pjdiag.diagnostics.leave_one_out import leave_one_out
    from pjdiag.diagnostics.mass import mass
    from pjdiag.diagnostics.retrieval import probe
    from pjdiag.diagnostics.spectrum import spectrum
    from pjdiag.diagnostics.stability import stability

    asked = ("--length", ",".join(map(str, lengths))) if lengths else ()
    longest = max(lengths, default=LONGEST)
    decided = () if decision else ("--no-decision",)
    windows = lengths or None
    near = lengths[:2] or None
    near_asked = ("--length", ",".join(map(str, near))) if near else ()
    return {
        "inspect": lambda *_: ((), inspect(reading)),
        "mass": lambda *_: ((), mass(reading)),
        "energy": lambda *_: (asked, energy(reading, windows)),
        "loo": lambda *_: (near_asked, leave_one_out(reading, lengths=near)),
        "probe": lambda *_: (
            ("--length", str(longest), *decided, *_seeded(seed)),
            probe(reading, [longest], decision=decision, seed=seed),
        ),
        "stability": lambda *_: (asked, stability(reading, windows)),
        "spectrum": lambda *_: ((), spectrum(reading)),
    }


def _on_data(
    reading: Reading,
    data: str | os.PathLike[str],
    seed: int,
    allow_pickle: bool,
    announce: Announce,
) -> Plan:
    from pjdiag.diagnostics.measured_kernel import kernel
    from pjdiag.diagnostics.nll import nll
    from pjdiag.diagnostics.spectrum import spectrum

    given: dict[str, Any] = {"seed": seed, "allow_pickle": allow_pickle}
    plan: Plan = {}
    if massless(reading):
        plan["spectrum"] = lambda _, told: (
            (),
            spectrum(reading, data, allow_pickle=allow_pickle, progress=told),
        )
    return plan | {
        "nll": lambda kept, told: (
            _seeded(seed),
            nll(reading, data, announce=announce, progress=told, ledger=kept, **given),
        ),
        "kernel": lambda kept, told: (
            _seeded(seed),
            kernel(reading, data, progress=told, ledger=kept, **given),
        ),
        LOO_ON_DATA: lambda kept, told: loo_on_data(
            reading, data, announce=announce, progress=told, ledger=kept, **given
        ),
    }


def _seeded(seed: int) -> tuple[str, ...]:
    return ("--seed", str(seed)) if seed else ()


def _windows(reading: Reading) -> list[int]:
    """Train lengths and multiples; empty where the train length is unknown."""
    length = reading.train_length.value
    if length is None:
        return []
    counts = [layer.num_heads.value or 0 for layer in reading.layers]
    few = sum(counts) <= MANY_HEADS
    wanted = [length * times for times in (WINDOWS if few else WINDOWS[:2])]
    wanted += [LONGEST] if few else []
    return sorted({length, *(min(each, LONGEST) for each in wanted)})


def _curves(reading: Reading) -> KernelCurves | None:
    try:
        return kernel_curves(reading)
    except PjdiagError:
        return None


def _variants() -> Result:
    from pjdiag.diagnostics.retrieval import probe_variants

    return probe_variants([LONGEST], precisions=("fp32",), decision=False)


def _reason(result: Result) -> str:
    reasons = list(dict.fromkeys(entry.reason for entry in result.skipped))
    return "; ".join(reasons[:3]) or "no bias is added to its logits"
