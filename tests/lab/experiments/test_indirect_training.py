"""Runs of indirect indexing: what they leave, and that they go on where they stopped."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pjdiag
from pjdiag.errors import UsageError
from pjdiag.lab.experiments.indirect_training import (
    METHODS,
    PROBLEMS_EACH,
    SEEDS,
    TASK,
    accuracies,
    finished_card,
    read_model,
    recipe_of,
    some_problems,
    train_indirect,
)
from pjdiag.lab.recipe import Progress, TrainRecipe
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

MODEL = ModelConfig("pope", train_length=TASK.length, embed_dim=8, num_heads=2, layers=1)
RECIPE = TrainRecipe(
    model=MODEL, steps=6, batch_size=4, warmup_steps=1, eval_every=2, eval_windows=16, seed=5
)


class StoppedError(Exception):
    """Raised by a test to interrupt a run."""


def test_what_a_run_leaves(tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = train_indirect(RECIPE, out, command="do it again")
    left = sorted(path.name for path in out.iterdir())
    assert left == ["README.md", "card.json", "heldout.txt", "model.safetensors"]
    card = finished_card(RECIPE, out)
    assert card is not None
    assert TrainRecipe.from_dict(card["recipe"]) == RECIPE
    assert card["test"]["problems"] == outcome.held_out_bytes == 8 * 2048
    assert [each["offset"] for each in card["test"]["by_offset"]] == list(TASK.offsets)
    shares = [each["accuracy"] for each in card["test"]["by_offset"]]
    assert card["test"]["accuracy"] == pytest.approx(sum(shares) / 8)
    assert card["check"]["best_step"] == outcome.best_step
    again = accuracies(read_model(RECIPE, out))
    assert json.loads(json.dumps(again)) == card["test"]
    text = (out / "README.md").read_text()
    for figure in (f"{card['test']['accuracy']:.1%}", "do it again", "seed 5", "| -4 |", "| +4 |"):
        assert figure in text
    held_out = (out / "heldout.txt").read_bytes()
    assert held_out == bytes(some_problems().ravel().tolist())
    assert len(held_out) == 8 * PROBLEMS_EACH * TASK.length
    offsets = [byte - ord("M") for byte in held_out[TASK.length - 1 :: TASK.length]]
    assert offsets == list(TASK.offsets) * PROBLEMS_EACH
    assert pjdiag.inspect(out).rows[0]["mechanism"] == "pope"


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path, stop: int) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step == stop:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_indirect(RECIPE, tmp_path / "parts", interrupt)
    assert finished_card(RECIPE, tmp_path / "parts") is None
    resumed = train_indirect(RECIPE, tmp_path / "parts")
    whole = train_indirect(RECIPE, tmp_path / "whole")
    assert resumed.checkpoint.read_bytes() == whole.checkpoint.read_bytes()
    assert resumed.history == whole.history
    assert resumed.final_held_out_loss == whole.final_held_out_loss


def test_the_seed_decides_the_run(tmp_path: Path) -> None:
    weights = [
        train_indirect(replace(RECIPE, seed=seed), tmp_path / name).checkpoint.read_bytes()
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    ]
    assert weights[0] == weights[1] != weights[2]


def test_a_run_of_another_recipe_is_not_finished(tmp_path: Path) -> None:
    train_indirect(RECIPE, tmp_path)
    assert finished_card(replace(RECIPE, seed=6), tmp_path) is None
    card = json.loads((tmp_path / "card.json").read_text())
    card["task"]["sha256"] = "0" * 64
    (tmp_path / "card.json").write_text(json.dumps(card))
    assert finished_card(RECIPE, tmp_path) is None
    (tmp_path / "card.json").write_text("[]")
    assert finished_card(RECIPE, tmp_path) is None
    with pytest.raises(UsageError, match="holds no unfinished run"):
        train_indirect(RECIPE, tmp_path)


def test_it_learns_what_a_guess_knows(tmp_path: Path) -> None:
    model = replace(MODEL, method="rope", embed_dim=32, num_heads=2)
    recipe = replace(
        RECIPE, model=model, steps=150, batch_size=64, learning_rate=1e-2, eval_every=150
    )
    train_indirect(recipe, tmp_path)
    card = finished_card(recipe, tmp_path)
    assert card is not None
    assert card["test"]["accuracy"] > 2 / 26, "the answer is a letter of the string"


def test_the_methods_have_equal_sizes() -> None:
    counts = {
        method: sum(each.numel() for each in CausalLM(recipe_of(method, 0).model).parameters())
        for method in METHODS
    }
    assert max(counts.values()) - min(counts.values()) < 0.002 * min(counts.values())
    assert (
        len({json.dumps(recipe_of(method, 0).to_dict() | {"model": 0}) for method in METHODS}) == 1
    )
    assert SEEDS == (0, 1, 2)


def test_torchs_own_random_state_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(8)
    expected = torch.rand(3)
    torch.manual_seed(8)
    train_indirect(RECIPE, tmp_path)
    assert torch.equal(torch.rand(3), expected)
