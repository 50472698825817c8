"""The shipped language models beside the first: cards, weights and text agree."""

import json
import math
from dataclasses import asdict

import pytest

import pjdiag
from pjdiag.lab import alibi_sample, card
from pjdiag.lab.alibi_sample import LANGUAGE_ALIBI
from pjdiag.lab.recipe import TrainRecipe
from pjdiag.lab.samples import MUSIC_RECIPES, RECIPES, WITH_EXCERPT
from pjdiag.samples import held_out_text

NATIVE = sorted(set(RECIPES) - set(WITH_EXCERPT))
FIXED = "inv_freqs"
"""PoPE's frequencies are stored and not learned."""
ALIBI = pjdiag.sample("language_alibi").parent


def folder_of(name: str) -> str:
    return name.replace("-", "_")


def loss(name: str, length: int) -> float:
    result = pjdiag.nll(pjdiag.sample(name), held_out_text(), lengths=[length], windows=256)
    (row,) = result.select(scope="model", bucket="all")
    return float(row["nll"])


@pytest.mark.parametrize("name", NATIVE)
def test_a_model_is_of_the_recipe_in_the_code_and_as_good_as_its_card_says(name: str) -> None:
    path = pjdiag.sample(folder_of(name))
    card = json.loads((path.parent / "card.json").read_text())
    assert path.stat().st_size < 2**20
    assert TrainRecipe.from_dict(card["recipe"]) == RECIPES[name]
    assert card["command"] == f"pjdiag train --sample {name} -o DIR"
    checkpoint = pjdiag.load(path)
    stated = json.loads(checkpoint.metadata["pjdiag"])
    assert stated["method"] == RECIPES[name].model.method
    assert stated["recipe"]["corpus_sha256"] == card["data"]["sha256"]
    learned = {name: header for name, header in checkpoint.headers.items() if FIXED not in name}
    assert sum(math.prod(header.shape) for header in learned.values()) == card["parameters"]
    assert f"{card['held_out']['loss']:.4f} nats" in (path.parent / "README.md").read_text()
    assert loss(folder_of(name), 128) == pytest.approx(card["held_out"]["loss"], rel=0.05)


def test_the_bloom_is_of_the_recipe_in_the_code_and_as_good_as_its_card_says() -> None:
    card = json.loads((ALIBI / "card.json").read_text())
    assert (ALIBI / "model.safetensors").stat().st_size < 2**20
    assert card["recipe"] == asdict(LANGUAGE_ALIBI)
    assert json.loads((ALIBI / "config.json").read_text())["architectures"] == ["BloomForCausalLM"]
    assert loss("language_alibi", 192) == pytest.approx(
        card["held_out"]["nats_per_token"], rel=0.05
    )


@pytest.mark.parametrize("name", MUSIC_RECIPES)
def test_a_model_of_tunes_is_of_the_recipe_in_the_code(name: str) -> None:
    path = pjdiag.sample(folder_of(name))
    card = json.loads((path.parent / "card.json").read_text())
    assert path.stat().st_size < 2**20
    assert TrainRecipe.from_dict(card["recipe"]) == MUSIC_RECIPES[name]
    stated = json.loads(pjdiag.load(path).metadata["pjdiag"])
    assert stated["method"] == MUSIC_RECIPES[name].model.method
    assert stated["recipe"]["corpus_sha256"] == card["data"]["sha256"]
    assert "folk tunes" in (path.parent / "README.md").read_text().splitlines()[0]


@pytest.mark.parametrize("name", [*RECIPES, *MUSIC_RECIPES, "language-alibi"])
def test_the_card_for_reading_is_made_of_the_figures(name: str) -> None:
    folder = pjdiag.sample(folder_of(name)).parent
    figures = json.loads((folder / "card.json").read_text())
    made = (alibi_sample if name == "language-alibi" else card).card_markdown(figures)
    assert (folder / "README.md").read_text() == made
