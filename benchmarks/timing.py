"""Whole-process times of commands that take turns, so that a drifting machine hits all alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One finished process."""

    wall: float
    """Seconds from start to exit."""
    cpu: float
    """User and system seconds."""


def run(command: Sequence[str]) -> Run:
    """Run ``command`` once, its output thrown away. Raises RuntimeError where it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}")
    return Run(wall, usage.ru_utime + usage.ru_stime)


def take_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Run]]:
    """``rounds`` runs of each command in turn, after one run of each that is not counted."""
    for command in commands.values():
        run(command)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            runs[name].append(run(command))
    return runs


def compare(runs: Mapping[str, Sequence[Run]], ours: str, peer: str, target: float) -> bool:
    """Print medians and the ratio of ``ours`` to ``peer``; True where it is within ``target``.

    The ratio is the median of the rounds' own ratios. CPU time decides: on a shared machine wall
    time also measures the neighbours.
    """
    for name in (peer, ours):
        wall, cpu = (
            statistics.median(getattr(run, figure) for run in runs[name])
            for figure in ("wall", "cpu")
        )
        print(f"  {name}: {wall:.3f} s wall, {cpu:.3f} s CPU")
    wall, cpu = (
        [
            getattr(a, figure) / getattr(b, figure)
            for a, b in zip(runs[ours], runs[peer], strict=True)
        ]
        for figure in ("wall", "cpu")
    )
    return judge(
        f"{len(cpu)} rounds, {min(cpu):.2f} to {max(cpu):.2f}; by wall time "
        f"{statistics.median(wall):.2f}",
        statistics.median(cpu),
        target,
    )


def judge(how: str, ratio: float, target: float) -> bool:
    """Print a ratio beside its target; True where it is within."""
    met = ratio <= target
    print(f"  ratio {ratio:.2f} ({how}); target at most {target:g}: {'met' if met else 'MISSED'}")
    return met
