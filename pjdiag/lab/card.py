"""The card of a trained model: what it was trained on, how, and how well it does."""

from __future__ import annotations

import json
import math
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.native import write_atomically
from pjdiag.lab.recipe import TrainOutcome, TrainRecipe
from pjdiag.lab.words import duration
from pjdiag.render.text import counted, plural

CARD_VERSION = 1
LANGUAGE = "byte-level language model"
"""What a model is where nothing else is said."""
LATE_SHARE = 0.2


def late_improvement(outcome: TrainOutcome) -> float | None:
    """Share by which the lowest held-out loss fell in the last fifth of the steps.

    None where no evaluation lies before it.
    """
    turn = (1 - LATE_SHARE) * outcome.history[-1].step
    early = [point.held_out_loss for point in outcome.history if point.step <= turn]
    return 1 - outcome.best_held_out_loss / min(early) if early else None


def card(
    recipe: TrainRecipe,
    corpus: Corpus,
    outcome: TrainOutcome,
    source: str = "",
    command: str = "",
    kind: str = LANGUAGE,
) -> dict[str, Any]:
    """The card as plain values. Losses are mean next-byte NLL in nats per byte."""
    return {
        "card_version": CARD_VERSION,
        "kind": kind,
        "checkpoint": outcome.checkpoint.name,
        "command": command,
        "parameters": outcome.parameters,
        "made_with": made_with(),
        "data": {
            "source": source,
            "sha256": corpus.digest,
            "train": _sizes(corpus.train),
            "held_out": _sizes(corpus.held_out),
        },
        "recipe": recipe.to_dict(),
        "held_out": {
            "loss": outcome.final_held_out_loss,
            "predicted_bytes": outcome.held_out_bytes,
            "context": recipe.model.train_length,
            "best_step": outcome.best_step,
            "best_loss_on_fixed_windows": outcome.best_held_out_loss,
            "late_improvement": late_improvement(outcome),
        },
        "history": [
            {
                "step": point.step,
                "train_loss": point.train_loss,
                "held_out_loss": point.held_out_loss,
            }
            for point in outcome.history
        ],
        "minutes": outcome.minutes,
    }


def write_card(
    recipe: TrainRecipe,
    corpus: Corpus,
    outcome: TrainOutcome,
    source: str = "",
    command: str = "",
    kind: str = LANGUAGE,
) -> None:
    """Write ``card.json`` and ``README.md`` beside the checkpoint. Raises OutputError."""
    values = card(recipe, corpus, outcome, source, command, kind)
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    write_atomically(outcome.card, lambda path: _write(path, text))
    write_atomically(
        outcome.card.with_name("README.md"), lambda path: _write(path, card_markdown(values))
    )


def card_markdown(values: dict[str, Any]) -> str:
    """The card for reading."""
    recipe, data, held_out = values["recipe"], values["data"], values["held_out"]
    model = recipe["model"]
    late = held_out["late_improvement"]
    works = plural("work", len(data["held_out"]))
    lines = [
        f"# {model['method']}, {values.get('kind', LANGUAGE)}",
        "",
        f"{counted(values['parameters'], 'parameter')}: {counted(model['layers'], 'layer')}, "
        f"{counted(model['num_heads'], 'head')}, width {model['embed_dim']}, "
        f"position method `{model['method']}`, jet orders up to {model['max_order']}, "
        f"train length L = {model['train_length']} bytes. Float32.",
        "",
        "## Data",
        "",
        *data_lines(data, named=True),
        "",
        "## Held-out loss",
        "",
        f"{held_out['loss']:.4f} nats per byte ({held_out['loss'] / math.log(2):.4f} bits) over "
        f"{held_out['predicted_bytes']:,} bytes of the held-out {works}, in windows of "
        f"{held_out['context']} bytes that share no context. The checkpoint is the evaluation with "
        f"the lowest loss on {recipe['eval_windows']} fixed windows of the same {works} (step "
        f"{held_out['best_step']:,}), so the figure is chosen on what it measures.",
        "",
    ]
    if late is not None:
        lines += [
            f"Over the last {LATE_SHARE:.0%} of the steps the lowest loss on the fixed windows "
            f"fell by {late:.2%}; the learning rate falls to {recipe['final_rate']:.0%} of its "
            "peak by then, and flattens it too.",
            "",
        ]
    lines += ["| step | train | held out |", "|---:|---:|---:|"]
    lines += [
        f"| {point['step']:,} | {point['train_loss']:.4f} | {point['held_out_loss']:.4f} |"
        for point in _thinned(values["history"])
    ]
    lines += [
        "",
        "## Recipe",
        "",
        f"AdamW, {counted(recipe['steps'], 'step')} of "
        f"{counted(recipe['batch_size'], 'random window')}, seed {recipe['seed']}; "
        f"{duration(values['minutes'])} on a CPU "
        f"({', '.join(f'{name} {number}' for name, number in values['made_with'].items())}).",
        "",
        *(["To make it again:", "", f"    {values['command']}", ""] if values["command"] else []),
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in recipe.items() if name != "model"),
        *(f"| model {name} | {value} |" for name, value in model.items()),
        "",
    ]
    return "\n".join(lines)


def data_lines(data: dict[str, Any], *, named: bool = False) -> list[str]:
    """Source, sizes and digest of the works on a card, for reading; ``named``: those that are
    trained on by name.
    """
    names = f": {', '.join(data['train'])}" if named else ""
    return [
        *([data["source"], ""] if data["source"] else []),
        f"- Trained on {_amount(data['train'])}{names}.",
        f"- Held out, whole: {', '.join(data['held_out'])}; "
        f"{sum(data['held_out'].values()):,} bytes.",
        f"- SHA-256 of works and split: `{data['sha256']}`",
    ]


def _thinned(history: list[dict[str, Any]], rows: int = 25) -> list[dict[str, Any]]:
    """At most ``rows`` evenly spread points, the last one among them."""
    stride = -(-len(history) // rows)
    return [point for index, point in enumerate(reversed(history)) if index % stride == 0][::-1]


def _amount(sizes: dict[str, int]) -> str:
    """How much text: works by name, with their bytes."""
    return f"{counted(len(sizes), 'work')}, {counted(sum(sizes.values()), 'byte')}"


def _sizes(works: tuple[Work, ...]) -> dict[str, int]:
    return {work.name: len(work.data) for work in works}


def made_with(*packages: str) -> dict[str, str]:
    """Versions of the packages that a trained model depends on."""
    return {name: _version(name) for name in packages or ("pjdiag", "torch", "numpy")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
