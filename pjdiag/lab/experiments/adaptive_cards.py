"""The learned teachers as small checkpoints that anyone can diagnose, and their card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pjdiag.lab.experiments.adaptive_fit import LEARNING_RATE, Learned, holder
from pjdiag.lab.experiments.base import chosen, shortened
from pjdiag.lab.experiments.kernel_targets import OMEGA, TARGETS, TRAIN_LENGTH
from pjdiag.lab.native import save_model, write_atomically
from pjdiag.results import Row

COMMAND = "pjdiag reproduce adaptive-recovery --folder DIR"
FORMULAS = {
    "phase": "cos(w d)",
    "linear": "x",
    "first_jet": "x cos(w d)",
    "second_jet": "x^2 e^(-0.1 x) cos(w d)",
    "third_jet": "x^3 e^(-0.1 x) cos(w d)",
    "recency_weak_jet": "-0.4 x + 0.15 x^2 cos(w d)",
    "lc_core": "cos(w phi) (1 + 0.4 beta + 0.2 beta^2)",
    "lc_affine": "cos(w phi) (1 + 0.4 beta + 0.2 beta^2) - 0.25 asinh(x)",
}


def write_teachers(
    folder: Path, learned: Mapping[str, Learned], rows: Sequence[Row], steps: int
) -> None:
    """One native checkpoint a teacher, of its best restart, with ``card.json`` and ``README.md``.

    Raises OutputError where they cannot be written.
    """
    for name, each in learned.items():
        recipe = {
            "experiment": "adaptive-recovery",
            "teacher": FORMULAS[name],
            "steps": steps,
            "learning_rate": LEARNING_RATE,
            "restarts": len(each.errors),
            "restart": each.best,
        }
        save_model(holder(each.parameters[each.best]), folder / f"{name}.safetensors", recipe)
    card = _card(learned, rows, steps)
    text = json.dumps(card, indent=1, allow_nan=False) + "\n"
    write_atomically(folder / "card.json", lambda path: _write(path, text))
    write_atomically(folder / "README.md", lambda path: _write(path, _markdown(card)))


def _card(learned: Mapping[str, Learned], rows: Sequence[Row], steps: int) -> dict[str, Any]:
    return {
        "command": COMMAND,
        "recipe": {
            "optimiser": "Adam",
            "steps": steps,
            "learning_rate": LEARNING_RATE,
            "restarts": max((len(each.errors) for each in learned.values()), default=0),
            "train_length": TRAIN_LENGTH,
            "omega": OMEGA,
        },
        "teachers": {
            name: {
                "teacher": FORMULAS[name],
                "expected": _expected(name),
                "found": {
                    row["variant"]: row["part"]
                    for row in chosen(rows, subject=name, figure="recovered")
                },
                "mse": shortened(min(each.errors)),
                "r2": shortened(each.r2, 8),
            }
            for name, each in learned.items()
        },
    }


def _expected(name: str) -> str:
    target = TARGETS[name]
    return target.sector.value + ("" if target.order is None else f":{target.order}")


def _markdown(card: Mapping[str, Any]) -> str:
    recipe = card["recipe"]
    lines = [
        "# Eight adaptive teachers",
        "",
        "Each file is a causal model of one layer and one head that was never trained on text: "
        "only the PJ-bias of its attention has been fitted, with all three sectors, to a teacher "
        f"kernel over the lags d below L = {recipe['train_length']:,} (x = d/L, w = 2 pi 17/L). "
        "So what a diagnosis should find is known.",
        "",
        f"Adam, {recipe['steps']:,} steps at {recipe['learning_rate']:g}; of "
        f"{recipe['restarts']} restarts the one with the least error. The data are the kernels "
        "themselves.",
        "",
        "| file | teacher | expected | mass | energy | leave-one-out | R^2 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in card["teachers"].items():
        found = " | ".join(each["found"].get(of, "") for of in ("mass", "energy", "loo"))
        lines.append(
            f"| `{name}` | {each['teacher']} | {each['expected']} | {found} | {each['r2']:.6f} |"
        )
    lines += [
        "",
        "`fj:2` is order 2 of the Fourier-jet sector. To make them again:",
        "",
        f"    {card['command']}",
        "",
        "They are then in `DIR/adaptive_teachers`.",
        "",
    ]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
