"""Stopped runs: what is kept, that it says so, and that going on changes no figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import pjdiag
from pjdiag.diagnostics.ledger import Interrupted, Ledger, identity_of
from pjdiag.errors import DataError, UsageError
from pjdiag.results import Result
from tests.diagnostics.runnable import runnable

TEXT = bytes((31 * i * i + 7 * i) % 256 for i in range(4000))
LENGTHS = [64, 150]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return runnable(tmp_path / "m.safetensors", "full")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.bin"
    path.write_bytes(TEXT)
    return path


def stop_after(parts: int) -> Callable[[float], None]:
    """A progress callback that presses Ctrl-C once so many parts are done."""
    told: list[float] = []

    def progress(share: float) -> None:
        told.append(share)
        if len(told) == parts:
            raise KeyboardInterrupt

    return progress


def stopped(checkpoint: Path, text: Path, after: int, earlier: Result | None = None) -> Result:
    with pytest.raises(Interrupted) as caught:
        pjdiag.nll(
            checkpoint,
            text,
            LENGTHS,
            batch=10,
            attention=True,
            progress=stop_after(after),
            ledger=Ledger(earlier),
        )
    return caught.value.result


@pytest.mark.parametrize("after", [1, 6, 8])
def test_going_on_gives_the_figures_of_an_undisturbed_run(
    checkpoint: Path, text: Path, after: int
) -> None:
    whole = pjdiag.nll(checkpoint, text, LENGTHS, batch=10, attention=True)
    partial = Result.from_json(stopped(checkpoint, text, after).to_json())
    again = pjdiag.nll(checkpoint, text, LENGTHS, batch=10, attention=True, ledger=Ledger(partial))
    assert again.to_json() == whole.to_json()


def test_a_run_may_be_stopped_twice(checkpoint: Path, text: Path) -> None:
    first = stopped(checkpoint, text, 2)
    second = stopped(checkpoint, text, 4, first)
    assert second.provenance["partial"]["finished"] == 4
    again = pjdiag.nll(checkpoint, text, LENGTHS, batch=10, attention=True, ledger=Ledger(second))
    whole = pjdiag.nll(checkpoint, text, LENGTHS, batch=10, attention=True)
    assert again.to_json() == whole.to_json()


def test_a_partial_result_says_so(checkpoint: Path, text: Path) -> None:
    result = stopped(checkpoint, text, 2)
    assert result.warnings[0] == "interrupted: 2 of 10 parts are in this result"
    assert {row["eval_length"] for row in result.rows} == {64}
    assert {row["windows"] for row in result.rows} == {20}
    assert json.loads(result.to_json())["provenance"]["partial"]["parts"] == 10


def test_nothing_finished_is_a_result_without_rows(checkpoint: Path, text: Path) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    ledger = Ledger()
    ledger.begin({}, 1)
    with ledger.stoppable():
        stop(None)
    with pytest.raises(Interrupted) as caught:
        ledger.finish(Result("nll", {}, {}, ()))
    assert caught.value.result.rows == ()


def test_another_run_does_not_go_on(checkpoint: Path, text: Path, tmp_path: Path) -> None:
    partial = stopped(checkpoint, text, 2)
    with pytest.raises(UsageError, match="another run: batch"):
        pjdiag.nll(checkpoint, text, LENGTHS, batch=9, attention=True, ledger=Ledger(partial))
    other = runnable(tmp_path / "other.safetensors", "full", seed=5)
    with pytest.raises(UsageError, match="another run: checkpoint differ"):
        pjdiag.nll(other, text, LENGTHS, batch=10, attention=True, ledger=Ledger(partial))


def test_damage_is_noticed(checkpoint: Path, text: Path) -> None:
    partial = stopped(checkpoint, text, 2).to_dict()
    partial["provenance"]["partial"]["figures"]["64/0"]["losses"][0][0] += 1.0
    with pytest.raises(DataError, match="changed since it was written"):
        Ledger(Result.from_dict(partial))


def test_only_a_partial_result_can_be_gone_on_from(checkpoint: Path, text: Path) -> None:
    whole = pjdiag.nll(checkpoint, text, [64])
    with pytest.raises(DataError, match="no partial one"):
        Ledger(whole)
    with pytest.raises(DataError, match="no partial one"):
        Ledger(replace(whole, provenance={"partial": {"of": 3, "figures": {}}}))


def test_figures_that_are_not_finite_survive() -> None:
    ledger = Ledger()
    ledger.begin({}, 2)
    with ledger.stoppable():
        ledger.part("a", lambda: [float("nan"), float("inf"), 1.0])
        raise KeyboardInterrupt
    with pytest.raises(Interrupted) as caught:
        ledger.finish(Result("nll", {}, {}, ()))
    again = Ledger(Result.from_json(caught.value.result.to_json()))
    again.begin({}, 2)
    assert again.figures["a"] == [None, None, 1.0]


def test_weights_that_change_in_place_are_another_checkpoint(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pjdiag.checkpoint.source.DIGEST_LIMIT", 0)
    before = identity_of(pjdiag.load(checkpoint))
    assert before.startswith("sha256-header:")
    assert identity_of(pjdiag.load(checkpoint)) == before
    raw = bytearray(checkpoint.read_bytes())
    raw[-100:] = bytes(100)
    checkpoint.write_bytes(raw)
    assert identity_of(pjdiag.load(checkpoint)) != before
