"""What is measured on a run: the figures of the diagnostics, once."""

from __future__ import annotations

import numpy as np
import pytest

import pjdiag
from pjdiag.lab.experiments import run_figures
from pjdiag.lab.experiments.base import chosen, row
from pjdiag.lab.experiments.run_figures import (
    HIGH_ORDERS,
    Wanted,
    losses,
    measured,
    over_seeds,
    removals,
    shares,
)
from pjdiag.lab.experiments.training_runs import TrainingRun, train_all

from .trained import parts_of, quick_setting, small_stream, use_small_streams

FULL, ROPE = (TrainingRun("tinyshakespeare", method, 0, quick=True) for method in ("full", "rope"))
SIZE = 2048


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two trained runs."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        use_small_streams(patch)
        train_all([FULL, ROPE], place, None, 1, lambda line: None)
    return place


@pytest.fixture
def small(monkeypatch):
    use_small_streams(monkeypatch)


def test_every_length_predicts_the_same_bytes(folder, small):
    for length in (128, 512, 2048):
        [found] = losses(ROPE, folder, None, length, SIZE, False)
        ids = np.frombuffer(small_stream("tinyshakespeare").test[: SIZE + 1], np.uint8)
        path = ROPE.folder(folder) / "model.safetensors"
        table = pjdiag.nll(path, ids, [length])
        assert found["value"] == table.select(bucket="all", scope="model")[0]["nll"]
        assert found["n"] * length == SIZE
        assert (found["ci_low"] is None) == (length == SIZE)


def test_a_long_window_is_told_by_position_too(folder, small):
    found = losses(ROPE, folder, None, 512, SIZE, True)
    parts = {each["part"]: each["value"] for each in found}
    assert set(parts) == {None, "bucket:train", "bucket:x1_4"}
    weighted = (128 * parts["bucket:train"] + 384 * parts["bucket:x1_4"]) / 512
    assert parts[None] == pytest.approx(weighted)


def test_shares_are_whole_and_the_high_orders_are_summed(folder, small):
    rows = [row("x", "a", **each) for each in shares(FULL, folder, (128,))]
    for figure in ("sector_share", "energy_share"):
        found = [r for r in chosen(rows, figure=figure) if r["part"].startswith("sector:")]
        assert len(found) == 3
        assert sum(each["value"] for each in found) == pytest.approx(1, abs=1e-5)
    for figure in ("order_share", "energy_share"):
        orders = [chosen(rows, figure=figure, part=f"order:{r}")[0]["value"] for r in range(4)]
        [high] = chosen(rows, figure=figure, part=HIGH_ORDERS)
        assert sum(orders) == pytest.approx(1, abs=1e-5)
        assert high["value"] == pytest.approx(1 - orders[0], abs=1e-5)
    assert len(chosen(rows, figure="mean_order")) == 1


def test_a_run_without_a_bias_has_neither_shares_nor_removals(folder, small):
    assert shares(ROPE, folder, (128,)) == []
    assert removals(ROPE, folder, None, 128, SIZE) == []


def test_removals_are_those_of_the_diagnostic(folder, small):
    found = removals(FULL, folder, None, 128, 512)
    ids = np.frombuffer(small_stream("tinyshakespeare").test[:513], np.uint8)
    path = FULL.folder(folder) / "model.safetensors"
    table = pjdiag.loo(path, ids, lengths=[128], remove=["sector:affine", HIGH_ORDERS])
    for each in table.select(scope="model"):
        figures = {e["figure"]: e for e in found if e["part"] == each["removed"]}
        assert figures["loo_delta_nll"]["value"] == each["loo_delta_nll"]
        assert figures["control_delta_nll"]["ci_low"] == each["control_low"]
    sectors = {f"sector:{name}" for name in ("fj", "affine", "lc")}
    assert {each["part"] for each in found} == {
        *sectors,
        *map("order:{}".format, range(4)),
        HIGH_ORDERS,
    }


def test_a_run_is_measured_once_whatever_experiment_asks(folder, small):
    wanted = Wanted((128,), windows=(128,), loo_length=128, test_bytes=512)
    lines: list[str] = []
    setting = quick_setting(folder, lines.append)
    first = measured("language", [FULL], setting, parts_of(folder), wanted)
    told = len(lines)
    again = measured("music", [FULL], setting, parts_of(folder), wanted)
    assert lines[told:] == ["1 of 1 trainings are finished"]
    assert [{**each, "experiment": "music"} for each in first] == again
    assert {each["subject"] for each in first} == {"tinyshakespeare"}
    assert {(each["variant"], each["seed"]) for each in first} == {("full", 0)}
    other = Wanted((128,), windows=(128,), loo_length=128, test_bytes=256)
    measured("music", [FULL], setting, parts_of(folder), other, ("nll",))
    assert lines[-1] == "music: 1 of at most 1, nll/tinyshakespeare-full-s0/128"


def test_an_interrupted_measurement_goes_on(folder, small, monkeypatch):
    wanted = Wanted((128, 256), windows=(128,), loo_length=128, test_bytes=768)
    lines: list[str] = []

    def stop(line: str) -> None:
        if line.startswith("x: 1 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured("x", [ROPE], quick_setting(folder, stop), parts_of(folder), wanted, ("nll",))
    rows = measured(
        "x", [ROPE], quick_setting(folder, lines.append), parts_of(folder), wanted, ("nll",)
    )
    assert lines[1:] == ["x: 1 of at most 2, nll/tinyshakespeare-rope-s0/256"]
    assert [each["eval_length"] for each in rows] == [128, 256]


def test_seeds_are_averaged_where_there_are_two():
    rows = [row("x", "a", "nll", v, variant="full", seed=s) for s, v in enumerate((1.0, 2.0, 3.0))]
    rows += [row("x", "a", "nll", 5.0, variant="rope", seed=0)]
    [found] = over_seeds(rows)
    assert (found["value"], found["n"], found["seed"]) == (2.0, 3, None)
    assert found["ci_high"] == pytest.approx(2 + 4.30265 / 3**0.5, rel=1e-5)
    assert run_figures.TEST_BYTES == 256 * 128
