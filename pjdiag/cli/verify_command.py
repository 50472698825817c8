"""pjdiag verify."""

from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import run
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def verify(
    common: Common,
    length: Lengths = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the contents and tokens.", min=0, max=2**63 - 1)
    ] = 0,
) -> None:
    """Are the position transforms exact, and does our reading give the model's own logits?

    Without --length, at 1,024 to 32,768 tokens. Exits with 1 where a law or the parity of the
    checkpoint's own does not hold.
    """
    lengths = None if length is None else parse_lengths(length)

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("verifying", quiet=common.quiet) as progress:
            return api.verify(reading, lengths, seed=seed, progress=progress)

    def violated(result: "Result") -> bool:
        from pjdiag.diagnostics.verification import violated as is_violated

        return is_violated(result)

    def unmeasured(result: "Result") -> bool:
        from pjdiag.diagnostics.verification import unmeasured as is_unmeasured

        return is_unmeasured(result)

    run(common, diagnose, by=Scope.MODEL, violated=violated, unmeasured=unmeasured)
