"""Which trainings there are, that they are done once, and that a rerun goes on."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from pjdiag.errors import OutputError
from pjdiag.lab.experiments.training_runs import (
    LANGUAGE_RUNS,
    MUSIC_RUNS,
    TRAINED_AS,
    TrainingRun,
    is_finished,
    read_card,
    recipe_of,
    share_weights,
    train_all,
    train_run,
    trainings,
)
from pjdiag.lab.run_state import STATE_NAME
from pjdiag.lab.training import train
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

from .trained import small_stream, use_small_streams

A, B = (TrainingRun("chorales", method, 0, quick=True) for method in ("none", "rope_yarn"))


@pytest.fixture
def small(monkeypatch):
    use_small_streams(monkeypatch)


def quiet(line: str) -> None:
    del line


def test_the_runs_are_those_that_are_asked_for():
    by_stream = {
        name: Counter(run.method for run in (*LANGUAGE_RUNS, *MUSIC_RUNS) if run.stream == name)
        for name in ("tinyshakespeare", "war_and_peace", "wikitext2", "chorales", "folk")
    }
    three = dict.fromkeys(("affine", "rope", "rope_ntk_affine", "pope", "full"), 3)
    one = ("none", "rope_pi", "rope_ntk", "rope_yarn", "rope_affine", "rope_yarn_affine")
    more = ("pj_rotary", "jordan", "fj_affine", "lc_affine")
    assert by_stream["tinyshakespeare"] == {**three, **dict.fromkeys((*one, *more), 1)}
    text = {**dict.fromkeys(("affine", "rope", "rope_ntk_affine", "lc_affine", "pope"), 1)}
    assert by_stream["war_and_peace"] == by_stream["wikitext2"] == {**text, "full": 3}
    music = ("none", "affine", "rope", "fj_affine", "lc_affine", "pope", "full")
    assert by_stream["chorales"] == dict.fromkeys(music, 3)
    assert by_stream["folk"] == {"full": 3}
    assert len({run.key for run in (*LANGUAGE_RUNS, *MUSIC_RUNS)}) == 65


def test_each_training_is_there_once_and_the_full_models_come_first():
    found = trainings((*LANGUAGE_RUNS, *MUSIC_RUNS))
    assert len(found) == len(set(found)) == 60
    assert not {run.method for run in found} & set(TRAINED_AS)
    assert [run.method for run in found[:5]] == ["full"] * 5
    assert {run.seed for run in found[:5]} == {0}


def test_all_runs_have_one_recipe_and_the_size_that_is_asked_for():
    recipes = [recipe_of(run).to_dict() for run in (*LANGUAGE_RUNS, *MUSIC_RUNS)]
    for recipe in recipes:
        recipe.pop("seed")
        assert recipe["model"].pop("method")
    assert all(recipe == recipes[0] for recipe in recipes)
    assert (recipes[0]["steps"], recipes[0]["batch_size"]) == (2000, 16)
    assert recipes[0]["model"]["train_length"] == 128
    for method in {run.method for run in LANGUAGE_RUNS}:
        count = sum(p.numel() for p in CausalLM(ModelConfig(method=method)).parameters())
        assert 0.15e6 < count < 0.21e6, method


@pytest.mark.parametrize(("method", "served_by"), TRAINED_AS.items())
def test_methods_that_share_weights_are_one_model_within_the_train_length(method, served_by):
    one, other = (CausalLM(ModelConfig(method=name), seed=3) for name in (method, served_by))
    state = one.state_dict()
    assert all(torch.equal(state[name], t) for name, t in other.state_dict().items())
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 200)))
    with torch.no_grad():
        assert torch.equal(one(ids[:, :128]), other(ids[:, :128]))
        assert not torch.allclose(one(ids), other(ids), atol=1e-6)


def test_shared_weights_are_written_under_the_other_name_and_the_card_says_so(small, tmp_path):
    train_all([B], tmp_path, None, 1, quiet)
    served = B.trained
    assert served.method == "rope"
    ours, theirs = (load_file(r.folder(tmp_path) / "model.safetensors") for r in (B, served))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    card = read_card(B, tmp_path)
    assert card["recipe"]["model"]["method"] == "rope_yarn"
    assert card["shares_weights_with"] == "chorales-rope-s0"
    assert "Trained once as `rope`" in card["data"]["source"]
    assert "Trained once as `rope`" in (B.folder(tmp_path) / "README.md").read_text()
    import pjdiag

    assert pjdiag.read(B.folder(tmp_path) / "model.safetensors").train_length.value == 128


def test_weights_are_not_shared_before_they_are_there(small, tmp_path):
    with pytest.raises(OutputError, match="chorales-rope-s0 is not trained"):
        share_weights(B, tmp_path, small_stream("chorales"))


def test_an_interrupted_list_goes_on_with_what_is_missing(small, tmp_path):
    def stop(line: str) -> None:
        if line.startswith("training 1 of 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_all([A, B], tmp_path, None, 1, stop)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["chorales-rope-s0"]
    before = (tmp_path / "runs" / "chorales-rope-s0" / "model.safetensors").stat().st_mtime_ns
    lines: list[str] = []
    seconds = train_all([A, B], tmp_path, None, 1, lines.append)
    assert lines == ["1 of 2 trainings are finished", "training 1 of 1: chorales-none-s0 is there"]
    path = tmp_path / "runs" / "chorales-rope-s0" / "model.safetensors"
    assert path.stat().st_mtime_ns == before
    assert seconds > 0
    assert train_all([A, B], tmp_path, None, 1, quiet) == seconds


def test_a_run_that_was_killed_ends_with_the_same_weights(small, tmp_path):
    stream = small_stream("chorales", "music")

    def kill(progress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe_of(A), stream.corpus, A.folder(tmp_path / "killed"), kill)
    assert (A.folder(tmp_path / "killed") / STATE_NAME).exists()
    assert not is_finished(A, tmp_path / "killed", stream)
    assert train_run(A, tmp_path / "killed", None) > 0
    train_run(A, tmp_path / "whole", None)
    one, other = (
        load_file(A.folder(tmp_path / name) / "model.safetensors") for name in ("killed", "whole")
    )
    assert all(np.array_equal(one[name], other[name]) for name in other)


def test_an_unfinished_run_of_another_corpus_is_started_again(small, tmp_path):
    def kill(progress) -> None:
        raise KeyboardInterrupt

    other = small_stream("folk", "music")
    with pytest.raises(KeyboardInterrupt):
        train(recipe_of(A), other.corpus, A.folder(tmp_path), kill)
    train_run(A, tmp_path, None)
    assert is_finished(A, tmp_path, small_stream("chorales", "music"))


def test_a_run_of_another_recipe_corpus_or_folder_is_trained_again(small, tmp_path, monkeypatch):
    train_all([A], tmp_path, None, 1, quiet)
    stream = small_stream("chorales", "music")
    assert is_finished(A, tmp_path, stream)
    assert not is_finished(A, tmp_path, small_stream("folk", "music"))
    use_small_streams(monkeypatch, steps=2)
    assert not is_finished(A, tmp_path, stream)
    train_all([A], tmp_path, None, 1, quiet)
    assert read_card(A, tmp_path)["recipe"]["steps"] == 2
    card = A.folder(tmp_path) / "card.json"
    card.write_text("{")
    assert not is_finished(A, tmp_path, stream)
    train_all([A], tmp_path, None, 1, quiet)
    assert json.loads(card.read_text())["recipe"]["steps"] == 2
