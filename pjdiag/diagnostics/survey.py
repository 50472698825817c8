"""Every diagnostic that applies to a checkpoint, and why the others do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pjdiag.adapters.protocol import Reading
from pjdiag.arguments import require_path
from pjdiag.diagnostics.kernel_curves import KernelCurves, kernel_curves
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.progress import Progress
from pjdiag.errors import DataError, PjdiagError
from pjdiag.results import Result

LONGEST = 32_768
"""Tokens of the longest window, unless lengths are given."""
MANY_HEADS = 64
"""From so many heads on, windows reach 4 train lengths only: a report must not take an hour."""
WINDOWS = (1, 4, 16)
"""Windows in train lengths, before the longest."""
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


def survey(
    reading: Reading,
    data: str | os.PathLike[str] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    decision: bool = False,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress,
) -> Survey:
    """Run what applies; a diagnostic that refuses is left out with its reason.

    ``lengths`` in tokens: windows of energy and stability, the first two those of loo, the
    longest that of probe; without them the train length, multiples of it and 32,768. Raises
    UsageError for such a length below 2, and DataError where there is no file ``data``.
    """
    chosen = list(check_lengths(lengths)) if lengths is not None else _windows(reading)
    if data is not None:
        require_path(data, "data")
    if data is not None and not Path(data).is_file():
        raise DataError(f"{str(data)!a} is not a file", "pass a text, or leave it out")
    plan = _plan(reading, data, chosen, decision, seed, allow_pickle)
    measured: dict[str, Measured] = {}
    left_out = {} if data is not None else dict.fromkeys(("nll", "kernel"), NEEDS_DATA)
    for done, (name, (options, measure)) in enumerate(plan.items()):
        progress(done / (len(plan) + 1))
        try:
            result = measure()
        except PjdiagError as error:
            left_out[name] = error.message
            continue
        measured[name] = Measured(result, options)
        if not result.rows:
            left_out[name] = _reason(result)
    curves = _curves(reading)
    progress(len(plan) / (len(plan) + 1))
    probed = measured.get("probe")
    compared = _variants() if probed is not None and probed.result.rows else None
    progress(1.0)
    return Survey(measured, left_out, curves, compared)


def _plan(
    reading: Reading,
    data: str | os.PathLike[str] | None,
    lengths: list[int],
    decision: bool,
    seed: int,
    allow_pickle: bool,
) -> dict[str, tuple[tuple[str, ...], Callable[[], Result]]]:
    """Diagnostic -> the options of its command, and how to measure it."""
    from pjdiag.diagnostics.energy import energy
    from pjdiag.diagnostics.inspection import inspect
    from pjdiag.diagnostics.leave_one_out import leave_one_out
    from pjdiag.diagnostics.mass import mass
    from pjdiag.diagnostics.retrieval import probe
    from pjdiag.diagnostics.spectrum import spectrum
    from pjdiag.diagnostics.stability import stability

    asked = ("--length", ",".join(map(str, lengths))) if lengths else ()
    longest = max(lengths, default=LONGEST)
    seeded = ("--seed", str(seed)) if seed else ()
    decided = () if decision else ("--no-decision",)
    windows = lengths or None
    near = lengths[:2] or None
    near_asked = ("--length", ",".join(map(str, near))) if near else ()
    plan: dict[str, tuple[tuple[str, ...], Callable[[], Result]]] = {
        "inspect": ((), lambda: inspect(reading)),
        "mass": ((), lambda: mass(reading)),
        "energy": (asked, lambda: energy(reading, windows)),
        "loo": (near_asked, lambda: leave_one_out(reading, lengths=near)),
        "probe": (
            ("--length", str(longest), *decided, *seeded),
            lambda: probe(reading, [longest], decision=decision, seed=seed),
        ),
        "stability": (asked, lambda: stability(reading, windows)),
        "spectrum": ((), lambda: spectrum(reading)),
    }
    if data is not None:
        plan |= _on_data(reading, data, seeded, seed, allow_pickle)
    return plan


def _on_data(
    reading: Reading,
    data: str | os.PathLike[str],
    seeded: tuple[str, ...],
    seed: int,
    allow_pickle: bool,
) -> dict[str, tuple[tuple[str, ...], Callable[[], Result]]]:
    from pjdiag.diagnostics.measured_kernel import kernel
    from pjdiag.diagnostics.nll import nll

    return {
        "nll": (seeded, lambda: nll(reading, data, seed=seed, allow_pickle=allow_pickle)),
        "kernel": (seeded, lambda: kernel(reading, data, seed=seed, allow_pickle=allow_pickle)),
    }


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
