"""Training a patched model with transformers' Trainer: every sector moves, the loss falls."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import pjdiag
from pjdiag.errors import UsageError
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.patching import patched_layers, pj_parameters
from pjdiag.models.trainer_callback import sector_figures
from pjdiag.position.parameters import SECTOR_NAMES
from pjdiag.terms import Sector
from tests.models.huggingface.tiny import output, tokens
from tests.models.patched import TRAIN_LENGTH, plain, stirred

STEPS = 12
FIELDS = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
KIND = "activation" if "activation_checkpointing" in FIELDS else "gradient"
"""How this version of transformers names checkpoints of layers."""


def repeating_windows(count: int = 32, length: int = 24, period: int = 6) -> list[dict[str, Any]]:
    """Windows in which every token is the one ``period`` tokens before: position is what counts."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(3, 61, (count, period), generator=generator)
    return [{"input_ids": ids, "labels": ids} for ids in starts.repeat(1, length // period)]


def arguments(folder: Path, **changes: Any) -> transformers.TrainingArguments:
    settings = {
        "output_dir": str(folder), "max_steps": STEPS, "per_device_train_batch_size": 8,
        f"{KIND}_checkpointing": True, "logging_steps": 4, "save_steps": STEPS, "report_to": [],
        "disable_tqdm": True, "use_cpu": True, "seed": 0, "learning_rate": 1e-2,
    }  # fmt: skip
    return transformers.TrainingArguments(**settings | changes)


def checkpointed(model: Any) -> bool:
    return bool(getattr(model, f"is_{KIND}_checkpointing"))


def trained(name: str, folder: Path, **given: Any) -> tuple[Any, transformers.Trainer]:
    model = pjdiag.patch(plain(name), train_length=TRAIN_LENGTH)
    position = pj_parameters(model)
    others = [value for value in model.parameters() if all(value is not p for p in position)]
    optimizer = torch.optim.AdamW(
        [{"params": position, "lr": 3e-2, "weight_decay": 0.0}, {"params": others, "lr": 3e-3}]
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments(folder),
        train_dataset=repeating_windows(),
        optimizers=(optimizer, None),
        **given,
    )
    with quiet():
        trainer.train()
    return model, trainer


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_training_with_checkpointed_layers_moves_every_sector(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = pjdiag.patch(plain(name), train_length=TRAIN_LENGTH)
    model, trainer = trained(name, tmp_path, callbacks=[pjdiag.TrainerCallback()])
    assert checkpointed(model)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.1
    for (_, before), (_, after) in zip(patched_layers(start), patched_layers(model), strict=True):
        raw = dict(after.named_parameters())
        for part, value in before.named_parameters():
            assert bool(((raw[part] - value).abs() > 1e-4).any()), part
        for sector, parts in SECTOR_NAMES.items():
            assert sector in after.sectors
            assert set(parts) <= set(raw)
    shares = [
        {key: entry[f"pj_{key}_share"] for key in Sector}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    assert len(shares) == STEPS // 4
    for entry in shares:
        assert sum(entry.values()) == pytest.approx(1)
    assert "pj_affine_share" in capsys.readouterr().out
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    assert {key: last[key] for key in sector_figures(model)} == sector_figures(model)
    saved = pjdiag.load_model(tmp_path / f"checkpoint-{STEPS}")
    model.eval()
    ids = tokens()
    torch.testing.assert_close(
        output(saved, input_ids=ids), output(model, input_ids=ids), atol=0, rtol=0
    )


def test_gradients_are_those_without_checkpoints() -> None:
    gradients = []
    for recomputing in (False, True):
        model = stirred("llama").train()
        if recomputing:
            getattr(model, f"{KIND}_checkpointing_enable")()
        assert checkpointed(model) is recomputing
        ids = tokens()
        model(input_ids=ids, labels=ids).loss.backward()
        gradients.append([parameter.grad for parameter in pj_parameters(model)])
    for plain_grad, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain_grad, recomputed, atol=1e-6, rtol=1e-5)


def test_the_trainer_gives_the_bias_no_weight_decay(tmp_path: Path) -> None:
    model = stirred("llama")
    trainer = transformers.Trainer(model=model, args=arguments(tmp_path))
    decayed = trainer.get_decay_parameter_names(model)
    assert decayed
    assert not [name for name in decayed if "pj_bias" in name]


def test_shares_are_those_of_pjdiag_mass(tmp_path: Path) -> None:
    model = stirred("qwen3")
    with quiet():
        model.save_pretrained(tmp_path)
    figures = sector_figures(model)
    rows = pjdiag.mass(tmp_path).select(scope="model", family="additive", jet_order=None)
    read = {row["sector"]: row for row in rows if row["sector_share"] is not None}
    assert figures["pj_mass"] == pytest.approx(
        sum(row["effective_mass"] for row in read.values()), rel=1e-6
    )
    for sector in Sector:
        share = read[sector.value]["sector_share"]
        assert figures[f"pj_{sector.value}_share"] == pytest.approx(share, rel=1e-6)


def test_a_bias_at_rest_has_no_shares() -> None:
    model = pjdiag.patch(plain("llama"), train_length=TRAIN_LENGTH)
    assert sector_figures(model) == {"pj_mass": 0.0}


def test_a_model_without_a_bias_is_refused(tmp_path: Path) -> None:
    trainer = transformers.Trainer(
        model=plain("llama"),
        args=arguments(tmp_path),
        train_dataset=repeating_windows(),
        callbacks=[pjdiag.TrainerCallback()],
    )
    with pytest.raises(UsageError, match="has no PJ-bias to report on"):
        trainer.train()


class Reporter(transformers.TrainerCallback):
    """A reporter as transformers puts it before a Trainer's own callbacks."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.seen.append(dict(given["logs"]))


@pytest.mark.parametrize("first", [False, True])
def test_reporters_see_the_shares_where_the_callback_is_put_first(
    first: bool, tmp_path: Path
) -> None:
    reporter, ours = Reporter(), pjdiag.TrainerCallback()
    trainer = transformers.Trainer(
        model=pjdiag.patch(plain("llama"), train_length=TRAIN_LENGTH),
        args=arguments(tmp_path, max_steps=2, logging_steps=1),
        train_dataset=repeating_windows(),
        callbacks=[reporter, ours],
    )
    if first:
        ours.put_first(trainer)
        assert trainer.callback_handler.callbacks.count(ours) == 1
    with quiet():
        trainer.train()
    assert ("pj_mass" in reporter.seen[-2]) is first
    assert "pj_mass" not in reporter.seen[-1]  # the summary of the run
