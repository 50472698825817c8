"""Figures from the parameters: sector shares, orders, energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pjdiag.render import numbers
from pjdiag.render.html.figure import Figure, axes, bars, heat, rounded, table
from pjdiag.render.html.words import SECTORS, TITLES, cells, labels, place
from pjdiag.results import Result, Row
from pjdiag.terms import JET_SECTORS, Family

JETS = tuple(sector.value for sector in JET_SECTORS)
FAMILY_TITLES = {Family.ADDITIVE.value: "bias", Family.MULTIPLICATIVE.value: "rotary channels"}


def share_figures(result: Result) -> Iterator[Figure]:
    """Layer x head maps: sector shares of a bias, mass of rotary channels."""
    for sector in SECTORS:
        rows = [
            row
            for row in result.select(scope="head", sector=sector, jet_order=None)
            if row["sector_share"] is not None
        ]
        if rows:
            yield _share_map(sector, rows)
    rotary = result.select(scope="head", jet_order=None, family=Family.MULTIPLICATIVE.value)
    for sector in SECTORS:
        rows = [row for row in rotary if row["sector"] == sector]
        if rows:
            yield _mass_map(sector, rows)


def _share_map(sector: str, rows: list[Row]) -> Figure:
    traces, layout = heat(cells(rows, "sector_share"), unit="share", share=True)
    top = max(rows, key=lambda row: row["sector_share"])
    return Figure(
        f"share-{sector}",
        f"Share of {TITLES[sector]}",
        f"Share of {TITLES[sector]} in each head's effective mass: largest, "
        f"{numbers.percent(top['sector_share'])}, in {place(top)}.",
        traces,
        layout,
        table(rows, "layer", "head", "sector_share", "effective_mass", "sector_gate"),
    )


def _mass_map(sector: str, rows: list[Row]) -> Figure:
    traces, layout = heat(cells(rows, "effective_mass"), unit="logit")
    top = max(rows, key=lambda row: row["effective_mass"] or 0.0)
    return Figure(
        f"mass-{sector}",
        f"Rotary mass, {TITLES[sector]}",
        f"Mass of the rotary channels of each head in logits: largest, "
        f"{numbers.figure(top['effective_mass'])}, in {place(top)}.",
        traces,
        layout,
        table(rows, "layer", "head", "effective_mass", "mean_order"),
    )


def order_figures(result: Result) -> Iterator[Figure]:
    """The order spectrum of the model, and of each layer."""
    for family in Family:
        apart = [
            row
            for row in result.select(scope="model", family=family.value)
            if row["jet_order"] is not None
            and row["sector"] in JETS
            and row["effective_mass"] is not None
        ]
        if len({row["jet_order"] for row in apart}) > 1:
            yield _order_spectrum(family, apart)
        layers = [
            row
            for row in result.select(scope="layer", family=family.value)
            if row["jet_order"] is not None and row["order_share"] is not None
        ]
        pooled = [row for row in layers if row["sector"] not in SECTORS] or layers
        if len({row["jet_order"] for row in pooled}) > 1 and len({r["layer"] for r in pooled}) > 1:
            yield _order_map(family, pooled)


def _order_spectrum(family: Family, rows: list[Row]) -> Figure:
    traces = []
    whole = sum(row["effective_mass"] for row in rows) or 1.0
    rows = [{**row, "jet_share": row["effective_mass"] / whole} for row in rows]
    for sector in SECTORS:
        own = [row for row in rows if row["sector"] == sector]
        if own:
            order = [f"r={row['jet_order']}" for row in own]
            shares = [rounded(row["jet_share"]) for row in own]
            traces.append(bars(SECTORS.index(sector), TITLES[sector], order, shares))
    high = sum(row["jet_share"] for row in rows if row["jet_order"] > 0)
    return Figure(
        f"orders-{family.value}",
        f"Order spectrum, {FAMILY_TITLES[family.value]}",
        f"Share of the jets' mass at each jet order: {numbers.percent(high)} lies above order 0.",
        tuple(traces),
        axes("jet order r", "share of the jet mass", barmode="group", yaxis_rangemode="tozero"),
        table(rows, "family", "sector", "jet_order", "jet_share", "effective_mass"),
        switch="y",
    )


def _order_map(family: Family, rows: list[Row]) -> Figure:
    cells: dict[tuple[int, str], float | None] = {
        (row["layer"], f"r={row['jet_order']}"): row["order_share"] for row in rows
    }
    traces, layout = heat(cells, unit="share", share=True, columns="jet order")
    high: dict[int, float] = {}
    for row in rows:
        high[row["layer"]] = high.get(row["layer"], 0.0) + (
            row["order_share"] if row["jet_order"] else 0.0
        )
    top = max(high, key=lambda layer: high[layer])
    return Figure(
        f"orders-layer-{family.value}",
        "Order shares by layer",
        f"Share of each jet order by layer: most above order 0, {numbers.percent(high[top])}, "
        f"in layer {top}.",
        traces,
        layout,
        table(rows, "layer", "sector", "jet_order", "order_share"),
    )


def energy_figures(result: Result) -> Iterator[Figure]:
    """Energy shares by window and by lag bucket; ratio of each order."""
    model = [row for row in result.select(scope="model") if row["sector"] in SECTORS]
    sectors = [row for row in model if row["jet_order"] is None]
    if not sectors:
        return
    value = "energy_share" if any(row["energy_share"] is not None for row in sectors) else ""
    value = value or "kernel_energy"
    whole = [row for row in sectors if row["bucket"] == "all"]
    longest = max(row["window"] for row in sectors)
    yield _stacked("energy-window", "Energy by window", whole, "window", value, "window in tokens")
    buckets = [row for row in sectors if row["window"] == longest and row["bucket"] != "all"]
    if buckets:
        yield _stacked(
            "energy-bucket",
            f"Energy by lag bucket, window {numbers.count(longest)}",
            buckets,
            "bucket",
            value,
            "lags in training lengths",
        )
    orders = [
        row
        for row in model
        if row["jet_order"] is not None
        and row["bucket"] == "all"
        and row["window"] == longest
        and row["functional_energy"] is not None
    ]
    if orders:
        yield _order_energy(orders, longest)


def energy_left_out(result: Result, drawn: Sequence[Figure]) -> tuple[str, ...]:
    """Why there is no figure by order among those ``drawn``, where there is none."""
    if any(figure.name == "energy-order" for figure in drawn):
        return ()
    jets = any(result.select(scope="model", sector=sector) for sector in JETS)
    why = "the sectors with orders are zero" if jets else "no sector here has several orders"
    return (f"no figure by jet order: {why}",)


def _stacked(name: str, title: str, rows: list[Row], by: str, value: str, axis: str) -> Figure:
    traces = []
    where = list(dict.fromkeys(row[by] for row in rows))
    for sector in SECTORS:
        found = {row[by]: rounded(row[value]) for row in rows if row["sector"] == sector}
        if found:
            y = [found.get(each) for each in where]
            traces.append(bars(SECTORS.index(sector), TITLES[sector], labels(where), y))
    last = [row for row in rows if row[by] == where[-1] and row[value] is not None]
    top = max(last, key=lambda row: row[value], default=None)
    said = (
        f"in the last one {TITLES[top['sector']]} is largest, {numbers.percent(top[value])}"
        if top is not None
        else "the last one has no energy"
    )
    return Figure(
        name,
        title,
        f"Each sector's share of the squared norm of the bias; {said}.",
        tuple(traces),
        axes(axis, "share of the energy", barmode="stack", xaxis_type="category"),
        table(
            rows, "window", "bucket", "sector", "energy_share", "kernel_energy", "functional_energy"
        ),
    )


def _order_energy(rows: list[Row], window: int) -> Figure:
    traces = []
    for sector in SECTORS:
        own = [row for row in rows if row["sector"] == sector]
        if own:
            order = [f"r={row['jet_order']}" for row in own]
            y = [rounded(row["functional_energy"]) for row in own]
            traces.append(bars(SECTORS.index(sector), TITLES[sector], order, y))
    cancels = [row for row in rows if row["functional_energy"] > 1.0]
    said = "orders cancel in part" if len(cancels) > 1 else "no orders cancel"
    return Figure(
        "energy-order",
        f"Functional energy by order, window {numbers.count(window)}",
        "Norm of each order over the norm of its sector's sum; above 1 where orders cancel: "
        f"{said}.",
        tuple(traces),
        axes("jet order r", "||C_r|| / ||sum||", barmode="group"),
        table(rows, "sector", "jet_order", "functional_energy", "kernel_energy", "degenerate"),
        switch="y",
    )
