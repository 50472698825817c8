"""Options that diagnostics share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import typer.core

from pjdiag.errors import UsageError
from pjdiag.terms import Scope

TARGET = "What to read"
SHOWN = "What is shown"

NAMED_CHECKPOINT_HELP = (
    "A checkpoint file or folder. When omitted: PJDIAG_CHECKPOINT, then 'checkpoint' in "
    "pjdiag.toml or pyproject.toml"
)
CHECKPOINT_HELP = f"{NAMED_CHECKPOINT_HELP}, then the shipped sample."


def bracketed(text: str) -> str:
    """Help with square brackets that stay: Rich, where Typer uses it, takes them for markup."""
    return text.replace("[", r"\[") if getattr(typer.core, "HAS_RICH", True) else text


def parse_lengths(text: str) -> list[int]:
    """Lengths separated by commas. Raises UsageError for anything else.

    >>> parse_lengths("512, 32768")
    [512, 32768]
    """
    try:
        return [int(part) for part in text.replace("_", "").split(",")]
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a length; expected tokens, several separated by commas",
            "for example --length 2048,32768",
        ) from error


Lengths = Annotated[
    str | None,
    typer.Option("--length", metavar="T[,T...]", help="Lengths in tokens, separated by commas."),
]

Variants = Annotated[
    bool,
    typer.Option(
        "--variants",
        help="Measure the eight named coordinates instead of a checkpoint: raw, scaled, clipped, "
        "log, lc_amp_only, lc_phase_only, lc, lc_wrong_scale.",
    ),
]

Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT[:PATH]|PATH",
        help="table, json, csv, parquet, markdown or html; repeatable. A bare FORMAT goes to "
        "stdout and replaces the table.",
        rich_help_panel=SHOWN,
    ),
]

AllRows = Annotated[bool, typer.Option("--all", help="Print all rows.", rich_help_panel=SHOWN)]

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Nothing on stderr but errors.", rich_help_panel=SHOWN),
]

OneLayer = Annotated[
    int | None, typer.Option(help="Only this layer.", min=0, rich_help_panel=SHOWN)
]

OneHead = Annotated[int | None, typer.Option(help="Only this head.", min=0, rich_help_panel=SHOWN)]


@dataclass(frozen=True)
class Common:
    """The values of the shared options."""

    checkpoint: Annotated[
        Path | None,
        typer.Argument(metavar="CHECKPOINT", envvar="PJDIAG_CHECKPOINT", help=CHECKPOINT_HELP),
    ] = None
    output: Outputs = None
    by: Annotated[
        Scope | None,
        typer.Option(
            help="Finest scope in the table. JSON carries all three.", rich_help_panel=SHOWN
        ),
    ] = None
    all_rows: AllRows = False
    layer: OneLayer = None
    head: OneHead = None
    train_length: Annotated[
        int | None,
        typer.Option(
            metavar="L",
            help="Training length in tokens, if the checkpoint is wrong or silent.",
            rich_help_panel=TARGET,
        ),
    ] = None
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Read torch pickles, with weights_only=True. Needed for .pt files.",
            rich_help_panel=TARGET,
        ),
    ] = False
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="CHECKPOINT is a LoRA adapter: read this base model with its changes.",
            rich_help_panel=TARGET,
        ),
    ] = None
    strict: Annotated[
        bool,
        typer.Option("--strict", help="A skipped layer is an error.", rich_help_panel=TARGET),
    ] = False
    min_coverage: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Least share of layers that must be readable; else exit 3.",
            rich_help_panel=TARGET,
        ),
    ] = 0.0
    quiet: Quiet = False


def with_common(command: Callable[..., None], without: tuple[str, ...] = ()) -> Callable[..., None]:
    """A command whose first parameter, ``common``, is spread into the shared options.

    A parameter of the command with the name of a shared option stands in its place; the command
    does not take the shared options in ``without``.
    """
    hints = get_type_hints(Common, include_extras=True)
    own_hints = get_type_hints(command, include_extras=True)
    own_names = list(inspect.signature(command).parameters)[1:]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(Common)
        if field.name not in (*own_names, *without)
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own_hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    names = {field.name for field in fields(Common)}

    @wraps(command)
    def spread(**values: Any) -> None:
        common = Common(**{name: value for name, value in values.items() if name in names})
        command(common, **{name: values[name] for name in own_names})

    first = [] if "checkpoint" in own_names else shared[:1]
    parameters = [*first, *own, *shared[len(first) :]]
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    del spread.__dict__["__wrapped__"]
    return spread
