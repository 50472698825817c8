"""pjdiag train."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.running import command_line
from pjdiag.errors import MissingDependencyError, UsageError, pip_install

if TYPE_CHECKING:
    from pjdiag.lab.recipe import Progress, ProgressCallback, TrainOutcome

MODEL = "Model"
SCHEDULE = "Schedule"
SAMPLE_OPTIONS = {"task", "output", "data", "sample", "quiet"}
"""Options that go with --sample."""


class Task(StrEnum):
    """What can be trained."""

    LANGUAGE = "language"


def train(
    context: typer.Context,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder for checkpoint, card and run state."
        ),
    ],
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Text file, or a folder of .txt files, one work each; repeatable."),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A work (file name without suffix) to hold out; repeatable."
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Make a shipped sample again, such as language-full; another word lists them. "
            "Recipe and text are fixed; the text is downloaded, or its archive given as --data.",
        ),
    ] = None,
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
        int | None,
        typer.Option(
            help="Updates of linear warm-up; 200, or a tenth of a shorter run.",
            rich_help_panel=SCHEDULE,
        ),
    ] = None,
    eval_every: Annotated[
        int, typer.Option(help="Updates between held-out losses.", rich_help_panel=SCHEDULE)
    ] = 250,
    seed: Annotated[
        int, typer.Option(help="Seed of weights and windows.", min=0, max=2**63 - 1)
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a small model and leave a native checkpoint with its card.

    The same command in the same folder goes on where an interrupted run stopped.
    """
    del task  # one task so far
    _require_torch()
    report = None if quiet else _reporter()
    if sample is not None:
        _refuse_recipe_options(context)
        _say(_sample_run(sample, output, data or [], report))
        return
    if not data:
        raise UsageError(
            "there is no text to train on; expected --data, or the name of a --sample",
            "pass --data FOLDER and --held-out NAME, or --sample language-full",
        )
    from pjdiag.lab.corpora import read_corpus
    from pjdiag.lab.recipe import TrainRecipe
    from pjdiag.lab.training import train as run_training
    from pjdiag.models.config import ModelConfig

    recipe = TrainRecipe(
        model=ModelConfig(
            method=method,
            train_length=train_length,
            embed_dim=embed_dim,
            num_heads=num_heads,
            layers=layers,
            max_order=max_order,
        ),
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        position_learning_rate=position_learning_rate,
        warmup_steps=min(200, steps // 10) if warmup_steps is None else warmup_steps,
        eval_every=eval_every,
        seed=seed,
    )
    corpus = read_corpus(data, held_out or [])
    source = f"Text files given as --data: {', '.join(path.name for path in data)}."
    _say(run_training(recipe, corpus, output, report, source, command_line()))


def _refuse_recipe_options(context: typer.Context) -> None:
    """A sample's recipe is fixed: an option that would be ignored is an error."""
    typed = [
        name
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    refused = [f"--{name.replace('_', '-')}" for name in typed if name not in SAMPLE_OPTIONS]
    if refused:
        raise UsageError(
            f"{', '.join(refused)} cannot change the fixed recipe of a sample",
            "leave them out, or leave --sample out and pass --data and --held-out",
        )


def _sample_run(
    name: str, output: Path, data: list[Path], report: "ProgressCallback | None"
) -> "TrainOutcome":
    from pjdiag.lab.samples import make_sample

    if len(data) > 1:
        raise UsageError(f"{len(data)} archives were given", "pass one --data with --sample")
    return make_sample(name, output, data[0] if data else None, report)


def _say(outcome: "TrainOutcome") -> None:
    from pjdiag.lab.words import duration

    typer.echo(
        f"Held-out loss {outcome.final_held_out_loss:.4f} nats per byte over "
        f"{outcome.held_out_bytes:,} bytes (best at step {outcome.best_step:,}), "
        f"{outcome.parameters:,} parameters, {duration(outcome.minutes)}."
    )
    typer.echo(f"Next: pjdiag mass {shlex.quote(str(outcome.checkpoint))}")


def _require_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingDependencyError("training needs torch", pip_install("torch"))


def _reporter() -> "ProgressCallback":
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
    task = bar.add_task("training", total=None, loss=float("nan"), held_out="-")
    bar.start()

    def report(progress: "Progress") -> None:
        if progress.held_out_loss is not None:
            bar.update(task, held_out=f"{progress.held_out_loss:.4f}")
        bar.update(task, total=progress.steps, completed=progress.step, loss=progress.loss)
        if progress.step == progress.steps:
            bar.stop()

    return report


def _report_line(progress: "Progress") -> None:
    from pjdiag.lab.words import duration

    if progress.held_out_loss is not None:
        typer.echo(
            f"step {progress.step} of {progress.steps}: loss {progress.loss:.4f}, held out "
            f"{progress.held_out_loss:.4f} nats per byte, {duration(progress.seconds / 60)}",
            err=True,
        )
