"""pjdiag energy."""

from typing import TYPE_CHECKING, Annotated

import typer

from pjdiag.cli.options import Common, Lengths, parse_lengths, with_common
from pjdiag.cli.running import run
from pjdiag.terms import LagWeights, Scope, Sector

if TYPE_CHECKING:
    from pjdiag.adapters import Reading
    from pjdiag.results import Result


@with_common
def energy(
    common: Common,
    length: Lengths = None,
    lag_weights: Annotated[
        LagWeights,
        typer.Option(help="uniform: lags count equally; causal: as often as they occur, T - d."),
    ] = LagWeights.UNIFORM,
    centred: Annotated[
        bool,
        typer.Option(
            "--centred", help="Take out each row's mean first: softmax ignores constants."
        ),
    ] = False,
    sector: Annotated[Sector | None, typer.Option(help="Only this sector.")] = None,
) -> None:
    """Functional energy: how large each sector and order is as a function of the lag.

    Without --length, over the training length.
    """
    lengths = None if length is None else parse_lengths(length)

    def diagnose(reading: "Reading") -> "Result":
        from pjdiag import api

        return api.energy(reading, lengths, lag_weights, centred=centred)

    run(common, diagnose, by=Scope.MODEL, sector=sector)
