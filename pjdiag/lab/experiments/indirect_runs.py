"""The runs of indirect indexing: each is trained or gone on with, then its spectrum is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pjdiag.api import read
from pjdiag.diagnostics.spectrum import spectrum
from pjdiag.lab.experiments.indirect_training import (
    TASK,
    finished_card,
    recipe_of,
    some_problems,
    train_indirect,
)
from pjdiag.lab.native import save_model
from pjdiag.lab.recipe import TrainRecipe
from pjdiag.lab.run_state import STATE_NAME
from pjdiag.lab.samples import INDIRECT
from pjdiag.lab.task import MODEL_NAME
from pjdiag.models.causal_lm import CausalLM

COMMAND = "pjdiag reproduce indirect-indexing"


def run_folder(runs: Path, method: str, seed: int) -> Path:
    """Where a run lies."""
    return runs / f"indirect-{method}-s{seed}"


def command_of(recipe: TrainRecipe) -> str:
    """What to type to train the run again."""
    run = (recipe.model.method, recipe.seed)
    sample = next((name for name, sampled in INDIRECT.items() if sampled == run), None)
    whole = recipe == recipe_of(*run)
    return f"pjdiag train --sample {sample} -o DIR" if sample and whole else COMMAND


def measured_run(recipe: TrainRecipe, runs: Path) -> dict[str, Any]:
    """Train what is missing of a run, and what it came to: a JSON object.

    ``runs`` holds the experiment's own folders: one of another recipe is trained anew.
    """
    folder = run_folder(runs, recipe.model.method, recipe.seed)
    card = finished_card(recipe, folder)
    if card is None:
        if folder.exists() and not (folder / STATE_NAME).exists():
            shutil.rmtree(folder)
        train_indirect(recipe, folder, command=command_of(recipe))
        card = finished_card(recipe, folder) or {}
    kept = ("test", "check", "history", "parameters", "minutes")
    return {
        **{name: card[name] for name in kept},
        "trained": frequencies_used(folder / MODEL_NAME),
        "untrained": _untrained(recipe),
    }


def _untrained(recipe: TrainRecipe) -> dict[str, Any]:
    """The spectrum of the same model before its first step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / MODEL_NAME
        save_model(CausalLM(recipe.model, seed=recipe.seed), path)
        return frequencies_used(path)


def frequencies_used(path: Path) -> dict[str, Any]:
    """Shares of the rotary channels by frequency over all heads and layers.

    ``weights``: of the mass of the bilinear forms, null for PoPE; ``data``: of the mass on
    some test problems. Bands by name, channels in the order of ``wavelengths`` (tokens), jet orders
    summed.
    """
    problems = some_problems()
    found = spectrum(read(path), problems, TASK.length, windows=len(problems))
    rows = [row for row in found.rows if row["scope"] == "model"]
    bands = [row for row in rows if row["channel"] is None and row["jet_order"] is None]
    channels = [row for row in rows if row["channel"] is not None]
    numbers = sorted({row["channel"] for row in channels})
    from_weights = not any(row["mechanism"] == "pope" for row in rows)

    def of(number: int, figure: str) -> list[float]:
        return [row[figure] for row in channels if row["channel"] == number]

    return {
        "wavelengths": [of(number, "wavelength")[0] for number in numbers],
        "bands": {
            row["band"]: _shares(row["share"], row["data_share"], from_weights) for row in bands
        },
        "channels": [
            _shares(sum(of(number, "share")), of(number, "data_share")[0], from_weights)
            for number in numbers
        ],
    }


def _shares(weights: float, data: float, from_weights: bool) -> Mapping[str, float | None]:
    return {"weights": weights if from_weights else None, "data": data}
