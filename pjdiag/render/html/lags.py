"""Figures over the lag: the kernel itself, and what a removal does to the attention prior."""

from __future__ import annotations

from collections.abc import Iterator

from pjdiag.diagnostics.kernel_curves import KernelCurves
from pjdiag.render import numbers
from pjdiag.render.html.figure import Choice, Data, Figure, axes, bars, heat, line, rounded, table
from pjdiag.render.html.removals import model_removal_figures
from pjdiag.render.html.words import SECTORS, TITLES, cells, place
from pjdiag.render.sentences.loo import removal_words
from pjdiag.render.views.model_loo import of_a_model
from pjdiag.results import Result, Row

DECADES = 100
"""Largest over smallest bar, from which on a logarithmic scale shows more."""


def curve_figures(curves: KernelCurves | None) -> Iterator[Figure]:
    """The kernel of one head over the lag, its sectors and their sum."""
    if curves is None or not curves.heads:
        return
    names = [name for name in (*SECTORS, "kernel") if any(name in h.parts for h in curves.heads)]
    lags = [int(lag) for lag in curves.lags]
    choices = tuple(
        Choice(
            f"layer {curve.layer} head {curve.head}",
            tuple(
                tuple(rounded(value, 4) for value in curve.parts.get(name, ())) for name in names
            ),
        )
        for curve in curves.heads
    )
    traces = []
    for index, name in enumerate(names):
        colour = SECTORS.index(name) if name in SECTORS else 6
        trace = line(colour, TITLES.get(name, "kernel"), lags, choices[0].curves[index])
        traces.append({**trace, "mode": "lines"})
    kept = (
        f" The {len(curves.heads)} of {curves.total} heads whose kernel varies most."
        if curves.total > len(curves.heads)
        else ""
    )
    sampled = " Far lags are sampled." if curves.sampled else ""
    yield Figure(
        "kernel-curves",
        "Bias over the lag",
        f"What is added to the attention logit at each lag up to {numbers.count(lags[-1])}: "
        f"the sectors, gated, and their sum.{kept}{sampled}",
        tuple(traces),
        axes("lag in tokens", "logit", height=420),
        Data(("lag", *names), ()),
        choices=choices,
        switch="x",
        wide=True,
    )


def removal_figures(result: Result) -> Iterator[Figure]:
    """What leaving out an order or a sector does to the attention prior, or to the model."""
    if not result.rows:
        return
    if of_a_model(result):
        yield from model_removal_figures(result)
        return
    lengths = sorted({row["eval_length"] for row in result.rows})
    model = result.select(scope="model")
    removed = list(dict.fromkeys(row["removed"] for row in model))
    traces = []
    for index, length in enumerate(lengths):
        found = {row["removed"]: row["prior_kl"] for row in model if row["eval_length"] == length}
        y = [rounded(found.get(name)) for name in removed]
        words = [removal_words(name) for name in removed]
        traces.append(bars(index, f"{numbers.count(length)} tokens", words, y))
    known = [row for row in model if row["prior_kl"] is not None]
    if known:
        top = max(known, key=lambda row: row["prior_kl"])
        yield Figure(
            "loo",
            "What a removal does to the attention prior",
            f"Mean divergence of the attention prior in nats; largest, "
            f"{numbers.figure(top['prior_kl'], 2)}, without {removal_words(top['removed'])}. "
            "These figures are exact sums over the lags: no interval belongs to them.",
            tuple(traces),
            axes("what is removed", "nats", barmode="group", xaxis_tickangle=-40, **_scale(known)),
            table(model, "removed", "eval_length", "prior_kl", "loo_delta_mse"),
            switch="y",
            wide=True,
        )
    for sector in SECTORS:
        rows = [
            row
            for row in result.select(scope="head", removed=f"sector:{sector}")
            if row["eval_length"] == lengths[0] and row["prior_kl"] is not None
        ]
        if rows:
            yield _removal_map(sector, rows, lengths[0])


def _scale(rows: list[Row]) -> dict[str, str]:
    """Logarithmic where the small ones could else not be seen: a bar then has no foot."""
    sizes = [row["prior_kl"] for row in rows if row["prior_kl"] > 0]
    return {"yaxis_type": "log"} if sizes and max(sizes) > DECADES * min(sizes) else {}


def _removal_map(sector: str, rows: list[Row], length: int) -> Figure:
    traces, layout = heat(cells(rows, "prior_kl"), unit="nats")
    top = max(rows, key=lambda row: row["prior_kl"])
    return Figure(
        f"loo-{sector}",
        f"Without {TITLES[sector]}",
        f"Divergence in nats at {numbers.count(length)} tokens where {TITLES[sector]} is removed: "
        f"largest, {numbers.figure(top['prior_kl'], 2)}, in {place(top)}.",
        traces,
        layout,
        table(rows, "layer", "head", "prior_kl", "loo_delta_mse"),
    )
