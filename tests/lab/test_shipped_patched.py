"""The shipped patched Llama: its card, its weights and its text agree."""

import json

import numpy as np
import pytest
import torch

import pjdiag
from pjdiag.lab.patched_card import card_markdown
from pjdiag.lab.patched_recipe import PATCHED_LLAMA, PatchedRecipe
from pjdiag.models.patching import patched_layers
from pjdiag.samples import held_out_text
from pjdiag.terms import Mechanism, Sector

FOLDER = pjdiag.sample("patched_llama").parent
CARD = json.loads((FOLDER / "card.json").read_text())


def test_the_folder_is_small_and_complete() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3 * 2**20
    names = {path.name for path in FOLDER.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
    checkpoint = pjdiag.load(FOLDER)
    assert {header.dtype for header in checkpoint.headers.values()} == {"F32"}
    assert checkpoint.config["pjdiag"] == {
        "version": 1,
        "sectors": ["fj", "affine", "lc"],
        "slope_form": "signed",
        "train_length": PATCHED_LLAMA.train_length,
        "rho": "linear",
        "max_order": 3,
    }


def test_the_card_is_of_the_recipe_in_the_code() -> None:
    assert PatchedRecipe.from_dict(CARD["recipe"]) == PATCHED_LLAMA
    steps = PATCHED_LLAMA.base.steps + PATCHED_LLAMA.patched.steps
    assert CARD["history"][-1]["step"] == steps
    assert not set(CARD["data"]["train"]) & set(CARD["data"]["held_out"])
    assert (FOLDER / "README.md").read_text() == card_markdown(CARD)
    language = json.loads((pjdiag.sample().parent / "card.json").read_text())
    assert CARD["data"]["sha256"] == language["data"]["sha256"]
    assert held_out_text("patched_llama").read_bytes() == held_out_text().read_bytes()


def test_it_was_really_trained_and_its_gates_moved() -> None:
    losses = CARD["held_out"]
    for name in ("control", "patched"):
        assert losses[name]["nats_per_byte"] < losses["base"]["nats_per_byte"]
    biases = patched_layers(pjdiag.load_model(FOLDER))
    before, after = (np.asarray(CARD["gates"][when]) for when in ("before", "after"))
    for layer, (_, bias) in enumerate(biases):
        np.testing.assert_allclose(bias.kernel().gates.detach().numpy(), after[layer], rtol=1e-6)
    np.testing.assert_allclose(before, 1 / 3, rtol=1e-6)
    assert np.abs(after - before).max(axis=(1, 2)).min() > 0.05  # in every layer
    start = pjdiag.patch(_plain(), train_length=PATCHED_LLAMA.train_length)
    for (_, moved), (_, rest) in zip(biases, patched_layers(start), strict=True):
        for name, value in moved.named_parameters():
            assert not torch.equal(value, dict(rest.named_parameters())[name]), name


def _plain() -> torch.nn.Module:
    import transformers

    return transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(FOLDER)
    )


def test_the_model_reads_the_excerpt_as_well_as_the_card_says() -> None:
    length = PATCHED_LLAMA.train_length
    result = pjdiag.nll(FOLDER, held_out_text("patched_llama"), [length], windows=48)
    (row,) = result.select(scope="model", bucket="all")
    size = result.provenance["bytes_per_token"]
    stated = CARD["held_out"]["patched"]["nats_per_byte"]
    assert row["nll"] / size == pytest.approx(stated, rel=0.05)
    assert size == pytest.approx(CARD["held_out"]["bytes_per_token"], rel=0.05)


def test_diagnostics_read_it_statically() -> None:
    reading = pjdiag.read(pjdiag.sample("patched_llama"))
    mechanisms = [[part.mechanism for part in layer.parts] for layer in reading.layers]
    assert mechanisms == [[Mechanism.ROPE, Mechanism.PJ_BIAS]] * PATCHED_LLAMA.num_hidden_layers
    assert not reading.warnings
    rows = pjdiag.mass(reading).select(scope="model", family="additive", jet_order=None)
    shares = {row["sector"]: row["sector_share"] for row in rows if row["sector_share"] is not None}
    assert set(shares) == {sector.value for sector in Sector}
    assert min(shares.values()) > 0.01
