"""The card of the patched sample: recipe, data, losses beside a control, gates before and after."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pjdiag.lab.card import data_lines
from pjdiag.lab.corpora import Corpus
from pjdiag.lab.patched_recipe import FINAL_RATE, PatchedRecipe
from pjdiag.lab.patched_training import PatchedRun
from pjdiag.lab.token_training import Measured
from pjdiag.lab.words import duration

CARD_VERSION = 1
PACKAGES = ("pjdiag", "torch", "transformers", "tokenizers", "numpy")


def card(
    recipe: PatchedRecipe, corpus: Corpus, run: PatchedRun, source: str, command: str
) -> dict[str, Any]:
    """The card as plain values."""
    return {
        "card_version": CARD_VERSION,
        "checkpoint": "model.safetensors",
        "command": command,
        "parameters": run.parameters,
        "made_with": {name: version(name) for name in PACKAGES},
        "data": {
            "source": source,
            "sha256": corpus.digest,
            "train": {work.name: len(work.data) for work in corpus.train},
            "held_out": {work.name: len(work.data) for work in corpus.held_out},
        },
        "recipe": recipe.to_dict(),
        "held_out": {
            "bytes_per_token": run.base.bytes_per_token,
            "predicted_tokens": run.patched.predicted_tokens,
            "context": recipe.train_length,
            **{
                name: {
                    "nats_per_token": measured.nats_per_token,
                    "nats_per_byte": measured.nats_per_byte,
                }
                for name, measured in _losses(run).items()
            },
        },
        "gates": run.gates,
        "history": [
            {
                "step": point.step,
                "train_nats_per_byte": point.train_loss,
                "held_out_nats_per_byte": point.held_out_loss,
            }
            for point in run.history
        ],
        "minutes": run.seconds / 60,
    }


def write_card(values: dict[str, Any], folder: Path) -> None:
    """Write ``card.json`` and ``README.md`` into ``folder``."""
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    (folder / "card.json").write_text(text, encoding="utf-8", newline="\n")
    (folder / "README.md").write_text(card_markdown(values), encoding="utf-8", newline="\n")


def card_markdown(values: dict[str, Any]) -> str:
    """The card for reading."""
    recipe, data, held_out = values["recipe"], values["data"], values["held_out"]
    lines = [
        "# Llama with a PJ-bias, patched by pjdiag",
        "",
        f"{values['parameters']:,} parameters, float32: `LlamaForCausalLM`, "
        f"{recipe['num_hidden_layers']} layers, {recipe['num_attention_heads']} heads over "
        f"{recipe['num_key_value_heads']} key heads, width {recipe['hidden_size']}, "
        f"{recipe['vocab_size']} tokens (byte-level BPE made from the training works), RoPE. "
        f"`pjdiag.patch` added sectors {', '.join(recipe['sectors'])} up to jet order "
        f"{recipe['max_order']}, L = {recipe['train_length']} tokens.",
        "",
        "`pjdiag.load_model` gives the model with its bias; transformers' `from_pretrained` loses "
        "the bias.",
        "",
        "## Held-out loss",
        "",
        "| model | nats per token | nats per byte |",
        "|---|---:|---:|",
        *(
            f"| {words} | {held_out[name]['nats_per_token']:.4f} | "
            f"{held_out[name]['nats_per_byte']:.4f} |"
            for name, words in LOSSES.items()
        ),
        "",
        f"Over {held_out['predicted_tokens']:,} tokens of the held-out works "
        f"({held_out['bytes_per_token']:.3f} bytes each), in windows of {held_out['context']} "
        "tokens that share no context. The weights are those of the last step, so no figure is "
        "chosen on what it measures. The control saw the same windows in the same order.",
        "",
        "## Gates",
        "",
        "Every gate is 1/3 at the patch. Afterwards:",
        "",
        "| layer | head | fj | affine | lc |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {layer} | {head} | " + " | ".join(f"{gate:.3f}" for gate in gates) + " |"
            for layer, heads in enumerate(values["gates"]["after"])
            for head, gates in enumerate(heads)
        ),
        "",
        "## Data",
        "",
        *data_lines(data),
        "",
        "## Recipe",
        "",
        *_recipe_lines(values),
    ]
    return "\n".join(lines)


LOSSES = {
    "base": "before the patch",
    "control": "trained on without a PJ-bias (control)",
    "patched": "patched and trained on (this checkpoint)",
}


def _losses(run: PatchedRun) -> dict[str, Measured]:
    return {"base": run.base, "control": run.control, "patched": run.patched}


def _recipe_lines(values: dict[str, Any]) -> list[str]:
    recipe = values["recipe"]
    base, patched = recipe["base"], recipe["patched"]
    made_with = ", ".join(f"{name} {number}" for name, number in values["made_with"].items())
    return [
        f"AdamW, windows of {recipe['train_length']} tokens, {recipe['batch_size']} a step, seed "
        f"{recipe['seed']}, weight decay {recipe['weight_decay']:g} on matrices. Rates warm up "
        f"over {base['warmup_steps']} steps and fall to {FINAL_RATE:.0%} of their peak.",
        "",
        f"1. {base['steps']:,} steps at {base['learning_rate']:g}.",
        f"2. `pjdiag.patch`, then {patched['steps']:,} steps at {patched['learning_rate']:g}; the "
        f"PJ-bias at {patched['position_learning_rate']:g}, without weight decay.",
        f"3. The control: the model of step 1, the same {patched['steps']:,} steps without a bias.",
        "",
        f"{duration(values['minutes'])} on a CPU for all three ({made_with}). To make it again:",
        "",
        f"    {values['command']}",
        "",
        "| step | train, nats per byte | held out |",
        "|---:|---:|---:|",
        *(
            f"| {point['step']:,} | {point['train_nats_per_byte']:.4f} | "
            f"{point['held_out_nats_per_byte']:.4f} |"
            for point in values["history"]
        ),
        "",
        f"Held out: {recipe['eval_windows']} fixed windows. The patch is after step "
        f"{base['steps']:,}.",
        "",
    ]
