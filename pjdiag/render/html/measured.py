"""Figures of rotary wavelengths, and of what was measured on data."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pjdiag.render import numbers
from pjdiag.render.html.figure import Choice, Data, Figure, Trace, axes, heat, line, rounded, table
from pjdiag.render.html.words import cells, labels, place
from pjdiag.results import Result, Row
from pjdiag.terms import Band

MOST_HEADS = 256
"""Measured kernels that a picker holds: the first of the checkpoint, where there are more."""


def spectrum_figures(result: Result) -> Iterator[Figure]:
    """Share of the rotary mass by wavelength, and where it does not turn once."""
    length = result.checkpoint.get("train_length")
    channels = [row for row in result.select(scope="model") if row["wavelength"] is not None]
    if not channels:
        channels = [row for row in result.select(scope="layer") if row["wavelength"] is not None]
    if channels:
        yield _wavelengths(channels, length)
    beyond = result.select(scope="head", band=Band.BEYOND.value, channel=None, jet_order=None)
    beyond = [row for row in beyond if row["inv_freq"] is None and row["share"] is not None]
    if beyond:
        traces, layout = heat(cells(beyond, "share"), unit="share", share=True)
        top = max(beyond, key=lambda row: row["share"])
        yield Figure(
            "spectrum-beyond",
            "Rotary mass beyond the training length",
            "Share of each head's rotary mass in channels that do not turn once within the "
            f"training length: largest, {numbers.percent(top['share'])}, in {place(top)}.",
            traces,
            layout,
            table(beyond, "layer", "head", "band", "mass", "share"),
        )


def _wavelengths(rows: list[Row], length: int | None) -> Figure:
    summed: dict[tuple[int | None, float], float] = {}
    for row in rows:
        key = (row["layer"], row["wavelength"])
        summed[key] = summed.get(key, 0.0) + (row["share"] or 0.0)
    traces = []
    layers = list(dict.fromkeys(layer for layer, _ in summed))
    for index, layer in enumerate(layers[:7]):
        own = sorted((wave, share) for (where, wave), share in summed.items() if where == layer)
        name = "all layers" if layer is None else f"layer {layer}"
        x = [rounded(wave) for wave, _ in own]
        traces.append(line(index, name, x, [rounded(share) for _, share in own]))
    layout = axes(
        "wavelength in tokens",
        "share of the rotary mass",
        xaxis_type="log",
        yaxis_rangemode="tozero",
        height=400,
    )
    said = ""
    if length:
        layout["shapes"] = [
            {
                "type": "line",
                "x0": length,
                "x1": length,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": "--muted", "dash": "dash"},
            }
        ]
        layout["annotations"] = [
            {
                "x": math.log10(length),
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "text": f"training length {numbers.count(length)}",
                "showarrow": False,
            }
        ]
        part = sum(share for (_, wave), share in summed.items() if wave > length) / len(layers)
        said = f": {numbers.percent(part)} turns more slowly than once in the training length"
    shown = f"; the first 7 of {len(layers)} layers are drawn" if len(layers) > 7 else ""
    return Figure(
        "spectrum",
        "Rotary mass by wavelength",
        f"Share of the rotary mass in each channel by its wavelength{said}{shown}.",
        tuple(traces),
        layout,
        table(rows, "layer", "channel", "wavelength", "band", "jet_order", "mass", "share"),
        wide=True,
    )


def loss_figures(result: Result) -> Iterator[Figure]:
    """Loss by context length and by position, with intervals."""
    model = [row for row in result.select(scope="model") if row["nll"] is not None]
    whole = [row for row in model if row["bucket"] == "all"]
    if not whole:
        return
    lengths = [row["eval_length"] for row in whole]
    first, last = whole[0], whole[-1]
    unit = f"nats per {result.provenance.get('unit') or 'token'}"
    columns = ("eval_length", "bucket", "nll", "ci_low", "ci_high", "windows", "tokens")
    yield Figure(
        "nll-length",
        "Loss by context length",
        f"Mean loss in {unit}, with 95% intervals where there are several windows: "
        f"{numbers.figure(first['nll'])} at "
        f"{numbers.count(lengths[0])} tokens, {numbers.figure(last['nll'])} at "
        f"{numbers.count(lengths[-1])}.",
        (_with_interval(0, "all positions", lengths, whole),),
        axes(
            "context length in tokens",
            unit,
            xaxis_type="log",
            xaxis_tickvals=lengths,
            xaxis_ticktext=[numbers.count(length) for length in lengths],
        ),
        table(whole, *columns),
    )
    parts = [row for row in model if row["bucket"] != "all"]
    traces = []
    for index, length in enumerate(dict.fromkeys(row["eval_length"] for row in parts)):
        own = [row for row in parts if row["eval_length"] == length]
        where = labels([row["bucket"] for row in own])
        traces.append(_with_interval(index, f"{numbers.count(length)} tokens", where, own))
    if parts:
        worst = max(parts, key=lambda row: row["nll"])
        yield Figure(
            "nll-position",
            "Loss by position in the window",
            f"Mean loss with 95% intervals by position: highest, {numbers.figure(worst['nll'])}, "
            f"at {labels([worst['bucket']])[0]} of windows of "
            f"{numbers.count(worst['eval_length'])} tokens.",
            tuple(traces),
            axes("position in training lengths", unit, xaxis_type="category"),
            table(parts, *columns),
        )


def _with_interval(index: int, name: str, x: list[int] | list[str], rows: list[Row]) -> Trace:
    """A line with the interval of each point, where there are any."""
    y = [rounded(row["nll"]) for row in rows]
    if all(row["ci_high"] is None for row in rows):
        return line(index, name, x, y)
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [_reach(row["nll"], row["ci_high"]) for row in rows],
        "arrayminus": [_reach(row["ci_low"], row["nll"]) for row in rows],
    }
    return line(index, name, x, y, error_y=bars)


def _reach(low: float | None, high: float | None) -> float:
    """Length of one arm of an interval; 0 where too few windows give none."""
    return 0.0 if low is None or high is None else float(rounded(high - low))


def kernel_figures(result: Result) -> Iterator[Figure]:
    """The kernel measured on data: over heads, and head by head, with its controls."""
    points = [row for row in result.rows if row["lag"] is not None and row["side"] == "past"]
    if not points:
        return
    heads = [row for row in points if row["scope"] == "head"]
    controls = list(dict.fromkeys(row["control"] for row in points))
    lags = sorted({row["lag"] for row in points})
    choices = [_choice("median over heads", points, "model", None, None, controls, lags)]
    places = list(dict.fromkeys((row["layer"], row["head"]) for row in heads))
    by_place: dict[tuple[int, int], list[Row]] = {}
    for row in heads:
        by_place.setdefault((row["layer"], row["head"]), []).append(row)
    for layer, head in places[:MOST_HEADS]:
        name = f"layer {layer} head {head}"
        own = by_place[layer, head]
        choices.append(_choice(name, own, "head", layer, head, controls, lags))
    traces = [
        line(index, control or "this model", lags, choices[0].curves[index])
        for index, control in enumerate(controls)
    ]
    named = [control for control in controls if control]
    beside = f", beside {' and '.join(named)}" if named else ""
    kept = f" The first {MOST_HEADS} of {len(places)} heads." if len(places) > MOST_HEADS else ""
    yield Figure(
        "kernel-measured",
        "Kernel measured on data",
        "What the attention logit loses or gains with the lag on real tokens, against lag 0, by "
        f"least squares{beside}.{kept}",
        tuple(traces),
        axes("lag in tokens", "logit, against lag 0", height=420),
        Data(("lag", *(control or "this_model" for control in controls)), ()),
        choices=tuple(choices),
        switch="x",
        wide=True,
    )


def _choice(
    label: str,
    rows: list[Row],
    scope: str,
    layer: int | None,
    head: int | None,
    controls: list[str | None],
    lags: list[int],
) -> Choice:
    curves = []
    for control in controls:
        found = {
            row["lag"]: rounded(row["kernel"], 4)
            for row in rows
            if row["scope"] == scope
            and (row["layer"], row["head"]) == (layer, head)
            and row["control"] == control
            and row["statistic"] in (None, "median")
        }
        curves.append(tuple(found.get(lag) for lag in lags))
    return Choice(label, tuple(curves))
