"""Figures of what the running model loses without a part."""

from __future__ import annotations

from collections.abc import Iterator

from pjdiag.render import numbers
from pjdiag.render.html.figure import Figure, Trace, axes, bars, heat, rounded, table
from pjdiag.render.html.words import cells, place
from pjdiag.render.sentences._removals import removal_words
from pjdiag.results import Result, Row

COLUMNS = (
    "removed",
    "eval_length",
    "loo_delta_nll",
    "ci_low",
    "ci_high",
    "control_delta_nll",
    "control_low",
    "control_high",
    "attention_kl",
    "windows",
    "tokens",
)
SIDES = (
    ("without the part", "loo_delta_nll", "ci_low", "ci_high"),
    ("with random signs", "control_delta_nll", "control_low", "control_high"),
)


def model_removal_figures(result: Result) -> Iterator[Figure]:
    """Change of the loss with intervals beside its control, and what attention does."""
    model = result.select(scope="model")
    lengths = sorted({row["eval_length"] for row in model})
    for length in lengths:
        rows = [
            row
            for row in model
            if row["eval_length"] == length and row["loo_delta_nll"] is not None
        ]
        if rows:
            yield _losses(rows, length, str(result.provenance.get("unit") or "token"))
    moved = [row for row in model if row["attention_kl"] is not None]
    if moved:
        yield _attention(moved, lengths)
    for removed in dict.fromkeys(row["removed"] for row in result.select(scope="head")):
        rows = [
            row
            for row in result.select(scope="head", removed=removed, eval_length=lengths[-1])
            if row["loo_delta_nll"] is not None
        ]
        if rows:
            yield _map(str(removed), rows)


def _losses(rows: list[Row], length: int, unit: str) -> Figure:
    words = [_tick(row["removed"]) for row in rows]
    traces = [_bars(index, side, words, rows) for index, side in enumerate(SIDES)]
    top = max(rows, key=lambda row: abs(row["loo_delta_nll"]))
    interval = ""
    if top["ci_low"] is not None and top["ci_high"] is not None:
        ends = (numbers.figure(top[name], 2) for name in ("ci_low", "ci_high"))
        interval = f" (95% interval {' to '.join(ends)})"
    return Figure(
        f"loo-loss-{length}",
        f"Change of the loss at {numbers.count(length)} tokens",
        f"Loss without a part less the loss with it, in nats per {unit}, over the same windows, "
        "beside a control: the same part with random signs. Largest, "
        f"{numbers.figure(top['loo_delta_nll'], 2)}{interval}, without "
        f"{removal_words(top['removed'])}.",
        tuple(traces),
        axes("", f"nats per {unit}", barmode="group", xaxis_tickangle=-40),
        table(rows, *COLUMNS),
        wide=True,
    )


def _bars(index: int, side: tuple[str, str, str, str], words: list[str], rows: list[Row]) -> Trace:
    """Bars with the interval of each, where there are any."""
    name, figure, low, high = side
    y = [rounded(row[figure]) for row in rows]
    if all(row[low] is None or row[figure] is None for row in rows):
        return bars(index, name, words, y)
    reach = {
        "type": "data",
        "symmetric": False,
        "array": [_arm(row[figure], row[high]) for row in rows],
        "arrayminus": [_arm(row[low], row[figure]) for row in rows],
    }
    return bars(index, name, words, y, error_y=reach)


def _tick(removed: str) -> str:
    """Short, to stand under a bar on a phone.

    >>> [_tick(name) for name in ("order:2", "sector:affine", "band:beyond", "fj:1+lc:2")]
    ['order 2', 'affine recency', 'beyond band', 'fj:1+lc:2']
    """
    if "+" in removed:
        return removed
    return removal_words(removed).removeprefix("the ").removesuffix(" sector")


def _arm(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else float(rounded(max(0.0, high - low)))


def _attention(rows: list[Row], lengths: list[int]) -> Figure:
    removed = list(dict.fromkeys(row["removed"] for row in rows))
    traces = []
    for index, length in enumerate(lengths):
        found = {r["removed"]: r["attention_kl"] for r in rows if r["eval_length"] == length}
        y = [rounded(found.get(name)) for name in removed]
        words = [_tick(name) for name in removed]
        traces.append(bars(index, f"{numbers.count(length)} tokens", words, y))
    top = max(rows, key=lambda row: row["attention_kl"])
    return Figure(
        "loo-attention",
        "What a removal does to attention",
        "Mean divergence of attention in nats, on sampled queries, given the queries and keys of "
        f"the whole model: largest, {numbers.figure(top['attention_kl'], 2)}, without "
        f"{removal_words(top['removed'])}.",
        tuple(traces),
        axes("", "nats", barmode="group", xaxis_tickangle=-40),
        table(rows, "removed", "eval_length", "attention_kl"),
        wide=True,
    )


def _map(removed: str, rows: list[Row]) -> Figure:
    traces, layout = heat(cells(rows, "loo_delta_nll"), unit="nats")
    top = max(rows, key=lambda row: abs(row["loo_delta_nll"]))
    words = removal_words(removed)
    return Figure(
        f"loo-heads-{removed.replace(':', '-').replace('+', '-')}",
        f"Without {words} in one head",
        f"Change of the loss in nats where one head alone loses {words}: largest, "
        f"{numbers.figure(top['loo_delta_nll'], 2)}, in {place(top)}.",
        traces,
        layout,
        table(rows, "layer", "head", *COLUMNS[1:]),
    )
