"""pjdiag nll."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.announcing import announce
from pjdiag.cli.held_out import text_or_held_out
from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.resuming import Resume, resumable
from pjdiag.cli.running import run
from pjdiag.errors import UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.results import Result


@with_common
def nll(
    common: Common,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text to predict, read as bytes or by the folder's tokenizer; or a .npy file of "
            "token ids. May be omitted only where the checkpoint is the shipped sample by "
            "default: then the excerpt it was not trained on.",
        ),
    ] = None,
    length: Lengths = None,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Also entropy, support, distance and sink mass of each head."
        ),
    ] = False,
    windows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="At most so many windows of each length; by default as many as predict about "
            "131,072 tokens.",
            min=1,
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="S", help="Tokens from one window to the next; by default the length.", min=1
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="B",
            help="Windows read at once; by default up to 16,384 tokens, fewer of a large model.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.", min=0, max=2**63 - 1)] = 0,
    resume: Resume = False,
) -> None:
    """How well is the next token predicted at each context length, and where in the window?

    Without --length, at the training length L, 4 L, 16 L and 64 L, as far as the data reach and
    no further than 32,768 tokens.
    """
    lengths = None if length is None else parse_lengths(length)
    if not attention and (common.layer is not None or common.head is not None):
        raise UsageError(
            "the loss is the model's; a layer or a head has figures with --attention only",
            "add --attention, or leave out --layer and --head",
        )
    text = text_or_held_out(common, data, "nll needs")

    def diagnose(reading: "Reading", ledger: "Ledger") -> "Result":
        from pjdiag import api

        with progress_bar("reading windows", quiet=common.quiet) as progress:
            return api.nll(
                reading,
                text,
                lengths,
                attention=attention,
                windows=windows,
                stride=stride,
                batch=batch,
                seed=seed,
                allow_pickle=common.allow_pickle,
                progress=progress,
                announce=lambda estimate: announce(estimate, quiet=common.quiet),
                ledger=ledger,
            )

    with resumable(common, "nll", resume) as ledger:
        by = Scope.LAYER if attention else Scope.MODEL
        run(common, lambda reading: diagnose(reading, ledger), by=by)
