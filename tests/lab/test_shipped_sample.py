"""The shipped language model: its card, its weights and its text agree."""

import json
import math

import pytest

import pjdiag
from pjdiag.lab.corpora import Work
from pjdiag.lab.native import load_model
from pjdiag.lab.recipe import TrainRecipe
from pjdiag.lab.samples import LANGUAGE_FULL
from pjdiag.lab.training import held_out_loss

FOLDER = pjdiag.sample("language_full").parent
CARD = json.loads((FOLDER / "card.json").read_text())


def test_the_file_is_small_and_states_its_recipe() -> None:
    assert pjdiag.sample().stat().st_size < 2**20
    checkpoint = pjdiag.load(pjdiag.sample())
    assert {header.dtype for header in checkpoint.headers.values()} == {"F32"}
    sizes = [math.prod(header.shape) for header in checkpoint.headers.values()]
    assert 150_000 <= sum(sizes) == CARD["parameters"] <= 200_000
    stated = json.loads(checkpoint.metadata["pjdiag"])
    assert stated["sectors"] == ["fj", "affine", "lc"]
    assert stated["recipe"]["corpus_sha256"] == CARD["data"]["sha256"]
    assert stated["recipe"]["seed"] == LANGUAGE_FULL.seed


def test_the_card_is_of_the_recipe_in_the_code() -> None:
    assert TrainRecipe.from_dict(CARD["recipe"]) == LANGUAGE_FULL
    history = [(point["step"], point["held_out_loss"]) for point in CARD["history"]]
    assert history[-1][0] == LANGUAGE_FULL.steps
    best_step, best_loss = min(history, key=lambda point: point[1])
    assert CARD["held_out"]["best_step"] == best_step
    assert CARD["held_out"]["best_loss_on_fixed_windows"] == best_loss
    assert not set(CARD["data"]["train"]) & set(CARD["data"]["held_out"])


def test_the_held_out_loss_had_flattened() -> None:
    assert 0 <= CARD["held_out"]["late_improvement"] < 0.02
    late = [p["held_out_loss"] for p in CARD["history"] if p["step"] > 0.9 * LANGUAGE_FULL.steps]
    assert max(late) / min(late) - 1 < 0.005


def test_the_excerpt_is_text_of_a_held_out_work() -> None:
    data = (FOLDER / "heldout.txt").read_bytes()
    assert 64_000 <= len(data) <= 100_000
    text = data.decode("utf-8")
    assert text.startswith("MACBETH\n")
    assert "gutenberg" not in text.lower()
    assert CARD["data"]["held_out"]["macbeth_gut"] >= len(data)


def test_the_model_reads_the_excerpt_as_well_as_the_card_says() -> None:
    model = load_model(pjdiag.load(pjdiag.sample()))
    play = (Work("macbeth", (FOLDER / "heldout.txt").read_bytes()),)
    loss, _ = held_out_loss(model, play, 256)
    assert loss == pytest.approx(CARD["held_out"]["loss"], rel=0.05)


def test_the_card_for_reading_carries_the_figures() -> None:
    text = (FOLDER / "README.md").read_text()
    for figure in (
        f"{CARD['held_out']['loss']:.4f} nats per byte",
        f"{CARD['parameters']:,} parameters",
        CARD["data"]["sha256"],
        CARD["command"],
    ):
        assert figure in text
