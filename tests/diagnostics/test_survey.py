"""A stopped report: what is kept, and that going on gives the page of an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pjdiag
from pjdiag.diagnostics.ledger import Interrupted, Ledger
from pjdiag.diagnostics.progress import no_progress
from pjdiag.errors import DataError, UsageError
from pjdiag.render.html.page import report_page
from pjdiag.report_api import surveyed
from pjdiag.results import Result
from pjdiag.samples import held_out_text

LENGTHS = [64, 128]
PARTS = 10


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(held_out_text().read_bytes()[:3000])
    return path


def page(text: Path, ledger: Ledger | None = None, progress: object = no_progress) -> str:
    return report_page(
        surveyed(pjdiag.sample(), text, LENGTHS, seed=3, ledger=ledger, progress=progress)  # type: ignore[arg-type]
    )


def stop_at(share: float) -> Callable[[float], None]:
    """A progress callback that presses Ctrl-C once so much is done."""

    def progress(done: float) -> None:
        if done >= share:
            raise KeyboardInterrupt

    return progress


def stopped(text: Path, share: float, ledger: Ledger | None = None) -> Result:
    with pytest.raises(Interrupted) as caught:
        page(text, ledger, stop_at(share))
    return Result.from_json(caught.value.result.to_json())


def test_going_on_gives_the_page_of_an_undisturbed_run(text: Path) -> None:
    """Stopped between diagnostics, within the loss, and within the removals."""
    whole = page(text)
    found: Result | None = None
    for part, name in ((2.0, None), (7.3, "nll"), (9.5, "loo on data")):
        found = stopped(text, part / (PARTS + 1), Ledger(found))
        kept = found.provenance["partial"]
        assert kept["finished"] == int(part)
        assert list(kept.get("unfinished", {})) == ([name] if name else [])
    heard: list[tuple[int, int]] = []
    assert page(text, Ledger(found, lambda *told: heard.append(told))) == whole
    assert heard == [(9, PARTS)]


def test_damage_to_the_parts_of_an_unfinished_part_is_noticed(text: Path) -> None:
    found = stopped(text, 7.3 / (PARTS + 1)).to_dict()
    inner = found["provenance"]["partial"]["unfinished"]["nll"]["provenance"]["partial"]
    inner["figures"].clear()
    with pytest.raises(DataError, match="changed since it was written"):
        Ledger(Result.from_dict(found))


def test_the_same_text_under_another_name_is_another_run(text: Path) -> None:
    """The page names its text; no diagnostic is left out because its own parts name another."""
    found = stopped(text, 7.3 / (PARTS + 1))
    other = text.with_name("other.txt")
    other.write_bytes(text.read_bytes())
    with pytest.raises(UsageError, match="another run: data differ"):
        page(other, Ledger(found))
