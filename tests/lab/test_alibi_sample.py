"""The recipe of the ALiBi sample, at a size that runs in seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

import pjdiag
from pjdiag.errors import UsageError
from pjdiag.lab.alibi_sample import LANGUAGE_ALIBI, make_alibi
from pjdiag.lab.patched_recipe import Phase
from pjdiag.lab.recipe import Progress
from tests.lab.test_patched_training import corpus

SMALL = replace(
    LANGUAGE_ALIBI,
    vocab_size=280,
    hidden_size=16,
    n_head=2,
    train_length=16,
    phase=Phase(12, learning_rate=1e-2, warmup_steps=3),
    batch_size=4,
    eval_every=4,
    eval_windows=16,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Progress]]:
    out = tmp_path_factory.mktemp("alibi") / "out"
    told: list[Progress] = []
    state = torch.get_rng_state()
    outcome = make_alibi(SMALL, corpus(), out, told.append, "From here.", "make it")
    assert torch.equal(torch.get_rng_state(), state)
    assert outcome.checkpoint == out / "model.safetensors"
    assert [point.step for point in outcome.history] == [4, 8, 12]
    return out, told


def test_it_is_a_bloom_whose_slopes_are_read(made: tuple[Path, list[Progress]]) -> None:
    folder, told = made
    assert [(entry.step, entry.steps) for entry in told] == [(n, 12) for n in range(1, 13)]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert type(model).__name__ == "BloomForCausalLM"
    (row, *_) = pjdiag.inspect(folder).select(scope="layer")
    assert row["mechanism"] == "alibi"
    assert row["slopes"] == pytest.approx([2**-4, 2**-8])


def test_the_card_agrees_with_the_model(made: tuple[Path, list[Progress]]) -> None:
    folder, _ = made
    card = json.loads((folder / "card.json").read_text())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert card["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    text = (folder / "README.md").read_text()
    for figure in (
        f"{card['held_out']['nats_per_byte']:.4f} nats per byte",
        f"{card['parameters']:,} parameters",
        card["data"]["sha256"],
        "From here.",
        "make it",
    ):
        assert figure in text


def test_the_same_seed_makes_the_same_weights(
    made: tuple[Path, list[Progress]], tmp_path: Path
) -> None:
    make_alibi(SMALL, corpus(), tmp_path / "again")
    again = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert again == (made[0] / "model.safetensors").read_bytes()


def test_a_folder_that_holds_something_is_refused(made: tuple[Path, list[Progress]]) -> None:
    with pytest.raises(UsageError, match="is not empty"):
        make_alibi(SMALL, corpus(), made[0])
