"""The ALiBi sample: a small ``BloomForCausalLM``, trained from its start, with its card."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from pjdiag.lab.card import data_lines, made_with
from pjdiag.lab.corpora import Corpus
from pjdiag.lab.folders import require_free, save_pretrained, write_folder
from pjdiag.lab.patched_recipe import FINAL_RATE, Phase
from pjdiag.lab.recipe import ProgressCallback, TrainOutcome
from pjdiag.lab.token_training import Measure, Measured, TokenTraining, encoded, made_tokenizer
from pjdiag.lab.words import duration

CARD_VERSION = 1


@dataclass(frozen=True)
class AlibiRecipe:
    """Model, tokenizer and schedule. Sizes are those of transformers' ``BloomConfig``."""

    vocab_size: int = 512
    """Byte-level BPE, made from the training works."""
    hidden_size: int = 80
    n_layer: int = 2
    n_head: int = 4
    train_length: int = 192
    """Tokens of a window; the model itself knows no length."""
    phase: Phase = field(
        default_factory=lambda: Phase(steps=3000, learning_rate=4e-3, warmup_steps=100)
    )
    batch_size: int = 16
    """Windows of train_length + 1 tokens in a step."""
    weight_decay: float = 0.05
    gradient_clip: float = 1.0
    eval_every: int = 300
    eval_windows: int = 128
    """Fixed held-out windows, evenly spread, for the losses on the way."""
    seed: int = 0


LANGUAGE_ALIBI = AlibiRecipe()


def make_alibi(
    recipe: AlibiRecipe,
    corpus: Corpus,
    out: Path,
    progress: ProgressCallback | None = None,
    source: str = "",
    command: str = "",
) -> TrainOutcome:
    """Train, and leave a Hugging Face folder with its card in ``out``.

    An interrupted run starts again from the beginning. torch's global random state is left as it
    was. Raises UsageError where ``out`` is not empty or training diverges, OutputError where it
    cannot be written.
    """
    require_free(out)
    corpus.require_windows(8 * recipe.train_length)
    tokenizer = made_tokenizer(corpus.train, recipe.vocab_size)
    texts = [encoded(tokenizer, work) for work in corpus.train]
    held_out = [encoded(tokenizer, work) for work in corpus.held_out]
    measure = Measure(held_out, corpus, recipe.train_length)
    training = TokenTraining(recipe, texts, measure, progress, recipe.phase.steps)
    with torch.random.fork_rng(devices=[]):
        model = _bloom(recipe, tokenizer)
        training.phase(model, recipe.phase, "only")
    model.eval()
    measured = measure(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    values = _card(recipe, corpus, training, measured, parameters, source, command)

    def write(folder: Path) -> None:
        save_pretrained(folder, model, tokenizer)
        text = json.dumps(values, indent=1, allow_nan=False) + "\n"
        (folder / "card.json").write_text(text, encoding="utf-8", newline="\n")
        (folder / "README.md").write_text(card_markdown(values), encoding="utf-8", newline="\n")

    write_folder(out, write)
    last = training.history[-1]
    return TrainOutcome(
        checkpoint=out / "model.safetensors",
        card=out / "card.json",
        history=tuple(training.history),
        best_step=last.step,
        best_held_out_loss=last.held_out_loss,
        final_held_out_loss=measured.nats_per_byte,
        held_out_bytes=round(measured.predicted_tokens * measured.bytes_per_token),
        parameters=parameters,
        minutes=training.seconds / 60,
    )


def _bloom(recipe: AlibiRecipe, tokenizer: Any) -> Any:
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(recipe.seed)
    end = tokenizer.eos_token_id
    settings: Any = BloomConfig  # which keeps fields that its signature does not name
    config = settings(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden_size,
        n_layer=recipe.n_layer,
        n_head=recipe.n_head,
        seq_length=recipe.train_length,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    return BloomForCausalLM(config)


def _card(
    recipe: AlibiRecipe,
    corpus: Corpus,
    training: TokenTraining,
    measured: Measured,
    parameters: int,
    source: str,
    command: str,
) -> dict[str, Any]:
    return {
        "card_version": CARD_VERSION,
        "checkpoint": "model.safetensors",
        "command": command,
        "parameters": parameters,
        "made_with": made_with("pjdiag", "torch", "transformers", "tokenizers", "numpy"),
        "data": {
            "source": source,
            "sha256": corpus.digest,
            "train": {work.name: len(work.data) for work in corpus.train},
            "held_out": {work.name: len(work.data) for work in corpus.held_out},
        },
        "recipe": asdict(recipe),
        "held_out": {**asdict(measured), "context": recipe.train_length},
        "history": [asdict(point) for point in training.history],
        "minutes": training.seconds / 60,
    }


def card_markdown(values: dict[str, Any]) -> str:
    """The card for reading."""
    recipe, data, held_out = values["recipe"], values["data"], values["held_out"]
    phase = recipe["phase"]
    packages = ", ".join(f"{name} {number}" for name, number in values["made_with"].items())
    lines = [
        "# Bloom with ALiBi, a small language model",
        "",
        f"{values['parameters']:,} parameters, float32: `BloomForCausalLM`, {recipe['n_layer']} "
        f"layers, {recipe['n_head']} heads, width {recipe['hidden_size']}, "
        f"{recipe['vocab_size']} tokens (byte-level BPE made from the training works), ALiBi "
        f"slopes fixed by the class. Trained on windows of L = {recipe['train_length']} tokens.",
        "",
        "## Held-out loss",
        "",
        f"{held_out['nats_per_token']:.4f} nats per token, {held_out['nats_per_byte']:.4f} nats "
        f"per byte, over {held_out['predicted_tokens']:,} tokens of the held-out works "
        f"({held_out['bytes_per_token']:.3f} bytes each), in windows of {held_out['context']} "
        "tokens that share no context. The weights are those of the last step, so the figure is "
        "not chosen on what it measures.",
        "",
        "## Data",
        "",
        *data_lines(data),
        "",
        "## Recipe",
        "",
        f"AdamW, {phase['steps']:,} steps of {recipe['batch_size']} windows at "
        f"{phase['learning_rate']:g}, seed {recipe['seed']}, weight decay "
        f"{recipe['weight_decay']:g} on matrices. The rate warms up over "
        f"{phase['warmup_steps']} steps and falls to {FINAL_RATE:.0%} of its peak. "
        f"{duration(values['minutes'])} on a CPU ({packages}).",
        "",
        *(["To make it again:", "", f"    {values['command']}", ""] if values["command"] else []),
        "| step | train, nats per byte | held out |",
        "|---:|---:|---:|",
        *(
            f"| {point['step']:,} | {point['train_loss']:.4f} | {point['held_out_loss']:.4f} |"
            for point in values["history"]
        ),
        "",
    ]
    return "\n".join(lines)
