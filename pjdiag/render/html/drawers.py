"""Which figures a result has."""

from __future__ import annotations

from pjdiag.render.html.behaviour import probe_figures, stability_figures
from pjdiag.render.html.figure import Figure
from pjdiag.render.html.lags import removal_figures
from pjdiag.render.html.measured import kernel_figures, loss_figures, spectrum_figures
from pjdiag.render.html.moves import move_figures
from pjdiag.render.html.reproduced import experiment_figures
from pjdiag.render.html.weights import energy_figures, order_figures, share_figures
from pjdiag.results import Result

DRAWERS = {
    "mass": (share_figures, order_figures),
    "energy": (energy_figures,),
    "loo": (removal_figures,),
    "probe": (probe_figures,),
    "stability": (stability_figures,),
    "spectrum": (spectrum_figures,),
    "nll": (loss_figures,),
    "kernel": (kernel_figures,),
    "compare": (move_figures,),
    "reproduce": (experiment_figures,),
}


def figures_of(result: Result) -> list[Figure]:
    """The figures of ``result``, each name once; none where its diagnostic has none."""
    found = {
        figure.name: figure
        for draw in DRAWERS.get(result.diagnostic, ())
        for figure in draw(result)
    }
    return list(found.values())
