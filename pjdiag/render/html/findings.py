"""What stands out in a survey, as sentences with numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pjdiag.diagnostics.survey import Survey
from pjdiag.render import numbers
from pjdiag.render.html.words import SECTORS, TITLES, labels, place
from pjdiag.render.text import listed
from pjdiag.results import Result, Row
from pjdiag.terms import Band

DRIFT = 0.02
"""Nats per token; a smaller change of the loss is not called one without an interval."""


def findings(survey: Survey) -> list[str]:
    """Sentences, the parameters first; empty where nothing could be measured."""
    found: list[str] = []
    for name, tell in TELLERS.items():
        measured = survey.measured.get(name)
        if measured is not None and measured.result.rows:
            found += tell(measured.result)
    spoilt = sorted(
        {
            f"layer {entry.layer}" + ("" if entry.head is None else f" head {entry.head}")
            for measured in survey.measured.values()
            for entry in measured.result.skipped
            if entry.bad_values
        }
    )
    if spoilt:
        found.insert(0, f"Values that are NaN or infinite, or that overflow: {listed(spoilt)}.")
    return found


def _mass(result: Result) -> Iterator[str]:
    rows = [
        row
        for row in result.select(scope="head", jet_order=None)
        if row["sector"] in SECTORS and row["sector_share"] is not None
    ]
    largest: dict[str, Row] = {}
    for row in rows:
        here = place(row)
        if here not in largest or row["sector_share"] > largest[here]["sector_share"]:
            largest[here] = row
    counts = Counter(str(row["sector"]) for row in largest.values())
    if counts:
        told = [f"{TITLES[name]} in {count}" for name, count in counts.most_common()]
        yield f"The largest sector of the {len(largest)} heads with a bias: {listed(told)}."
    odd = counts.most_common()[-1][0] if len(counts) > 1 else None
    if odd is not None:
        own = [row for row in largest.values() if row["sector"] == odd]
        top = max(own, key=lambda row: row["sector_share"])
        share = numbers.percent(top["sector_share"])
        yield f"The purest {TITLES[odd]} head is {place(top)}, {share} of its mass."
    orders = [row for row in result.select(scope="head", jet_order=None) if row["mean_order"]]
    pooled = [row for row in orders if row["sector"] not in SECTORS] or orders
    if pooled:
        top = max(pooled, key=lambda row: row["mean_order"])
        if top["mean_order"] > 0.01:
            mean = numbers.figure(top["mean_order"])
            yield f"The highest mean jet order of a head is {mean}, in {place(top)}."
        else:
            yield "No head has a mean jet order above 0.01: the high orders carry next to nothing."


def _energy(result: Result) -> Iterator[str]:
    rows = [
        row
        for row in result.select(scope="model", jet_order=None, bucket="all")
        if row["sector"] in SECTORS and row["energy_share"] is not None
    ]
    windows = sorted({row["window"] for row in rows})
    if len(windows) < 2:
        return
    for sector in SECTORS:
        share = {row["window"]: row["energy_share"] for row in rows if row["sector"] == sector}
        if windows[0] in share and windows[-1] in share:
            first, last = share[windows[0]], share[windows[-1]]
            if abs(last - first) >= 0.1:
                yield (
                    f"From {numbers.count(windows[0])} to {numbers.count(windows[-1])} lags "
                    f"{TITLES[sector]} goes from {numbers.percent(first)} to "
                    f"{numbers.percent(last)} of the energy."
                )


def _probe(result: Result) -> Iterator[str]:
    model = [row for row in result.select(scope="model") if row["top1"] is not None]
    for precision in dict.fromkeys(row["precision"] for row in model):
        own = [row for row in model if row["precision"] == precision]
        low = min(own, key=lambda row: row["top1"])
        if low["top1"] < 0.95:
            yield (
                f"With {precision} codes {numbers.percent(low['top1'])} of the lags at "
                f"{labels([low['bucket']])[0]} are told apart from all others."
            )


def _stability(result: Result) -> Iterator[str]:
    rows = [row for row in result.select(scope="model", sector=None) if row["bias_max"] is not None]
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        yield (
            f"The largest bias is {numbers.figure(first['bias_max'])} logits at "
            f"{numbers.count(first['eval_length'])} tokens and "
            f"{numbers.figure(last['bias_max'])} at {numbers.count(last['eval_length'])}; the "
            f"prior attends to {numbers.figure(first['effective_support'])} and "
            f"{numbers.figure(last['effective_support'])} tokens."
        )


def _loss(result: Result) -> Iterator[str]:
    rows = [row for row in result.select(scope="model", bucket="all") if row["nll"] is not None]
    if len(rows) < 2:
        return
    first, last = rows[0], rows[-1]
    change = last["nll"] - first["nll"]
    unit = result.provenance.get("unit") or "token"
    apart = first["ci_high"] is not None and last["ci_low"] is not None
    clear = (
        (last["ci_low"] > first["ci_high"] or last["ci_high"] < first["ci_low"])
        if apart
        else abs(change) > DRIFT
    )
    word = "rises" if change > 0 else "falls"
    verdict = "" if clear else ", within the intervals"
    yield (
        f"The loss {word} by {numbers.figure(abs(change))} nats per {unit} from "
        f"{numbers.count(first['eval_length'])} to {numbers.count(last['eval_length'])} "
        f"tokens{verdict}."
    )


def _spectrum(result: Result) -> Iterator[str]:
    rows = [
        row
        for row in result.select(scope="head", band=Band.BEYOND.value, channel=None)
        if row["jet_order"] is None and row["inv_freq"] is None and row["share"] is not None
    ]
    if rows:
        low = min(rows, key=lambda row: row["share"])
        top = max(rows, key=lambda row: row["share"])
        yield (
            "Rotary mass in channels that do not turn once within the training length: from "
            f"{numbers.percent(low['share'])} in {place(low)} to "
            f"{numbers.percent(top['share'])} in {place(top)}."
        )


TELLERS = {
    "mass": _mass,
    "spectrum": _spectrum,
    "energy": _energy,
    "probe": _probe,
    "stability": _stability,
    "nll": _loss,
}
