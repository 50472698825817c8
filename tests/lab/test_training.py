"""Training: it learns, it goes on where it stopped, and it leaves an honest card."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy

from pjdiag.checkpoint import load
from pjdiag.errors import DataError, OutputError, UsageError
from pjdiag.lab.card import late_improvement
from pjdiag.lab.corpora import Corpus, Work, split
from pjdiag.lab.native import load_model
from pjdiag.lab.recipe import HeldOutPoint, Progress, TrainRecipe
from pjdiag.lab.run_state import STATE_NAME
from pjdiag.lab.training import held_out_loss, train, window_sampler
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

MODEL = ModelConfig("full", train_length=16, embed_dim=16, num_heads=2, layers=1, max_order=1)
RECIPE = TrainRecipe(
    model=MODEL, steps=20, batch_size=4, warmup_steps=2, eval_every=6, eval_windows=5, seed=3
)
BLOCK_PARAMETERS = (
    2 * 2 * 16  # two norms
    + 3 * 16 * 17  # q, k, v
    + 16 * 17  # output
    + 32 * 17
    + 16 * 33  # two layers of the MLP
    + (2 + 2 * 3)  # omega, gates
    + 6 * 2 * 2  # order spectra and amplitudes of two jet sectors
    + 2 * 2  # damping, slope
)
LINES = [f"{i} green bottles hanging on the wall\n" for i in range(60)]
CORPUS = split(
    [Work("first", "".join(LINES[:30]).encode()), Work("second", "".join(LINES[30:]).encode())],
    ["second"],
)


class StoppedError(Exception):
    """Raised by a test to interrupt a run."""


def test_it_learns(tmp_path: Path) -> None:
    recipe = replace(RECIPE, steps=150, batch_size=16, eval_every=50, learning_rate=1e-2)
    outcome = train(recipe, CORPUS, tmp_path / "run")
    losses = [point.held_out_loss for point in outcome.history]
    assert [point.step for point in outcome.history] == [50, 100, 150]
    assert losses[0] < math.log(256) / 2
    assert losses[-1] < 0.7, "a period of some 40 bytes is easily learned"
    assert outcome.final_held_out_loss < 0.7


@pytest.mark.parametrize("stops", [[3], [6], [7, 13], [1, 2, 19], [20]])
def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path, stops: list[int]) -> None:
    recipe = replace(RECIPE, model=replace(MODEL, dropout=0.2))
    whole = train(recipe, CORPUS, tmp_path / "whole")

    for stop in stops:

        def interrupt(progress: Progress, stop: int = stop) -> None:
            if progress.step == stop:
                raise StoppedError

        with pytest.raises(StoppedError):
            train(recipe, CORPUS, tmp_path / "parts", interrupt)
    resumed = train(recipe, CORPUS, tmp_path / "parts")

    assert resumed.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
    assert resumed.history == whole.history
    assert resumed.final_held_out_loss == whole.final_held_out_loss


def test_the_seed_decides_the_run(tmp_path: Path) -> None:
    first, again, other = (
        train(replace(RECIPE, seed=seed), CORPUS, tmp_path / name).history
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert first == again
    assert first != other


def test_torchs_own_random_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(8)
    expected = torch.rand(3)
    torch.manual_seed(8)
    train(RECIPE, CORPUS, tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)


def test_progress_is_told_after_every_step(tmp_path: Path) -> None:
    told: list[Progress] = []
    outcome = train(RECIPE, CORPUS, tmp_path / "run", told.append)
    assert [progress.step for progress in told] == list(range(1, 21))
    assert {progress.steps for progress in told} == {20}
    rates = [RECIPE.learning_rate * RECIPE.learning_rate_factor(step) for step in range(1, 21)]
    assert [progress.learning_rate for progress in told] == pytest.approx(rates)
    evaluated = {p.step: p.held_out_loss for p in told if p.held_out_loss is not None}
    assert evaluated == {point.step: point.held_out_loss for point in outcome.history}
    assert set(evaluated) == {6, 12, 18, 20}
    assert all(earlier.seconds <= later.seconds for earlier, later in pairwise(told))


def test_the_checkpoint_is_the_best_evaluation(tmp_path: Path) -> None:
    recipe = replace(RECIPE, eval_every=2, learning_rate=1.0, final_rate=1.0)
    outcome = train(recipe, CORPUS, tmp_path / "run")
    best = min(outcome.history, key=lambda point: point.held_out_loss)
    assert (outcome.best_step, outcome.best_held_out_loss) == (best.step, best.held_out_loss)
    assert best.step < 20, "at this rate the loss rises again"
    model = load_model(load(outcome.checkpoint))
    assert held_out_loss(model, CORPUS.held_out, 5)[0] == best.held_out_loss
    assert held_out_loss(model, CORPUS.held_out)[0] == outcome.final_held_out_loss


def test_decay_acts_on_matrices_only(tmp_path: Path) -> None:
    recipe = replace(RECIPE, weight_decay=200.0, position_learning_rate=3e-3)
    start = CausalLM(MODEL, seed=3).state_dict()
    weights = load_file(train(recipe, CORPUS, tmp_path / "run").checkpoint)
    matrix = "blocks.0.attn.qkv.weight"
    assert np.abs(weights[matrix]).max() < 0.5 * start[matrix].abs().max().item()
    for name in ("norm.weight", "blocks.0.attn.pj_bias.omega"):
        assert np.abs(weights[name] / start[name].numpy() - 1).max() < 0.3, name


@pytest.mark.parametrize("method", ["none", "rope_affine", "jordan", "pope"])
def test_other_methods_train(tmp_path: Path, method: str) -> None:
    recipe = replace(RECIPE, model=replace(MODEL, method=method))
    outcome = train(recipe, CORPUS, tmp_path / "run")
    assert outcome.best_held_out_loss < math.log(256)
    assert load_model(load(outcome.checkpoint)).config.method == method


def test_what_a_finished_run_leaves(tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = train(RECIPE, CORPUS, out, source="Bottles.", command="count bottles")
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "card.json",
        "model.safetensors",
    ]
    card = json.loads(outcome.card.read_text())
    assert TrainRecipe.from_dict(card["recipe"]) == RECIPE
    assert (
        card["parameters"] == outcome.parameters == 16 * 256 + 17 * 256 + 2 * 16 + BLOCK_PARAMETERS
    )
    assert card["data"]["train"] == {"first": CORPUS.train_bytes}
    assert card["data"]["held_out"] == {"second": CORPUS.held_out_bytes}
    assert card["data"]["sha256"] == CORPUS.digest
    assert [HeldOutPoint(**point) for point in card["history"]] == list(outcome.history)
    assert card["held_out"]["loss"] == outcome.final_held_out_loss
    assert card["held_out"]["late_improvement"] == late_improvement(outcome)
    text = (out / "README.md").read_text()
    for figure in (
        f"{outcome.final_held_out_loss:.4f} nats per byte",
        f"{outcome.history[0].held_out_loss:.4f}",
        "seed 3",
        "count bottles",
        "Bottles.",
        "Held out, whole: second",
        CORPUS.digest,
        "parameters: 1 layer, 2 heads, width 16",
        f"Trained on 1 work, {CORPUS.train_bytes:,} bytes: first",
        f"bytes of the held-out work, in windows of {MODEL.train_length} bytes",
        " of 4 random windows, seed 3; ",
    ):
        assert figure in text
    assert not re.search(r"\b1 (layer|head|work|step|window)s|[ ;]0\.0 (second|minute)s", text)
    stated = json.loads(load(outcome.checkpoint).metadata["pjdiag"])
    assert stated["recipe"]["seed"] == 3
    assert stated["recipe"]["held_out"] == ["second"]


def test_late_improvement(tmp_path: Path) -> None:
    outcome = train(RECIPE, CORPUS, tmp_path / "run")
    history = [(20, 3.0), (40, 2.0), (60, 2.2), (80, 2.1), (100, 1.9)]
    points = tuple(HeldOutPoint(step, 0.0, loss) for step, loss in history)
    assert late_improvement(
        replace(outcome, history=points, best_held_out_loss=1.9)
    ) == pytest.approx(0.05)
    assert late_improvement(replace(outcome, history=points[-1:])) is None


def start_and_stop(out: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step == 7:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(RECIPE, CORPUS, out, interrupt)


def test_folders_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no unfinished run"):
        train(RECIPE, CORPUS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(UsageError, match="txt is not a folder"):
        train(RECIPE, CORPUS, tmp_path / "notes.txt")
    with pytest.raises(OutputError, match="cannot be written"):
        train(RECIPE, CORPUS, tmp_path / "notes.txt" / "run")


def test_a_finished_run_is_not_overwritten(tmp_path: Path) -> None:
    made = train(RECIPE, CORPUS, tmp_path / "run").checkpoint
    before = made.read_bytes()
    with pytest.raises(UsageError, match=r"run is finished: it has model\.safetensors") as caught:
        train(RECIPE, CORPUS, tmp_path / "run")
    assert f"pjdiag mass {made}; or train into another folder" in str(caught.value)
    assert made.read_bytes() == before


def test_a_run_is_resumed_as_it_was_begun(tmp_path: Path) -> None:
    start_and_stop(tmp_path)
    with pytest.raises(UsageError, match="has steps 20, not 40"):
        train(replace(RECIPE, steps=40), CORPUS, tmp_path)
    with pytest.raises(UsageError, match="has method full, not affine"):
        train(replace(RECIPE, model=replace(MODEL, method="affine")), CORPUS, tmp_path)
    other = Corpus(CORPUS.train, (Work("second", CORPUS.held_out[0].data + b"!"),))
    with pytest.raises(UsageError, match="was trained on another corpus"):
        train(RECIPE, other, tmp_path)


@pytest.mark.parametrize("damage", [b"", b"not a state", None])
def test_a_damaged_state_is_refused(tmp_path: Path, damage: bytes | None) -> None:
    start_and_stop(tmp_path)
    path = tmp_path / STATE_NAME
    path.write_bytes(path.read_bytes()[:-8] if damage is None else damage)
    with pytest.raises(UsageError, match="cannot be read"):
        train(RECIPE, CORPUS, tmp_path)


def test_a_checkpoint_is_no_state(tmp_path: Path) -> None:
    train(RECIPE, CORPUS, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").rename(tmp_path / "run" / STATE_NAME)
    with pytest.raises(UsageError, match="cannot be read"):
        train(RECIPE, CORPUS, tmp_path / "run")


def test_divergence_is_said(tmp_path: Path) -> None:
    recipe = replace(RECIPE, learning_rate=1e30)
    with pytest.raises(UsageError, match=r"training diverged: the loss is (nan|inf) at step \d+"):
        train(recipe, CORPUS, tmp_path / "run")


def test_short_works_are_refused(tmp_path: Path) -> None:
    short = Corpus(CORPUS.train, (Work("line", b"x" * 16),))
    with pytest.raises(DataError, match="line has 16 bytes; a window has 17"):
        train(RECIPE, short, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_windows_stay_within_works_and_reach_every_place() -> None:
    torch.manual_seed(0)
    works = (Work("a", bytes(range(10))), Work("b", bytes(range(100, 104))))
    windows = window_sampler(works, 4)(4000)
    assert windows.shape == (4000, 4)
    assert torch.equal(windows - windows[:, :1], torch.arange(4).expand(4000, 4))
    starts, counts = windows[:, 0].unique(return_counts=True)
    assert starts.tolist() == [*range(7), 100]
    assert (counts / 4000 - 1 / 8).abs().max() < 0.02


def test_held_out_loss_written_out() -> None:
    model = CausalLM(MODEL, seed=1)
    works = (Work("a", bytes(range(40))), Work("b", bytes(range(60, 80))))
    found, predicted = held_out_loss(model, works)
    assert predicted == 3 * 16
    assert model.training, "the mode is put back"
    windows = torch.tensor([[*range(first, first + 17)] for first in (0, 16, 60)])
    with torch.no_grad():
        logits = model(windows[:, :-1])
    expected = cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
    assert found == pytest.approx(expected.item(), rel=1e-6)
    assert held_out_loss(model, works, 2)[1] == 32
