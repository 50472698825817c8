"""pjdiag probe."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pjdiag.cli.announcing import announce
from pjdiag.cli.options import Common, Lengths, Variants, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.resuming import Resume, resumable
from pjdiag.cli.running import print_variants, run
from pjdiag.errors import UsageError
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.diagnostics.in_model_contexts import RetrievalTask
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.results import Result

IN_MODEL = "Retrieval by the running model"
PRECISION = "fp32,int8,int4"


def _count(help_text: str, metavar: str = "N") -> Any:
    return typer.Option(help=help_text, metavar=metavar, min=1, rich_help_panel=IN_MODEL)


@with_common
def probe(
    common: Common,
    context: typer.Context,
    length: Lengths = None,
    precision: Annotated[
        str, typer.Option(metavar="P[,P...]", help="fp32, fp64, int8, int4; separated by commas.")
    ] = PRECISION,
    with_affine: Annotated[
        bool, typer.Option("--with-affine", help="Append the affine component to each code.")
    ] = False,
    decision: Annotated[
        bool,
        typer.Option(
            help="Train a small classifier to tell lags apart and ask it about hard negatives; "
            "needs torch."
        ),
    ] = True,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the trained decision, or of the contexts.", min=0, max=2**63 - 1
        ),
    ] = 0,
    variants: Variants = False,
    in_model: Annotated[
        bool,
        typer.Option(
            "--in-model",
            help="Run the model: does it give the value of a key among keys that differ in one "
            "token? Needs torch.",
            rich_help_panel=IN_MODEL,
        ),
    ] = False,
    depth: Annotated[
        str | None,
        typer.Option(
            metavar="D[,D...]",
            help="Where the pair stands, from 0 (first) to 1 (last); by default 0,0.25,0.5,0.75,1.",
            rich_help_panel=IN_MODEL,
        ),
    ] = None,
    pairs: Annotated[
        int | None, _count("Pairs in a context, each with its negatives; by default 1.")
    ] = None,
    negatives: Annotated[
        int | None, _count("Keys that differ from each pair's in one token; by default 3.")
    ] = None,
    trials: Annotated[
        int | None, _count("Contexts of each length and depth; by default 20.")
    ] = None,
    key_length: Annotated[int | None, _count("Tokens of a key; by default 4.", "K")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text, or a .npy file of token ids, to fill the contexts with; by default random "
            "tokens.",
            rich_help_panel=IN_MODEL,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        _count(
            "Contexts read at once; by default up to 16,384 tokens, fewer of a large model.", "B"
        ),
    ] = None,
    resume: Resume = False,
) -> None:
    """Can the checkpoint's own position codes tell every lag from every other?

    Without --length, at 32,768 tokens. With --in-model: does the model retrieve a value by its
    key? Without --length then at the training length L and 4 L, as far as 2,048 tokens.
    """
    lengths = None if length is None else parse_lengths(length)
    counts = {"pairs": pairs, "negatives": negatives, "trials": trials, "key_length": key_length}
    own: dict[str, Any] = {"depth": depth, **counts, "data": data, "batch": batch}
    if in_model:
        _no_codes(common, precision, with_affine, not decision, variants)
        _run_in_model(common, lengths, _task(depth, counts), data, batch, seed, resume)
        return
    _only_in_model({**own, "resume": resume or None})
    precisions = [part.strip() for part in precision.split(",")]
    if variants:
        _print_variants(context, common, lengths, precisions, decision, seed)
        return

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("probing", quiet=common.quiet) as progress:
            return api.probe(
                reading,
                lengths,
                precisions=precisions,
                with_affine=with_affine,
                decision=decision,
                seed=seed,
                progress=progress,
            )

    run(common, diagnose, by=Scope.HEAD)


def _run_in_model(
    common: Common,
    lengths: list[int] | None,
    task: "RetrievalTask",
    data: Path | None,
    batch: int | None,
    seed: int,
    resume: bool,
) -> None:
    def diagnose(reading: "Reading", ledger: "Ledger") -> "Result":
        from pjdiag import api

        with progress_bar("asking the model", quiet=common.quiet) as progress:
            return api.probe(
                reading,
                lengths,
                in_model=task,
                data=data,
                batch=batch,
                seed=seed,
                allow_pickle=common.allow_pickle,
                progress=progress,
                announce=lambda estimate: announce(estimate, quiet=common.quiet),
                ledger=ledger,
            )

    with resumable(common, "probe", resume) as ledger:
        run(common, lambda reading: diagnose(reading, ledger), by=Scope.MODEL)


def _task(depth: str | None, counts: Mapping[str, int | None]) -> "RetrievalTask":
    from pjdiag.diagnostics.in_model_contexts import RetrievalTask

    given: dict[str, Any] = {name: value for name, value in counts.items() if value is not None}
    if depth is not None:
        given["depths"] = _depths(depth)
    return RetrievalTask(**given)


def _depths(text: str) -> tuple[float, ...]:
    """Depths separated by commas. Raises UsageError for anything else.

    >>> _depths("0, 0.5,1")
    (0.0, 0.5, 1.0)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"{text!a} is not a depth; expected numbers from 0 to 1, separated by commas",
            "for example --depth 0,0.5,1",
        ) from error


def _no_codes(
    common: Common, precision: str, with_affine: bool, undecided: bool, variants: bool
) -> None:
    """Raises UsageError for options that speak of position codes."""
    given = {
        "--precision": precision != PRECISION,
        "--with-affine": with_affine,
        "--no-decision": undecided,
        "--variants": variants,
        "--layer": common.layer is not None,
        "--head": common.head is not None,
    }
    wrong = [option for option, is_given in given.items() if is_given]
    if wrong:
        raise UsageError(
            f"{', '.join(wrong)} is about position codes; --in-model runs the whole model",
            f"leave {' and '.join(wrong)} out, or --in-model",
        )


def _only_in_model(options: Mapping[str, Any]) -> None:
    """Raises UsageError for options that only a running model has."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)} is for a running model", "add --in-model")


def _print_variants(
    context: typer.Context,
    common: Common,
    lengths: list[int] | None,
    precisions: list[str],
    decision: bool,
    seed: int,
) -> None:
    def measure(settings: dict[str, Any]) -> "Result":
        from pjdiag.diagnostics.retrieval import probe_variants

        with progress_bar("probing", quiet=common.quiet) as progress:
            return probe_variants(
                lengths,
                precisions=precisions,
                decision=decision,
                seed=seed,
                progress=progress,
                **settings,
            )

    print_variants(context, common, measure)
