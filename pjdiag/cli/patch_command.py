"""pjdiag patch."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pjdiag.errors import MissingDependencyError, pip_install
from pjdiag.terms import SECTOR_TITLES, Rho, Sector

ALL_SECTORS = ",".join(Sector)


def patch(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder of a causal Hugging Face model.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="New folder for the patched model."),
    ],
    sectors: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Sectors of the bias, separated by commas."),
    ] = ALL_SECTORS,
    max_order: Annotated[int, typer.Option(metavar="R", help="Highest jet order.")] = 3,
    train_length: Annotated[
        int | None,
        typer.Option(
            metavar="L",
            help="L of the bias in tokens; by default the length that config.json says the model "
            "was trained at.",
        ),
    ] = None,
    rho: Annotated[
        Rho,
        typer.Option(help="Coordinate of the affine sector: d/L, or asinh(d/L)."),
    ] = Rho.LINEAR,
    allow_pickle: Annotated[
        bool,
        typer.Option("--allow-pickle", help="Read torch pickles, with weights_only=True."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Add a PJ-bias to every attention layer of a Hugging Face model.

    The bias starts at zero, so the logits do not change until it is trained.
    """
    _require_packages()
    from pjdiag.lab.patch_folder import PatchedFolder, patch_folder

    done: PatchedFolder = patch_folder(
        source,
        output,
        sectors=[name.strip() for name in sectors.split(",") if name.strip()],
        max_order=max_order,
        train_length=train_length,
        rho=rho,
        allow_pickle=allow_pickle,
    )
    if quiet:
        return
    heads = " or ".join(str(count) for count in done.heads)
    names = [SECTOR_TITLES[Sector(sector)] for sector in done.settings.sectors]
    change = "0" if done.logit_change == 0 else f"{done.logit_change:.1e}"
    typer.echo(
        f"{done.layers} attention layers of {heads} heads have a PJ-bias: {', '.join(names)} up to "
        f"jet order {done.settings.max_order}, L = {done.settings.train_length:,} tokens "
        f"({done.length_source})."
    )
    typer.echo(
        f"It starts at zero: the largest change of a logit is {change}. {done.parameters:,} "
        f"parameters in float32 beside weights in {done.dtype}."
    )
    typer.echo(
        f"Next: train the model of pjdiag.load_model({str(output)!r}), then "
        f"pjdiag mass {shlex.quote(str(output))}"
    )


def _require_packages() -> None:
    from importlib.util import find_spec

    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise MissingDependencyError(f"patching needs {name}", pip_install(name))
