"""Retrieval by running models: one that retrieves by construction, ones that know nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.adapters import Reading, read
from pjdiag.checkpoint import load
from pjdiag.diagnostics import in_model_cost, run_cost
from pjdiag.diagnostics.in_model import in_model
from pjdiag.diagnostics.in_model_contexts import RetrievalTask
from pjdiag.diagnostics.in_model_rows import ranked, rows_of, tail, wilson
from pjdiag.diagnostics.in_model_tokens import token_source
from pjdiag.diagnostics.ledger import Interrupted, Ledger
from pjdiag.diagnostics.progress import Estimate
from pjdiag.diagnostics.runner import runner
from pjdiag.errors import AdapterError, DataError, UsageError
from pjdiag.models.huggingface.loading import quiet
from pjdiag.results import Result
from pjdiag.samples import held_out_text
from tests.diagnostics.retriever import VOCABULARY as CODES
from tests.diagnostics.retriever import retriever
from tests.diagnostics.runnable import runnable
from tests.models.huggingface.folders import saved
from tests.models.huggingface.tiny import MODELS, VOCABULARY, output
from tests.models.patched import stirred

TASK = RetrievalTask(key_length=2)
SMALL = RetrievalTask(depths=(0, 0.5), trials=6, key_length=2)
NAMES = ("llama", "gemma2", "gpt2")
"""Grouped keys; a soft cap on the logits; learned positions."""


def reading(path: Path) -> Reading:
    return read(load(path))


@pytest.fixture(scope="module")
def retrieving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return retriever(tmp_path_factory.mktemp("retriever") / "m.safetensors")


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runnable(tmp_path_factory.mktemp("untrained") / "m.safetensors", "rope_affine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            with quiet():
                made[name] = saved(built(name), tmp_path_factory.mktemp(name))
        return made[name]

    return of


def built(name: str) -> Any:
    return stirred("llama") if name == "patched" else MODELS[name].build()


def figures(result: Result, name: str) -> dict[tuple[int, float | None], Any]:
    return {(row["eval_length"], row["depth"]): row[name] for row in result.rows}


@pytest.mark.parametrize("negatives", [3, 8])
def test_a_model_that_retrieves_is_always_right(retrieving: Path, negatives: int) -> None:
    result = pjdiag.probe(retrieving, [64, 256], in_model=replace(TASK, negatives=negatives))
    keys = [(length, depth) for length in (64, 256) for depth in (0, 0.25, 0.5, 0.75, 1, None)]
    assert list(figures(result, "top1")) == keys
    assert set(figures(result, "top1").values()) == {1.0}
    assert set(figures(result, "mean_rank").values()) == {1.0}
    assert set(figures(result, "other_key_top1").values()) == {0.0}
    assert all(figures(result, "retrieved").values())
    assert set(figures(result, "chance").values()) == {1 / (negatives + 1)}
    assert figures(result, "trials")[64, 0.25] == 20
    assert figures(result, "trials")[64, None] == 100
    assert {row["scope"] for row in result.rows} == {"model"}
    assert result.provenance["in_model"] is True


def test_half_a_key_does_not_tell_hard_negatives_apart(tmp_path: Path) -> None:
    half = retriever(tmp_path / "m.safetensors", compared=1)
    top1 = figures(pjdiag.probe(half, [64], in_model=TASK), "top1")
    assert 0.3 < top1[64, None] < 0.75
    """About half of the negatives have the last token of the key."""


def test_several_pairs_in_a_context_are_told_apart_as_well(retrieving: Path) -> None:
    result = pjdiag.probe(retrieving, [128], in_model=replace(TASK, pairs=5, trials=10))
    assert set(figures(result, "top1").values()) == {1.0}


@pytest.mark.parametrize("name", ["native", "llama"])
def test_an_untrained_model_is_at_chance(
    name: str, untrained: Path, folder: Callable[[str], Path]
) -> None:
    path = untrained if name == "native" else folder(name)
    result = pjdiag.probe(path, [64], in_model=replace(TASK, trials=40))
    (whole,) = result.select(depth=None)
    assert whole["ci_low"] < 0.25 < whole["ci_high"]
    assert whole["mean_rank"] == pytest.approx(2.5, abs=0.3)
    assert not any(figures(result, "retrieved").values())


@pytest.mark.parametrize("name", [*NAMES, "patched"])
def test_log_probabilities_are_those_of_the_whole_model(
    name: str, folder: Callable[[str], Path]
) -> None:
    made = runner(reading(folder(name)))
    rng = np.random.default_rng(0)
    ids, candidates = rng.integers(3, VOCABULARY, (3, 40)), rng.integers(3, VOCABULARY, (3, 4))
    logits = output(built(name), input_ids=torch.from_numpy(ids))[:, -1]
    expected = logits.double().log_softmax(-1).gather(1, torch.from_numpy(candidates))
    found = made.next_log_probabilities(ids, candidates)
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)
    assert made.head_positions(40) == 1


def test_log_probabilities_of_a_native_model(untrained: Path) -> None:
    made = runner(reading(untrained))
    rng = np.random.default_rng(0)
    ids, candidates = rng.integers(0, 256, (3, 40)), rng.integers(0, 256, (3, 4))
    with torch.no_grad():
        logits = pjdiag.load_model(untrained)(torch.from_numpy(ids))[:, -1]
    expected = logits.double().log_softmax(-1).gather(1, torch.from_numpy(candidates))
    found = made.next_log_probabilities(ids, candidates)
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)


def test_the_batch_changes_nothing_and_the_seed_everything(untrained: Path) -> None:
    def rows(**settings: Any) -> Any:
        return pjdiag.probe(untrained, [48], in_model=SMALL, **settings).rows

    assert rows(batch=1) == rows(batch=4) == rows()
    assert rows(seed=1) != rows()


def test_a_trial_is_the_same_beside_other_lengths_and_depths(untrained: Path) -> None:
    both = pjdiag.probe(untrained, [48, 64], in_model=SMALL)
    alone = pjdiag.probe(untrained, [64], in_model=replace(SMALL, depths=(0.5,)))
    assert figures(both, "mean_rank")[64, 0.5] == figures(alone, "mean_rank")[64, 0.5]
    assert list(figures(alone, "top1")) == [(64, 0.5)]


def test_a_text_fills_the_contexts(untrained: Path) -> None:
    result = pjdiag.probe(untrained, [64], in_model=SMALL, data=held_out_text())
    assert result.provenance["data_digest"].startswith("sha256:")
    source = token_source(runner(reading(untrained)), {}, held_out_text())
    assert set(source.ids) == set(held_out_text().read_bytes())


def test_special_tokens_are_never_drawn(folder: Callable[[str], Path], tmp_path: Path) -> None:
    made = reading(folder("llama"))
    model = runner(made)
    source = token_source(model, made.checkpoint.config, None)
    assert source.ids.tolist() == list(range(3, VOCABULARY))
    nested = {"text_config": {"eos_token_id": [5, 7]}, "pad_token_id": None}
    assert not {5, 7} & set(token_source(model, nested, None).ids.tolist())
    path = tmp_path / "ids.npy"
    np.save(path, np.asarray([[1, 9, 2, 8], [8, 9, 9, 4]]))
    assert token_source(model, made.checkpoint.config, path).ids.tolist() == [4, 8, 9]
    np.save(path, np.asarray([[1, 9, 2, -1]]))
    with pytest.raises(DataError, match="has padding"):
        token_source(model, {}, path)


def test_default_lengths(retrieving: Path, folder: Callable[[str], Path]) -> None:
    task = replace(TASK, depths=(1,), trials=2)
    assert pjdiag.probe(retrieving, in_model=task).provenance["lengths"] == [64, 256]
    long = read(load(retrieving), train_length=8192)
    assert in_model(long, task, batch=1).provenance["lengths"] == [512, 2048]
    assert pjdiag.probe(folder("gpt2"), in_model=task).provenance["lengths"] == [64]


def test_a_length_beyond_learned_positions_is_refused(folder: Callable[[str], Path]) -> None:
    with pytest.raises(UsageError, match="the model has 64 learned positions"):
        pjdiag.probe(folder("gpt2"), [65], in_model=SMALL)


def test_arguments_out_of_range_are_refused(retrieving: Path) -> None:
    with pytest.raises(UsageError, match="length is 16; 4 pairs of 3 tokens"):
        pjdiag.probe(retrieving, [64, 16], in_model=TASK)
    with pytest.raises(UsageError, match="batch is 0"):
        pjdiag.probe(retrieving, [64], in_model=TASK, batch=0)
    with pytest.raises(UsageError, match=f"there are {CODES} different tokens"):
        pjdiag.probe(retrieving, [512], in_model=replace(TASK, pairs=16))


def test_a_model_that_predicts_no_next_token_is_refused(folder: Callable[[str], Path]) -> None:
    with pytest.raises(AdapterError, match="predicts no next token"):
        pjdiag.probe(folder("bert"), [32], in_model=SMALL)


def test_what_it_takes_is_said_beforehand(retrieving: Path, monkeypatch: Any) -> None:
    told: list[Estimate] = []
    shares: list[float] = []
    pjdiag.probe(
        retrieving, [64, 256], in_model=SMALL, announce=told.append, progress=shares.append
    )
    assert told[0].seconds is None or told[0].seconds < 60
    assert 2**26 < told[0].memory < 2**28
    assert shares[-1] == 1.0
    monkeypatch.setattr(run_cost, "MOMENT", 0.0)
    pjdiag.probe(retrieving, [64], in_model=SMALL, announce=told.append)
    assert told[1].seconds is not None
    assert 0 < told[1].seconds < 60
    monkeypatch.setattr(in_model_cost, "memory_available", lambda: 2**20)
    with pytest.raises(UsageError, match="of memory"):
        pjdiag.probe(retrieving, [64], in_model=SMALL)


def test_an_interrupted_run_goes_on_where_it_stopped(retrieving: Path) -> None:
    whole = pjdiag.probe(retrieving, [64], in_model=SMALL, batch=2)

    def stop(share: float) -> None:
        if share > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        pjdiag.probe(retrieving, [64], in_model=SMALL, batch=2, ledger=Ledger(), progress=stop)
    partial = stopped.value.result
    assert [row["trials"] for row in partial.rows] == [6]
    assert partial.rows[0]["depth"] == 0
    again = Result.from_json(partial.to_json())
    finished = pjdiag.probe(retrieving, [64], in_model=SMALL, batch=2, ledger=Ledger(again))
    assert finished.rows == whole.rows
    assert finished.provenance == whole.provenance
    with pytest.raises(UsageError, match="seed"):
        pjdiag.probe(retrieving, [64], in_model=SMALL, batch=2, seed=1, ledger=Ledger(again))


def test_weights_that_are_not_finite_give_no_figure(retrieving: Path, tmp_path: Path) -> None:
    from pjdiag.lab.native import save_model

    model = pjdiag.load_model(retrieving)
    with torch.no_grad():
        model.head.bias[3] = torch.nan
    save_model(model, tmp_path / "m.safetensors")
    result = pjdiag.probe(tmp_path / "m.safetensors", [64], in_model=SMALL)
    assert not result.rows
    assert result.inconclusive
    assert "head.bias holds 1 values" in result.skipped[0].reason


def test_a_model_that_overflows_gives_no_figure(retrieving: Path, tmp_path: Path) -> None:
    from pjdiag.lab.native import save_model

    model = pjdiag.load_model(retrieving)
    with torch.no_grad():
        model.head.weight.mul_(8e37)
    save_model(model, tmp_path / "m.safetensors")
    result = pjdiag.probe(tmp_path / "m.safetensors", [64], in_model=SMALL)
    assert not result.rows
    assert "the model overflows at 64 tokens" in result.skipped[0].reason


def test_ranks_share_ties_and_nothing_else() -> None:
    assert ranked(np.asarray([[0.0, 1.0, 2.0, -1.0], [1.0, 1.0, 1.0, 1.0]])) == [
        [3.0, 0.0],
        [2.5, 0.25],
    ]
    assert ranked(np.asarray([[0.0, np.nan], [0.0, -np.inf]])) == [None, None]


def test_wilson_agrees_with_published_values() -> None:
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.16113), abs=1e-5)
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def trials(right: int, wrong: int, other: int = 0) -> np.ndarray:
    """Outcomes: first is the right value, or not; asked for another key it is ``other`` times."""
    outcomes = np.zeros((right + wrong, 3))
    outcomes[:right, 1] = 1
    outcomes[:other, 2] = 1
    return outcomes


def test_retrieved_allows_for_the_number_of_rows() -> None:
    """10 of 20 are more than 25% where it is the only row, not beside ten others."""
    alone = list(rows_of(TASK, {(64, 0.5): trials(10, 10)}))
    among = list(rows_of(TASK, {(64, depth / 10): trials(10, 10) for depth in range(10)}))
    assert alone[0]["retrieved"]
    assert alone[0]["ci_low"] > 0.25
    assert not among[0]["retrieved"]
    assert among[-1]["depth"] is None
    assert among[-1]["retrieved"]


def test_a_value_that_is_first_whatever_is_asked_is_not_retrieved() -> None:
    (place,) = rows_of(TASK, {(64, 1.0): trials(16, 4, other=15)})
    assert (place["top1"], place["other_key_top1"]) == (0.8, 0.75)
    assert place["ci_low"] > 0.25
    assert not place["retrieved"]
    assert next(rows_of(TASK, {(64, 1.0): trials(16, 4, other=2)}))["retrieved"]


def test_eight_contexts_are_not_enough_for_five_right_ones() -> None:
    """P(at least 5 of 8) is 2.7% at 25%; one of three rows is allowed 1.7%."""
    assert tail(5, 8, 0.25) == pytest.approx(0.0273, abs=5e-5)
    assert tail(1300, 5000, 0.25) == pytest.approx(0.0529, abs=1e-3)  # normal: 1.62 sigma
    assert tail(2600, 5000, 0.5) + tail(2401, 5000, 0.5) == pytest.approx(1.0)
    assert next(rows_of(TASK, {(64, 1.0): trials(5, 3)}))["retrieved"]
    depths = {(64, 0.0): trials(0, 8), (64, 1.0): trials(5, 3)}
    assert not any(row["retrieved"] for row in rows_of(TASK, depths))


def test_a_model_that_ignores_the_key_ranks_alike_whatever_is_asked(tmp_path: Path) -> None:
    blind = retriever(tmp_path / "m.safetensors", compared=0)
    result = pjdiag.probe(blind, [64], in_model=TASK)
    assert not any(figures(result, "retrieved").values())
    (whole,) = result.select(depth=None)
    assert whole["top1"] == pytest.approx(whole["other_key_top1"], abs=0.1)
