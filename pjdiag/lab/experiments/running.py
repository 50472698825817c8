"""Running experiments one after another; finished parts are never measured again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pjdiag.diagnostics.outcome import tool_version
from pjdiag.errors import PjdiagError
from pjdiag.lab.experiments.base import Experiment, Parts, Setting, outcome
from pjdiag.lab.experiments.registry import experiment
from pjdiag.lab.native import write_atomically
from pjdiag.lab.words import duration
from pjdiag.results import Result, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = "quick"
"""Folder of quick runs, within the others' folder: neither ever stands for the other."""


def reproduce(names: Sequence[str], setting: Setting) -> Result:
    """The experiments ``names`` as one Result; each one's own is in ``results/`` as well.

    Of several experiments one that cannot run does not stop the others: a warning names it.
    Raises what a single one raises.
    """
    if setting.quick:
        setting = replace(setting, folder=setting.folder / QUICK)
    finished: list[tuple[Experiment, list[Row], float]] = []
    warnings: list[str] = []
    with _one_thread():
        for name in names:
            try:
                done = run_one(experiment(name), setting)
            except PjdiagError as error:
                if len(names) == 1:
                    raise
                warnings.append(f"{name} did not run: {error.message}")
                setting.report(warnings[-1])
                continue
            finished.append(done)
            _keep(outcome([done], quick=setting.quick), setting.folder / "results" / f"{name}.json")
    return outcome(finished, quick=setting.quick, warnings=warnings, workers=setting.workers)


def run_one(chosen: Experiment, setting: Setting) -> tuple[Experiment, list[Row], float]:
    """The experiment, its rows, and the minutes of processor time of its parts."""
    identity = {
        "experiment": chosen.name,
        "quick": setting.quick,
        "seeds": list(chosen.seeds),
        "tool_version": tool_version(),
    }
    parts = Parts(setting.folder / "parts" / chosen.name, identity)
    setting.report(f"{chosen.name}: {chosen.question}")
    rows = chosen.run(setting, parts)
    minutes = parts.seconds / 60
    setting.report(f"{chosen.name}: done, {duration(minutes)} of processor time")
    return chosen, rows, minutes


@contextmanager
def _one_thread() -> Iterator[None]:
    """torch computes in one thread, so that a figure does not depend on the machine's cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _keep(result: Result, path: Path) -> None:
    text = result.to_json()
    write_atomically(path, lambda temporary: _write(temporary, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
