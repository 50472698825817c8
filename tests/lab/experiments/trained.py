"""Small texts and few steps for the tests of trained experiments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pjdiag.lab.experiments import training_runs
from pjdiag.lab.experiments.base import Parts, Setting
from pjdiag.lab.streams import STREAMS, Stream, text_stream
from pjdiag.samples import held_out_text

TEXT = Path(held_out_text()).read_bytes()


def small_stream(name: str, kind: str = "language") -> Stream:
    """A stream of 12 kB, another text for another name."""
    start = 1000 * (sum(name.encode()) % 60)
    made = text_stream(name, TEXT[start : start + 12_000], "a play")
    # A longer test part, so that it has windows.
    return Stream(name, kind, made.corpus, TEXT[-3_000:], made.source)


def use_small_streams(patch: pytest.MonkeyPatch, steps: int = 3) -> None:
    """Every stream is small, and quick runs have ``steps`` steps."""
    for name in STREAMS:
        kind = "music" if name in ("chorales", "folk") else "language"
        patch.setitem(STREAMS, name, lambda _, n=name, k=kind: small_stream(n, k))
    patch.setattr(training_runs, "QUICK_STEPS", steps)


def quick_setting(folder: Path, report: Callable[[str], None] = lambda line: None) -> Setting:
    """A quick run in this process."""
    return Setting(folder, None, quick=True, workers=1, report=report)


def parts_of(folder: Path) -> Parts:
    """The parts of one experiment."""
    return Parts(folder / "parts" / "x", {"quick": True, "tool_version": "1", "experiment": "x"})
