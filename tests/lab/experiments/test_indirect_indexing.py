"""The rows and claims of indirect indexing, and its runs from end to end at a tiny size."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pjdiag
from pjdiag.errors import UsageError
from pjdiag.lab.experiments.base import chosen, stated
from pjdiag.lab.experiments.indirect_indexing import (
    EXPERIMENT,
    evenness,
    others,
    pope_beats_rope,
    pope_learns,
    pope_uses_more,
    rope_fails,
    rows_of,
)
from pjdiag.lab.experiments.indirect_runs import command_of, measured_run, run_folder
from pjdiag.lab.experiments.indirect_training import TASK, recipe_of, some_problems
from pjdiag.lab.recipe import TrainRecipe
from pjdiag.lab.samples import INDIRECT, make_sample
from pjdiag.models.config import ModelConfig
from pjdiag.results import Row


def crafted(accuracy: float, local: float, *, weights: bool = True) -> dict[str, Any]:
    def spectrum(share: float) -> dict[str, Any]:
        channels = [{"weights": x if weights else None, "data": x} for x in (share, 1 - share)]
        return {
            "wavelengths": [6.0, 60.0],
            "bands": {"local": channels[0], "mid": channels[1]},
            "channels": channels,
        }

    return {
        "test": {
            "accuracy": accuracy,
            "interval": [accuracy - 0.01, accuracy + 0.01],
            "loss": 1.0,
            "problems": 800,
            "by_offset": [
                {"offset": d, "accuracy": accuracy, "interval": [0.0, 1.0]} for d in TASK.offsets
            ],
        },
        "history": [{"step": 10 * n, "held_out_loss": 1 / n} for n in range(1, 31)],
        "parameters": 1000,
        "minutes": 2.0,
        "trained": spectrum(local),
        "untrained": spectrum(0.5),
    }


def rows(
    pope: list[float], rope: list[float], local: tuple[float, float] = (0.5, 0.1)
) -> list[Row]:
    measured = {("pope", seed): crafted(x, local[0], weights=False) for seed, x in enumerate(pope)}
    measured |= {("rope", seed): crafted(x, local[1]) for seed, x in enumerate(rope)}
    return list(rows_of(measured))


def test_rows_are_of_every_run_and_over_seeds() -> None:
    found = rows([0.9, 0.92, 0.94], [0.1, 0.2, 0.3])
    mean = chosen(found, variant="rope", figure="accuracy", seed=None, part=None)
    assert [each["value"] for each in mean] == [0.2]
    assert mean[0]["ci_high"] == pytest.approx(0.2 + 4.30265 * 0.1 / math.sqrt(3), abs=1e-5)
    assert mean[0]["ci_low"] == 0.0, "no accuracy is below 0"
    own = chosen(found, variant="rope", figure="accuracy", seed=1, part="offset:-4")
    assert [(each["value"], each["n"], each["ci_high"]) for each in own] == [(0.2, 100, 1.0)]
    curve = chosen(found, variant="pope", figure="nll", seed=0)
    steps = [each["part"] for each in curve if each["part"]]
    assert steps == [f"step:{step}" for step in range(30, 301, 30)]
    assert chosen(found, variant="pope", figure="share") == []
    share = chosen(found, variant="rope", figure="share", part="band:local", seed=None)
    assert [each["value"] for each in share] == [pytest.approx(0.1)]
    turns = chosen(found, variant="pope", figure="wavelength", part="channel:1")
    assert [each["value"] for each in turns] == [60.0]
    assert len({json.dumps(each, sort_keys=True) for each in found}) == len(found)


@pytest.mark.parametrize(
    ("pope", "rope", "holds"),
    [
        ([0.95, 0.94, 0.96], [0.11, 0.12, 0.1], (True, True, True)),
        ([0.3, 0.2, 0.25], [0.9, 0.9, 0.9], (False, False, False)),
        ([0.95, 0.2, 0.95], [0.2, 0.9, 0.2], (False, False, False)),
        ([0.95], [0.11], (True, True, None)),
    ],
)
def test_claims_say_what_the_rows_say(
    pope: list[float], rope: list[float], holds: tuple[bool | None, ...]
) -> None:
    found = rows(pope, rope)
    claims = (pope_learns, rope_fails, pope_beats_rope)
    assert tuple(claim(found).holds for claim in claims) == holds
    assert f"{sum(pope) / len(pope):.1%}" in pope_learns(found).text
    assert f"{sum(rope) / len(rope):.1%}" in rope_fails(found).text
    assert "its loss 20% lower at step 300 than at 240" in pope_learns(found).text
    words = others(found)
    assert words.holds is None
    assert "1,000 parameters" in words.text


def test_the_evenness_of_frequencies_is_compared() -> None:
    three = [0.5, 0.5, 0.5]
    more, less = (rows(three, three, local) for local in ((0.5, 0.1), (0.1, 0.5)))
    assert pope_uses_more(more).holds is True
    assert pope_uses_more(less).holds is False
    assert "rope local band 50% before training, 10% after" in pope_uses_more(more).text
    assert pope_uses_more(rows([0.5], [0.5])).holds is None
    assert evenness([0.1, 0.9]) == pytest.approx(0.1**-0.1 * 0.9**-0.9 / 2)


def test_no_rows_tell_nothing() -> None:
    assert {claim["holds"] for claim in stated(EXPERIMENT, [])} == {None}


def tiny(method: str, steps: int) -> TrainRecipe:
    model = ModelConfig(
        method, train_length=TASK.length, embed_dim=16, num_heads=2, layers=1, max_order=1
    )
    return TrainRecipe(
        model=model, steps=steps, batch_size=4, warmup_steps=1, eval_every=2, eval_windows=8
    )


@pytest.mark.parametrize("method", ["pope", "jordan"])
def test_a_run_is_trained_once_and_measured(tmp_path: Path, method: str) -> None:
    first = measured_run(tiny(method, 4), tmp_path)
    folder = run_folder(tmp_path, method, 0)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert json.loads(json.dumps(measured_run(tiny(method, 4), tmp_path))) == json.loads(
        json.dumps(first)
    )
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    source = "data" if method == "pope" else "weights"
    for state in ("trained", "untrained"):
        shares = [each[source] for each in first[state]["channels"]]
        assert len(shares) == len(first[state]["wavelengths"])
        assert sum(shares) == pytest.approx(1)
        assert sum(b[source] for b in first[state]["bands"].values()) == pytest.approx(1)
    assert any(each["figure"] == "accuracy" for each in rows_of({(method, 0): first}))
    longer = measured_run(tiny(method, 6), tmp_path)
    assert longer["history"][-1]["step"] == 6, "another recipe is trained anew"


def test_the_shares_are_those_of_the_spectrum_command(tmp_path: Path) -> None:
    found = measured_run(tiny("rope", 2), tmp_path)["trained"]
    folder = run_folder(tmp_path, "rope", 0)
    windows = len(some_problems())
    result = pjdiag.spectrum(folder, folder / "heldout.txt", TASK.length, windows=windows - 1)
    local = result.select(scope="model", band="local", channel=None)[0]
    assert found["bands"]["local"]["weights"] == local["share"]
    assert found["bands"]["local"]["data"] == pytest.approx(local["data_share"], rel=0.02)


def test_the_samples_are_two_of_the_runs(tmp_path: Path) -> None:
    for name, run in INDIRECT.items():
        assert command_of(recipe_of(*run)) == f"pjdiag train --sample {name} -o DIR"
    assert command_of(replace(recipe_of("pope", 0), steps=10, warmup_steps=1)) == (
        "pjdiag reproduce indirect-indexing"
    )
    assert command_of(recipe_of("pope", 1)) == "pjdiag reproduce indirect-indexing"
    with pytest.raises(UsageError, match="is trained on no text"):
        make_sample("indirect-indexing-pope", tmp_path / "out", tmp_path / "archive.tar.gz")
