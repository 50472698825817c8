"""pjdiag stability."""

from typing import TYPE_CHECKING

import typer

from pjdiag.cli.options import Common, Lengths, Variants, parse_lengths, with_common
from pjdiag.cli.progress import progress_bar
from pjdiag.cli.running import print_variants, run
from pjdiag.terms import Scope

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def stability(
    common: Common, context: typer.Context, length: Lengths = None, variants: Variants = False
) -> None:
    """Scale stability: what becomes of the kernels far beyond the training length.

    Without --length, at the training length L, 4 L and 32,768 tokens.
    """
    lengths = None if length is None else parse_lengths(length)
    if variants:
        from pjdiag.diagnostics.stability import stability_variants

        print_variants(context, common, lambda settings: stability_variants(lengths, **settings))
        return

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        with progress_bar("measuring", quiet=common.quiet) as progress:
            return api.stability(reading, lengths, progress=progress)

    run(common, diagnose, by=Scope.MODEL)
