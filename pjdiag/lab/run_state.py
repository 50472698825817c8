"""The state of an unfinished training run: one safetensors file in the output folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pjdiag.errors import UsageError
from pjdiag.lab.native import write_atomically
from pjdiag.lab.recipe import HeldOutPoint, TrainRecipe
from pjdiag.models.causal_lm import CausalLM

STATE_NAME = "state.safetensors"
FINISHED_MODEL = "model.safetensors"
_RUN_KEY = "run"
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class RunState:
    """Where a run stands. Weights and moments are in the model and the optimiser."""

    step: int = 0
    seconds: float = 0.0
    history: list[HeldOutPoint] = field(default_factory=list)

    @property
    def best(self) -> HeldOutPoint:
        """The evaluation with the lowest held-out loss, the first of equals."""
        return min(self.history, key=lambda point: point.held_out_loss)


def save_state(
    folder: Path,
    state: RunState,
    recipe: TrainRecipe,
    corpus_digest: str,
    model: CausalLM,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Write the state whole. Random numbers depend on seed and step alone, so none are stored."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach()
        for moment in _MOMENTS:
            if moment in optimizer.state[parameter]:
                tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    run = {"recipe": recipe.to_dict(), "corpus": corpus_digest, **asdict(state)}
    metadata = {_RUN_KEY: json.dumps(run)}
    write_atomically(folder / STATE_NAME, lambda temporary: save_file(tensors, temporary, metadata))


def restore_state(
    folder: Path,
    recipe: TrainRecipe,
    corpus_digest: str,
    model: CausalLM,
    optimizer: torch.optim.Optimizer,
) -> RunState:
    """Where the run in ``folder`` stands; an empty or new folder starts at step 0.

    Fills the model and the optimiser. Raises UsageError for a folder that holds something else,
    or a run with another recipe or corpus.
    """
    path = folder / STATE_NAME
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise _occupied(folder)
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is not a folder", "choose another one")
        return RunState()
    try:
        with safe_open(path, framework="pt") as file:
            run = json.loads((file.metadata() or {})[_RUN_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        _check_same_run(folder, run, recipe, corpus_digest)
        _fill(model, optimizer, tensors, int(run["step"]))
        return RunState(
            step=int(run["step"]),
            seconds=float(run["seconds"]),
            history=[HeldOutPoint(**point) for point in run["history"]],
        )
    except (SafetensorError, OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"the unfinished run in {folder} cannot be read: {error}",
            "remove the folder and train again",
        ) from error


def _occupied(folder: Path) -> UsageError:
    """The error for a folder in which there is no run to go on with."""
    files = (FINISHED_MODEL, "card.json")
    if all((folder / name).is_file() for name in files):
        model = shlex.quote(str(folder / FINISHED_MODEL))
        return UsageError(
            f"the run in {folder} is finished: it has {' and '.join(files)}, and holds no "
            "unfinished run to go on with",
            f"look at it: pjdiag mass {model}; or train into another folder",
        )
    return UsageError(
        f"{folder} is not empty and holds no unfinished run; expected a new or empty folder, or "
        f"one with {STATE_NAME}",
        "choose another folder",
    )


def _check_same_run(
    folder: Path, run: Mapping[str, Any], recipe: TrainRecipe, corpus_digest: str
) -> None:
    asked, stored = _flat(recipe.to_dict()), _flat(run["recipe"])
    for name in sorted({*asked, *stored}):
        if asked.get(name) != stored.get(name):
            raise UsageError(
                f"the unfinished run in {folder} has {name} {stored.get(name)}, "
                f"not {asked.get(name)}",
                "resume it with its own recipe, or choose another folder",
            )
    if run["corpus"] != corpus_digest:
        raise UsageError(
            f"the unfinished run in {folder} was trained on another corpus",
            "resume it with its own corpus, or choose another folder",
        )


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Model fields and run fields side by side."""
    return {**{name: value for name, value in recipe.items() if name != "model"}, **recipe["model"]}


def _fill(
    model: CausalLM, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], step: int
) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"weight.{name}"])
            if f"{_MOMENTS[0]}.{name}" in tensors:
                moments = {moment: tensors[f"{moment}.{name}"] for moment in _MOMENTS}
                optimizer.state[parameter] = {"step": torch.tensor(float(step)), **moments}
