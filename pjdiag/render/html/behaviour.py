"""Figures of resolution and scale: retrieval, stability, and the trade-off between them."""

from __future__ import annotations

from collections.abc import Iterator

from pjdiag.render import numbers
from pjdiag.render.html.figure import Figure, Trace, axes, bars, heat, line, rounded, table
from pjdiag.render.html.in_model import in_model_figures
from pjdiag.render.html.words import SECTORS, TITLES, cells, labels, place
from pjdiag.render.views.in_model import of_model
from pjdiag.results import Result, Row

COMPARED = "x16_32"
"""The bucket in which coordinates are compared, the farthest of the named ones."""
PROBED = (
    "family",
    "precision",
    "eval_length",
    "bucket",
    "top1",
    "within_64",
    "margin",
    "ties",
    "norm_growth",
    "hard_pair_accuracy",
    "random_pair_accuracy",
    "chance",
)


def probe_figures(result: Result) -> Iterator[Figure]:
    """Nearest neighbours by bucket and precision, hard against random pairs, heads at the end."""
    model = result.select(scope="model")
    if of_model(result):
        yield from in_model_figures(model)
        return
    if not model:
        return
    length = max(row["eval_length"] for row in model)
    rows = [row for row in model if row["eval_length"] == length]
    for name, title, words in (
        ("top1", "Own lag found", "queries whose nearest code is that of the lag itself"),
        ("within_64", "Found within 64 lags", "queries whose nearest code is at most 64 lags away"),
    ):
        yield _retrieval(rows, name, f"{title}, {numbers.count(length)} tokens", words)
    decided = [row for row in rows if row["hard_pair_accuracy"] is not None]
    if decided:
        yield _decision(decided)
    last = rows[-1]["bucket"]
    heads = [
        row
        for row in result.select(scope="head", precision=rows[0]["precision"], bucket=last)
        if row["eval_length"] == length and row["top1"] is not None
    ]
    if heads:
        traces, layout = heat(cells(heads, "top1"), unit="share", share=True)
        low = min(heads, key=lambda row: row["top1"])
        yield Figure(
            "probe-heads",
            f"Own lag found by each head alone, {labels([last])[0]}",
            f"Share of lags in the farthest bucket that a head's own codes tell apart: lowest, "
            f"{numbers.percent(low['top1'])}, in {place(low)}.",
            traces,
            layout,
            table(heads, "layer", "head", "top1", "within_64", "margin", "norm_growth"),
        )


def _retrieval(rows: list[Row], name: str, title: str, words: str) -> Figure:
    traces = []
    kinds = list(dict.fromkeys((row["family"], row["precision"]) for row in rows))
    several = len({family for family, _ in kinds}) > 1
    for index, (family, precision) in enumerate(kinds):
        own = [row for row in rows if (row["family"], row["precision"]) == (family, precision)]
        label = f"{precision}, {family or 'both'}" if several else precision
        where = labels([row["bucket"] for row in own])
        traces.append(line(index, label, where, [rounded(row[name]) for row in own]))
    low = min(rows, key=lambda row: row[name] if row[name] is not None else 2.0)
    return Figure(
        f"probe-{name}",
        title,
        f"Share of {words}, by lag and precision of the codes: lowest, "
        f"{numbers.percent(low[name])}, for {low['precision']} at {labels([low['bucket']])[0]}.",
        tuple(traces),
        axes("lag in training lengths", "share", xaxis_type="category", yaxis_range=[-0.03, 1.05]),
        table(rows, *PROBED),
    )


def _decision(rows: list[Row]) -> Figure:
    own = [row for row in rows if row["precision"] == rows[0]["precision"]]
    where = labels([row["bucket"] for row in own])
    traces: tuple[Trace, ...] = (
        line(0, "hard pairs", where, [rounded(row["hard_pair_accuracy"]) for row in own]),
        line(1, "random pairs", where, [rounded(row["random_pair_accuracy"]) for row in own]),
        {**line(5, "chance", where, [0.5] * len(own)), "mode": "lines"},
    )
    low = min(own, key=lambda row: row["hard_pair_accuracy"])
    return Figure(
        "probe-decision",
        "Trained decision: hard against random pairs",
        "Accuracy of a trained decision between a lag and its nearest confuser, or a random lag: "
        f"lowest on hard pairs, {numbers.percent(low['hard_pair_accuracy'])}, at "
        f"{labels([low['bucket']])[0]}.",
        traces,
        axes("lag in training lengths", "accuracy", xaxis_type="category", yaxis_range=[0, 1.05]),
        table(own, *PROBED),
    )


def stability_figures(result: Result) -> Iterator[Figure]:
    """Size, spread and quantisation of the kernel by length."""
    model = result.select(scope="model")
    if not model:
        return
    for name, title, unit, words in (
        ("bias_max", "Largest bias", "logit", "Largest absolute bias"),
        ("norm_max", "Largest amplitude norm", "logit", "Largest norm over the orders"),
        ("effective_support", "Effective support", "tokens", "Tokens that the prior attends to"),
    ):
        rows = [row for row in model if row[name] is not None]
        if rows:
            yield _growth(rows, name, title, unit, words)
    quantised = [
        row
        for row in model
        if row["int8_error_tensor"] is not None
        and row["eval_length"] == max(r["eval_length"] for r in model)
    ]
    if quantised:
        yield _quantisation(quantised)


def _growth(rows: list[Row], name: str, title: str, unit: str, words: str) -> Figure:
    traces = []
    for sector in (*SECTORS, None):
        own = [row for row in rows if row["sector"] == sector]
        if own:
            index = SECTORS.index(sector) if sector else 6
            x = [row["eval_length"] for row in own]
            y = [rounded(row[name]) for row in own]
            traces.append(line(index, TITLES.get(sector or "", "kernel"), x, y))
    lengths = sorted({row["eval_length"] for row in rows})
    whole = [row for row in rows if row["sector"] is None] or rows
    first = next(row for row in whole if row["eval_length"] == lengths[0])
    last = next(row for row in whole if row["eval_length"] == lengths[-1])
    return Figure(
        f"stability-{name}",
        title,
        f"{words} by length: {numbers.figure(first[name])} {unit} at "
        f"{numbers.count(lengths[0])} tokens, {numbers.figure(last[name])} at "
        f"{numbers.count(lengths[-1])}.",
        tuple(traces),
        axes(
            "length in tokens",
            unit,
            xaxis_type="log",
            xaxis_tickvals=lengths,
            xaxis_ticktext=[numbers.count(length) for length in lengths],
        ),
        table(rows, "sector", "eval_length", name),
        switch="y",
    )


def _quantisation(rows: list[Row]) -> Figure:
    traces = []
    names = [TITLES.get(row["sector"], "kernel") for row in rows]
    for index, (column, label) in enumerate(
        (
            ("int8_error_tensor", "int8, one step"),
            ("int8_error_order", "int8, step per order"),
            ("int4_error_tensor", "int4, one step"),
            ("int4_error_order", "int4, step per order"),
        )
    ):
        traces.append(bars(index, label, names, [rounded(row[column]) for row in rows]))
    worst = max(rows, key=lambda row: row["int4_error_tensor"] or 0.0)
    return Figure(
        "stability-quantisation",
        f"Quantisation error, {numbers.count(rows[0]['eval_length'])} tokens",
        "Error of quantised amplitudes over their norm: int4 with one step for all loses "
        f"{numbers.percent(worst['int4_error_tensor'])} of "
        f"{TITLES.get(worst['sector'], 'the kernel')}.",
        tuple(traces),
        axes("sector", "relative error", barmode="group"),
        table(
            rows,
            "sector",
            "eval_length",
            "int8_error_tensor",
            "int8_error_order",
            "int4_error_tensor",
            "int4_error_order",
        ),
        switch="y",
    )


def tradeoff_figures(probe: Result | None, variants: Result | None) -> Iterator[Figure]:
    """Growth of the codes against what they still resolve, beside the eight named coordinates."""
    if probe is None or variants is None or not probe.rows:
        return
    here = _farthest(probe.select(scope="model", precision="fp32"))
    heads = _farthest(probe.select(scope="head", precision="fp32"))
    named = _farthest(variants.select(scope="model", precision="fp32"))
    named.sort(key=lambda row: (round(row["top1"], 1), row["norm_growth"]))
    if not here:
        return
    for row in here:
        row["variant"] = "this checkpoint"
    for row in heads:
        row["variant"] = place(row)
    groups = (
        (5, "named coordinates", named, "markers+text"),
        (0, "heads of this checkpoint", heads[:256], "markers"),
        (1, "this checkpoint, all heads", here, "markers"),
    )
    traces = [_points(*group) for group in groups if group[2]]
    own = here[-1]
    yield Figure(
        "tradeoff",
        "Scale against resolution",
        f"Across: how much the codes grow from the training length to bucket "
        f"{labels([own['bucket']])[0]}; up: the share of lags they tell apart there. This "
        f"checkpoint: growth {numbers.figure(own['norm_growth'])}, "
        f"{numbers.percent(own['top1'])} told apart.",
        tuple(traces),
        axes(
            "growth of the codes' norm",
            "own lag found, share",
            xaxis_type="log",
            yaxis_range=[-0.08, 1.12],
            height=440,
        ),
        table([*here, *named, *heads[:256]], "variant", "bucket", "norm_growth", "top1", "margin"),
        wide=True,
    )


def _farthest(rows: list[Row]) -> list[Row]:
    """Copies of the rows in the compared bucket, or in the last there is."""
    if not rows:
        return []
    names = {row["bucket"] for row in rows}
    wanted = COMPARED if COMPARED in names else rows[-1]["bucket"]
    longest = max(row["eval_length"] for row in rows)
    return [
        dict(row)
        for row in rows
        if row["bucket"] == wanted and row["eval_length"] == longest and row["top1"] is not None
    ]


def _points(index: int, name: str, rows: list[Row], mode: str) -> Trace:
    trace = line(
        index,
        name,
        [rounded(row["norm_growth"]) for row in rows],
        [rounded(row["top1"]) for row in rows],
    )
    size = 15 if len(rows) == 1 else 9
    placed = ("top center", "bottom center")
    positions = [placed[turn % 2] for turn in range(len(rows))]
    return {
        **trace,
        "mode": mode,
        "text": [row["variant"] for row in rows],
        "textposition": positions,
        "marker": {**trace["marker"], "size": size},
        "hovertemplate": "%{text}: growth %{x:.3g}, found %{y:.0%}<extra></extra>",
    }
