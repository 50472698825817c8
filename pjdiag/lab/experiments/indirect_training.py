"""Training a small model on indirect indexing; sizes, steps and seeds are fixed in advance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pjdiag.diagnostics.in_model_rows import wilson
from pjdiag.lab.card import made_with
from pjdiag.lab.experiments.indirect_task import IndirectTask, answer_loss, answered
from pjdiag.lab.native import write_atomically
from pjdiag.lab.recipe import ProgressCallback, TrainOutcome, TrainRecipe
from pjdiag.lab.run_state import STATE_NAME, RunState
from pjdiag.lab.task import MODEL_NAME, Task, run_task
from pjdiag.lab.words import duration
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

TASK = IndirectTask()
METHODS = ("pope", "rope", "pj_rotary", "jordan")
SEEDS = (0, 1, 2)
STEPS, QUICK_STEPS = 7500, 250
"""As many as 12 runs can have in some 45 minutes of one core, at 24 to 38 ms a step."""
TEST_EACH, TEST_SEED = 2048, 2**40
"""Test problems of every offset, and their seed."""
CHECK_SEED = 2**40 + 1
"""Of the problems that choose the checkpoint."""
PROBLEMS_NAME, PROBLEMS_EACH = "heldout.txt", 32
"""Test problems of each offset that stand beside the checkpoint, for diagnostics on data."""
CARD_NAME = "card.json"
DATA = (
    f"Strings of {TASK.letters} different letters a-z, then one of them (the source) and a byte "
    f"for the offset (M + offset: N is +1, L is -1); the answer is the letter that stands that "
    f"far from the source. Offsets -{TASK.reach} to {TASK.reach} without 0, always within the "
    "string. Fresh random problems at every step; the loss is that of the answer alone."
)


def recipe_of(method: str, seed: int, steps: int = STEPS) -> TrainRecipe:
    """The recipe of a run: the same but for method and seed. Jordan blocks are of order 1."""
    return TrainRecipe(
        model=ModelConfig(
            method=method,
            train_length=TASK.length,
            embed_dim=64,
            num_heads=4,
            layers=2,
            max_order=1,
        ),
        steps=steps,
        batch_size=128,
        learning_rate=3e-3,
        warmup_steps=min(300, steps // 10),
        eval_every=min(250, steps),
        eval_windows=2048,
        seed=seed,
    )


def train_indirect(
    recipe: TrainRecipe, out: Path, progress: ProgressCallback | None = None, command: str = ""
) -> TrainOutcome:
    """Train, and leave ``model.safetensors``, ``card.json``, ``README.md``, ``heldout.txt``.

    The checkpoint holds the weights of the evaluation with the lowest loss on problems that are
    neither trained on nor tested. An interrupted run goes on. Losses are nats per answer. Raises
    what ``run_task`` raises.
    """
    state = run_task(recipe, _task(recipe), out, progress)
    outcome = _finish(recipe, state, out, command)
    (out / STATE_NAME).unlink(missing_ok=True)
    return outcome


def read_model(recipe: TrainRecipe, folder: Path) -> CausalLM:
    """The trained model of a finished run."""
    from safetensors.numpy import load_file

    return CausalLM.from_tensors(recipe.model, load_file(folder / MODEL_NAME))


def finished_card(recipe: TrainRecipe, folder: Path) -> dict[str, Any] | None:
    """The card in ``folder`` where the run of this recipe and task has ended there, else None."""
    try:
        card = json.loads((folder / CARD_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(card, dict) or (folder / STATE_NAME).exists():
        return None
    same = card.get("recipe") == json.loads(json.dumps(recipe.to_dict()))
    return card if same and card.get("task", {}).get("sha256") == TASK.digest else None


def _task(recipe: TrainRecipe) -> Task:
    check = TASK.fixed(-(-recipe.eval_windows // len(TASK.offsets)), CHECK_SEED)
    stated = {name: value for name, value in recipe.to_dict().items() if name != "model"}
    return Task(
        TASK.digest,
        TASK.problems,
        answer_loss,
        lambda model: answered(model, check)[1],
        {**stated, "task": "indirect-indexing", "task_sha256": TASK.digest},
    )


def accuracies(model: CausalLM) -> dict[str, Any]:
    """Accuracy on the fixed test problems by offset, with Wilson's 95% intervals."""
    right, loss = answered(model, TASK.fixed(TEST_EACH, TEST_SEED))
    shares = right.view(len(TASK.offsets), TEST_EACH).double().mean(1).tolist()
    accuracy = float(right.double().mean())
    return {
        "accuracy": accuracy,
        "interval": wilson(accuracy, len(right)),
        "loss": loss,
        "problems": len(right),
        "by_offset": [
            {"offset": offset, "accuracy": share, "interval": wilson(share, TEST_EACH)}
            for offset, share in zip(TASK.offsets, shares, strict=True)
        ],
    }


def some_problems() -> NDArray[np.int64]:
    """Some test problems without answers, offsets in turn: ``[N, L]`` bytes as integers."""
    by_offset = TASK.fixed(PROBLEMS_EACH, TEST_SEED)[:, :-1].view(-1, PROBLEMS_EACH, TASK.length)
    found: NDArray[np.int64] = by_offset.transpose(0, 1).flatten(0, 1).numpy()
    return found


def _finish(recipe: TrainRecipe, state: RunState, out: Path, command: str) -> TrainOutcome:
    model = read_model(recipe, out)
    test = accuracies(model)
    outcome = TrainOutcome(
        checkpoint=out / MODEL_NAME,
        card=out / CARD_NAME,
        history=tuple(state.history),
        best_step=state.best.step,
        best_held_out_loss=state.best.held_out_loss,
        final_held_out_loss=test["loss"],
        held_out_bytes=test["problems"],
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        minutes=state.seconds / 60,
    )
    problems = some_problems().astype(np.uint8).tobytes()
    write_atomically(out / PROBLEMS_NAME, lambda path: _write_bytes(path, problems))
    values = _card(recipe, outcome, test, command)
    write_atomically(out / "README.md", lambda path: _write(path, card_markdown(values)))
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    write_atomically(out / CARD_NAME, lambda path: _write(path, text))  # last: the run has ended
    return outcome


def _card(
    recipe: TrainRecipe, outcome: TrainOutcome, test: Mapping[str, Any], command: str
) -> dict[str, Any]:
    return {
        "card_version": 1,
        "checkpoint": outcome.checkpoint.name,
        "command": command,
        "parameters": outcome.parameters,
        "made_with": made_with(),
        "task": {
            "name": "indirect-indexing",
            "letters": TASK.letters,
            "offsets": TASK.offsets,
            "sha256": TASK.digest,
            "guess": TASK.guess,
            "data": DATA,
        },
        "recipe": recipe.to_dict(),
        "test": test,
        "check": {
            "problems": recipe.eval_windows,
            "best_step": outcome.best_step,
            "best_loss": outcome.best_held_out_loss,
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


def card_markdown(values: Mapping[str, Any]) -> str:
    """The card for reading."""
    recipe, test, check = values["recipe"], values["test"], values["check"]
    model = recipe["model"]
    low, high = test["interval"]
    lines = [
        f"# {model['method']}, indirect indexing",
        "",
        f"{values['parameters']:,} parameters: {model['layers']} layers, {model['num_heads']} "
        f"heads, width {model['embed_dim']}, position method `{model['method']}`, 256 tokens "
        f"(bytes), train length L = {model['train_length']}. Float32.",
        "",
        "## Task",
        "",
        values["task"]["data"],
        "",
        f"`{PROBLEMS_NAME}` holds {PROBLEMS_EACH} test problems of every offset one after another, "
        f"{model['train_length']} bytes each, no answers: windows of that length are problems.",
        "",
        "## Accuracy",
        "",
        f"{test['accuracy']:.1%} (95% interval {low:.1%} to {high:.1%}) of {test['problems']:,} "
        f"test problems, {test['loss']:.4f} nats per answer; a guess among the letters that can "
        f"be the answer is right in {values['task']['guess']:.1%}. The weights are those of the "
        f"evaluation with the lowest loss on {check['problems']:,} other problems (step "
        f"{check['best_step']:,}).",
        "",
        "| offset | accuracy | 95% interval |",
        "|---:|---:|---:|",
        *(
            f"| {each['offset']:+d} | {each['accuracy']:.1%} | "
            f"{each['interval'][0]:.1%} to {each['interval'][1]:.1%} |"
            for each in test["by_offset"]
        ),
        "",
        "| step | train | held out |",
        "|---:|---:|---:|",
        *(
            f"| {point['step']:,} | {point['train_loss']:.4f} | {point['held_out_loss']:.4f} |"
            for point in values["history"]
        ),
        "",
        "## Recipe",
        "",
        f"AdamW, {recipe['steps']:,} steps of {recipe['batch_size']} problems, seed "
        f"{recipe['seed']}; {duration(values['minutes'])} on a CPU "
        f"({', '.join(f'{name} {number}' for name, number in values['made_with'].items())}). "
        "Task size, steps and rates were fixed before the first run.",
        "",
        *(["To make it again:", "", f"    {values['command']}", ""] if values["command"] else []),
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in recipe.items() if name != "model"),
        *(f"| model {name} | {value} |" for name, value in model.items()),
        "",
    ]
    return "\n".join(lines)


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
