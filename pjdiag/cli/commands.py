"""The commands: what each is called, where its help stands, and a parser of those asked for."""

from collections.abc import Iterable
from importlib import import_module

import typer

DIAGNOSE, DECIDE = "Diagnose a checkpoint", "Act on a diagnosis"
WORK, LOOK = "Make a checkpoint", "Look around"
COMMANDS = {
    "inspect": DIAGNOSE,
    "mass": DIAGNOSE,
    "spectrum": DIAGNOSE,
    "energy": DIAGNOSE,
    "loo": DIAGNOSE,
    "probe": DIAGNOSE,
    "stability": DIAGNOSE,
    "verify": DIAGNOSE,
    "kernel": DIAGNOSE,
    "nll": DIAGNOSE,
    "compare": DECIDE,
    "report": DECIDE,
    "gate": DECIDE,
    "convert": DECIDE,
    "patch": WORK,
    "train": WORK,
    "reproduce": WORK,
    "plugins": LOOK,
    "doctor": LOOK,
}
"""Name -> panel of the help. Command ``x`` is the function ``x`` of ``pjdiag.cli.x_command``."""


def app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands, whose modules are imported now."""
    made = typer.Typer(
        name="pjdiag",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback()(root)
    for name in names:
        module = import_module(f"pjdiag.cli.{name}_command")
        made.command(rich_help_panel=COMMANDS[name])(getattr(module, name))
    return made


def asked(arguments: list[str]) -> tuple[str, ...]:
    """The commands that these arguments need: making them all takes as long as a diagnosis.

    >>> asked(["mass", "--help"]), len(asked(["--help"])) > 10
    (('mass',), True)
    """
    return (arguments[0],) if arguments[0] in COMMANDS else tuple(COMMANDS)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pjdiag {version('pjdiag')}")
        raise typer.Exit


def root(
    _version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Which part of relative-position space does a trained attention model use?

    Measured per layer and head. Start with: pjdiag mass CHECKPOINT
    """
