"""pjdiag loo."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pjdiag.cli.announcing import announce
from pjdiag.cli.held_out import text_or_held_out
from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.resuming import Resume, resumable
from pjdiag.cli.running import run
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.results import Result

IN_MODEL = "What the running model loses"


def _count(help_text: str, metavar: str) -> Any:
    return typer.Option(help=help_text, metavar=metavar, min=1, rich_help_panel=IN_MODEL)


@with_common
def loo(
    common: Common,
    order: Annotated[
        int | None, typer.Option(help="Jet order to remove. Without it, everything is tested.")
    ] = None,
    length: Lengths = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run the model: what does the loss on this text gain without the part? A text, "
            "or a .npy file of token ids. Needs torch. With another option of this group it may "
            "be omitted where the checkpoint is the shipped sample by default.",
            rich_help_panel=IN_MODEL,
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART[+PART...]",
            help="What to remove: order:N, fj:N, lc:N, sector:NAME, alibi, t5_bias, or the rotary "
            "channels band:local, band:mid, band:beyond. Repeatable.",
            rich_help_panel=IN_MODEL,
        ),
    ] = None,
    windows: Annotated[
        int | None,
        _count(
            "At most so many windows of each length; by default as many as predict about 131,072 "
            "tokens.",
            "N",
        ),
    ] = None,
    stride: Annotated[
        int | None, _count("Tokens from one window to the next; by default the length.", "S")
    ] = None,
    batch: Annotated[
        int | None,
        _count(
            "Windows read at once; by default up to 16,384 tokens, fewer of a large model.", "B"
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the bootstrap, the controls and the sampled queries.",
            min=0,
            max=2**63 - 1,
            rich_help_panel=IN_MODEL,
        ),
    ] = 0,
    resume: Resume = False,
) -> None:
    """Leave one order or sector out of the kernel: does the attention prior notice?

    Without --length, over the training length. With --data: does the model notice? A part of the
    positions is removed from the running model, in all layers and heads; with --by layer or head
    also in each alone, which takes as many more passes. Without --length then over the training
    length, at most 2,048 tokens.
    """
    lengths = None if length is None else parse_lengths(length)
    options: dict[str, Any] = {
        "remove": remove or None,
        "windows": windows,
        "stride": stride,
        "batch": batch,
    }
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if data is None and not given and not resume:
        _run_static(common, order, lengths)
        return
    text = text_or_held_out(common, data, f"{given[0] if given else '--resume'} needs")
    scope = common.by or (Scope.MODEL if common.layer is None else Scope.LAYER)

    def diagnose(reading: "Reading", ledger: "Ledger") -> "Result":
        from pjdiag import api

        with progress_bar("removing", quiet=common.quiet) as progress:
            return api.loo(
                reading,
                text,
                order=order,
                lengths=lengths,
                scope=scope,
                layer=common.layer,
                head=common.head,
                seed=seed,
                allow_pickle=common.allow_pickle,
                progress=progress,
                announce=lambda estimate: announce(estimate, quiet=common.quiet),
                ledger=ledger,
                **options,
            )

    with resumable(common, "loo", resume) as ledger:
        run(common, lambda reading: diagnose(reading, ledger), by=scope)


def _run_static(common: Common, order: int | None, lengths: list[int] | None) -> None:
    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("removing", quiet=common.quiet) as progress:
            return api.loo(reading, order=order, lengths=lengths, progress=progress)

    run(common, diagnose, by=Scope.LAYER if order is not None else Scope.MODEL)
