"""pjdiag train."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pjdiag.errors import MissingDependencyError

if TYPE_CHECKING:
    from pjdiag.lab.recipe import Progress, ProgressCallback

MODEL = "Model"
SCHEDULE = "Schedule"


class Task(StrEnum):
    """What can be trained."""

    LANGUAGE = "language"


def train(
    data: Annotated[
        list[Path],
        typer.Option(help="Text file, or a folder of .txt files, one work each; repeatable."),
    ],
    held_out: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="A work (file name without suffix) to hold out; repeatable."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder for checkpoint, card and run state."
        ),
    ],
    task: Annotated[Task, typer.Argument(help="language: a byte-level model.")] = Task.LANGUAGE,
    method: Annotated[
        str,
        typer.Option(help="Position method: full, affine, rope, ...", rich_help_panel=MODEL),
    ] = "full",
    train_length: Annotated[
        int, typer.Option(metavar="L", help="Window in tokens.", rich_help_panel=MODEL)
    ] = 128,
    embed_dim: Annotated[int, typer.Option(help="Width of the model.", rich_help_panel=MODEL)] = 96,
    num_heads: Annotated[int, typer.Option(help="Heads of a layer.", rich_help_panel=MODEL)] = 4,
    layers: Annotated[int, typer.Option(help="Layers.", rich_help_panel=MODEL)] = 2,
    max_order: Annotated[int, typer.Option(help="Highest jet order R.", rich_help_panel=MODEL)] = 3,
    steps: Annotated[int, typer.Option(help="Updates.", rich_help_panel=SCHEDULE)] = 12000,
    batch_size: Annotated[
        int, typer.Option(help="Windows in an update.", rich_help_panel=SCHEDULE)
    ] = 32,
    learning_rate: Annotated[
        float, typer.Option(help="Peak rate of the weights.", rich_help_panel=SCHEDULE)
    ] = 3e-3,
    position_learning_rate: Annotated[
        float, typer.Option(help="Peak rate of position parameters.", rich_help_panel=SCHEDULE)
    ] = 1e-2,
    warmup_steps: Annotated[
        int, typer.Option(help="Updates of linear warm-up.", rich_help_panel=SCHEDULE)
    ] = 200,
    eval_every: Annotated[
        int, typer.Option(help="Updates between held-out losses.", rich_help_panel=SCHEDULE)
    ] = 250,
    seed: Annotated[int, typer.Option(help="Seed of weights and windows.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a small model and leave a native checkpoint with its card.

    The same command in the same folder goes on where an interrupted run stopped.
    """
    del task  # one task so far
    recipe, corpus = _prepare(
        data,
        held_out,
        model={
            "method": method,
            "train_length": train_length,
            "embed_dim": embed_dim,
            "num_heads": num_heads,
            "layers": layers,
            "max_order": max_order,
        },
        schedule={
            "steps": steps,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "position_learning_rate": position_learning_rate,
            "warmup_steps": warmup_steps,
            "eval_every": eval_every,
            "seed": seed,
        },
    )
    from pjdiag.lab.training import train as run_training

    source = ", ".join(path.name for path in data)
    outcome = run_training(recipe, corpus, output, None if quiet else _reporter(steps), source)
    typer.echo(
        f"Held-out loss {outcome.final_held_out_loss:.4f} nats per byte over "
        f"{outcome.held_out_bytes:,} bytes (best at step {outcome.best_step}), "
        f"{outcome.parameters:,} parameters, {outcome.minutes:.1f} minutes."
    )
    typer.echo(f"{outcome.checkpoint}\nNext: pjdiag mass {outcome.checkpoint}")


def _prepare(
    data: list[Path], held_out: list[str], model: dict[str, Any], schedule: dict[str, Any]
) -> tuple[Any, Any]:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingDependencyError("training needs torch", "pip install torch")
    from pjdiag.lab.corpora import read_corpus
    from pjdiag.lab.recipe import TrainRecipe
    from pjdiag.models.config import ModelConfig

    recipe = TrainRecipe(model=ModelConfig(**model), **schedule)
    return recipe, read_corpus(data, held_out)


def _reporter(steps: int) -> "ProgressCallback":
    """A bar on a terminal; elsewhere one line per held-out loss."""
    if not sys.stderr.isatty():
        return _report_line
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn, TimeRemainingColumn

    bar = Bar(
        *Bar.get_default_columns()[:3],
        TimeRemainingColumn(),
        TextColumn("loss {task.fields[loss]:.4f}, held out {task.fields[held_out]}"),
        console=Console(stderr=True),
    )
    task = bar.add_task("training", total=steps, loss=float("nan"), held_out="-")
    bar.start()

    def report(progress: "Progress") -> None:
        if progress.held_out_loss is not None:
            bar.update(task, held_out=f"{progress.held_out_loss:.4f}")
        bar.update(task, completed=progress.step, loss=progress.loss)
        if progress.step == progress.steps:
            bar.stop()

    return report


def _report_line(progress: "Progress") -> None:
    if progress.held_out_loss is not None:
        typer.echo(
            f"step {progress.step} of {progress.steps}: loss {progress.loss:.4f}, held out "
            f"{progress.held_out_loss:.4f} nats per byte, {progress.seconds / 60:.1f} minutes",
            err=True,
        )
