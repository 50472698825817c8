"""The figure of retrieval by the running model."""

from __future__ import annotations

from collections.abc import Iterator

from pjdiag.render import numbers
from pjdiag.render.html.figure import Figure, axes, line, rounded, table
from pjdiag.render.views.in_model import found, whole
from pjdiag.results import Row

COLUMNS = (
    "eval_length",
    "depth",
    "top1",
    "ci_low",
    "ci_high",
    "chance",
    "other_key_top1",
    "trials",
    "mean_rank",
    "retrieved",
)


def in_model_figures(rows: list[Row]) -> Iterator[Figure]:
    """Top-1 over the depth, a line for each length; nothing where all is at chance."""
    cells = [row for row in rows if row["depth"] is not None]
    if not found(rows):
        return
    traces = []
    for index, length in enumerate(dict.fromkeys(row["eval_length"] for row in cells)):
        own = [row for row in cells if row["eval_length"] == length]
        title = f"{numbers.count(length)} tokens"
        shares = [rounded(row["top1"]) for row in own]
        reach = {
            "type": "data",
            "symmetric": False,
            "array": [rounded(row["ci_high"] - row["top1"]) for row in own],
            "arrayminus": [rounded(row["top1"] - row["ci_low"]) for row in own],
        }
        traces.append(line(index, title, [row["depth"] for row in own], shares, error_y=reach))
    depths = sorted({row["depth"] for row in cells})
    level = [rounded(cells[0]["chance"])] * len(depths)
    traces.append({**line(5, "chance", depths, level), "mode": "lines"})
    best = max(whole(rows), key=lambda row: row["top1"])
    yield Figure(
        "probe-in-model",
        "Right value first, by depth of its pair",
        "Share of contexts in which the model ranks the value of the key asked for before those "
        f"of its hard negatives, with 95% intervals: up to {numbers.percent(best['top1'])} over "
        f"all depths, at {numbers.count(best['eval_length'])} tokens.",
        tuple(traces),
        axes("depth of the pair in the context", "share", yaxis_range=[-0.03, 1.05]),
        table(rows, *COLUMNS),
    )
