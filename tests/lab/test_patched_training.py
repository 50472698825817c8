"""The recipe of the patched sample, at a size that runs in seconds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import pjdiag
from pjdiag.errors import DataError, UsageError
from pjdiag.lab.corpora import Corpus, Work, split
from pjdiag.lab.folders import write_folder
from pjdiag.lab.patched_card import card_markdown
from pjdiag.lab.patched_recipe import PATCHED_LLAMA, PatchedRecipe, Phase
from pjdiag.lab.patched_sample import make_patched
from pjdiag.lab.patched_training import run_recipe
from pjdiag.lab.recipe import Progress
from pjdiag.lab.token_training import encoded, made_tokenizer
from pjdiag.models.patching import patched_layers

LINES = "".join(f"the {i % 7}th hill and the {i % 5}th river, said she\n" for i in range(300))
SMALL = replace(
    PATCHED_LLAMA,
    vocab_size=280,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    train_length=16,
    base=Phase(12, learning_rate=1e-2, warmup_steps=3),
    patched=Phase(8, learning_rate=3e-3, position_learning_rate=3e-2, warmup_steps=2),
    batch_size=4,
    eval_every=4,
    eval_windows=16,
)


def corpus() -> Corpus:
    works = [Work(name, f"{name}\n{LINES}".encode()) for name in ("a", "b", "c")]
    return split(works, ["c"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Progress]]:
    out = tmp_path_factory.mktemp("sample") / "out"
    told: list[Progress] = []
    state = torch.get_rng_state()
    outcome = make_patched(
        SMALL, corpus(), out, {"heldout.txt": b"x"}, told.append, "From here.", "make it"
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert outcome.checkpoint == out / "model.safetensors"
    assert outcome.parameters == sum(
        parameter.numel() for parameter in pjdiag.load_model(out).parameters()
    )
    return out, told


def test_the_folder_is_a_patched_model_with_its_card(made: tuple[Path, list[Progress]]) -> None:
    out, told = made
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "card.json"} <= names
    assert {"README.md", "heldout.txt"} <= names
    reading = pjdiag.read(out)
    assert reading.adapter == "patched"
    assert reading.train_length.value == 16
    assert told[-1].step == told[-1].steps == 12 + 8 + 8
    card = json.loads((out / "card.json").read_text())
    assert PatchedRecipe.from_dict(card["recipe"]) == SMALL
    assert (out / "README.md").read_text() == card_markdown(card)
    assert "    make it\n" in card_markdown(card)
    assert [point["step"] for point in card["history"]] == [4, 8, 12, 16, 20]


def test_the_gates_moved(made: tuple[Path, list[Progress]]) -> None:
    card = json.loads((made[0] / "card.json").read_text())
    before, after = (np.asarray(card["gates"][when]) for when in ("before", "after"))
    np.testing.assert_allclose(before, 1 / 3, rtol=1e-6)
    assert np.abs(after - before).max() > 1e-3
    biases = patched_layers(pjdiag.load_model(made[0]))
    for layer, (_, bias) in enumerate(biases):
        np.testing.assert_allclose(bias.kernel().gates.detach().numpy(), after[layer], rtol=1e-6)


def test_the_loss_on_the_card_is_that_of_the_folder(
    made: tuple[Path, list[Progress]], tmp_path: Path
) -> None:
    card = json.loads((made[0] / "card.json").read_text())
    (tmp_path / "c.txt").write_bytes(corpus().held_out[0].data)
    result = pjdiag.nll(made[0], tmp_path / "c.txt", [16])
    (row,) = result.select(scope="model", bucket="all")
    stated = card["held_out"]
    assert row["tokens"] == stated["predicted_tokens"]
    assert row["nll"] == pytest.approx(stated["patched"]["nats_per_token"], rel=1e-5)
    assert result.provenance["bytes_per_token"] == pytest.approx(stated["bytes_per_token"])
    per_byte = stated["patched"]["nats_per_token"] / stated["bytes_per_token"]
    assert stated["patched"]["nats_per_byte"] == pytest.approx(per_byte)
    assert stated["patched"]["nats_per_token"] < math.log(280)


def test_the_same_recipe_gives_the_same_weights(made: tuple[Path, list[Progress]]) -> None:
    again = run_recipe(SMALL, corpus())
    ids = torch.arange(12)[None]
    model = pjdiag.load_model(made[0])
    with torch.no_grad():
        torch.testing.assert_close(
            again.model(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-5, rtol=1e-5
        )
    other = run_recipe(replace(SMALL, seed=1), corpus())
    assert other.patched.nats_per_token != again.patched.nats_per_token


def test_the_tokenizer_gives_the_text_back(made: tuple[Path, list[Progress]]) -> None:
    tokenizer = made_tokenizer(corpus().train, 280)
    loaded = transformers.AutoTokenizer.from_pretrained(made[0])
    text = corpus().held_out[0].data.decode() + "\u00e9 \n\tend"
    ids = encoded(tokenizer, Work("x", text.encode()))
    assert loaded(text, add_special_tokens=False)["input_ids"] == ids.tolist()
    assert loaded.decode(ids) == text
    assert ids.max() < 280


def test_a_folder_in_use_is_refused_before_the_training(
    made: tuple[Path, list[Progress]],
) -> None:
    with pytest.raises(UsageError, match="is not empty"):
        make_patched(SMALL, corpus(), made[0], {})
    with pytest.raises(DataError, match="a window has 128"):
        make_patched(
            SMALL, split([Work("a", b"x" * 99), Work("b", b"y")], ["b"]), made[0] / "n", {}
        )


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_text("done")
        raise RuntimeError("on the way")

    with pytest.raises(RuntimeError):
        write_folder(tmp_path / "out", write)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        write_folder(tmp_path / "link", lambda folder: None)
