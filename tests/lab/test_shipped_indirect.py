"""The shipped models of indirect indexing: card, weights and problems agree."""

import json
import math

import pytest

import pjdiag
from pjdiag.lab.experiments.indirect_training import (
    TASK,
    accuracies,
    recipe_of,
    some_problems,
)
from pjdiag.lab.native import load_model
from pjdiag.lab.recipe import TrainRecipe
from pjdiag.lab.samples import INDIRECT

NAMES = sorted(INDIRECT)


@pytest.mark.parametrize("name", NAMES)
def test_card_weights_and_problems_agree(name: str) -> None:
    path = pjdiag.sample(name.replace("-", "_"))
    assert path.stat().st_size < 2**20
    card = json.loads((path.parent / "card.json").read_text())
    assert TrainRecipe.from_dict(card["recipe"]) == recipe_of(*INDIRECT[name])
    assert card["task"]["sha256"] == TASK.digest
    assert card["command"] == f"pjdiag train --sample {name} -o DIR"
    checkpoint = pjdiag.load(path)
    sizes = [math.prod(header.shape) for header in checkpoint.headers.values()]
    buffers = [header for key, header in checkpoint.headers.items() if key.endswith("inv_freqs")]
    assert sum(sizes) - sum(math.prod(each.shape) for each in buffers) == card["parameters"]
    assert (path.parent / "heldout.txt").read_bytes() == bytes(some_problems().ravel().tolist())
    found = accuracies(load_model(checkpoint))
    assert found["accuracy"] == pytest.approx(card["test"]["accuracy"], abs=2e-3)
    text = (path.parent / "README.md").read_text()
    for figure in (f"{card['test']['accuracy']:.1%}", card["command"], f"{card['parameters']:,}"):
        assert figure in text
    best = min(card["history"], key=lambda point: point["held_out_loss"])
    assert card["check"]["best_step"] == best["step"]
