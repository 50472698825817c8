"""Results made by hand, with the columns and the shape that the diagnostics write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pjdiag.comparison.comparing import compared
from pjdiag.comparison.inputs import Input
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import DIAGNOSTICS

HOSTILE = "\x1b[31m[/red]\u202eevil|`<b>\n"
"""A colour code, Rich markup, a bidi override, and what markdown and HTML obey."""
PATH = "runs/model.safetensors"

Masses = Mapping[str, Sequence[float] | None]
"""Mass by order of each sector; None where the sector is absent."""


def result(diagnostic: str, rows: Sequence[Row], **changes: Any) -> Result:
    """A result of ``rows`` with a checkpoint beside it."""
    checkpoint = {
        "path": PATH,
        "format": "safetensors",
        "adapter": "pjrope",
        "train_length": 128,
        "train_length_source": "metadata: train_length",
    }
    return Result(
        diagnostic,
        {**checkpoint, **changes.pop("checkpoint", {})},
        {"command": None, **changes.pop("provenance", {})},
        tuple(rows),
        **changes,
    )


def scope(layer: int | None = None, head: int | None = None, mechanism: Any = "pj_bias") -> Row:
    """The scope columns."""
    name = "model" if layer is None else "layer" if head is None else "head"
    return {"layer": layer, "head": head, "scope": name, "mechanism": mechanism}


def row(diagnostic: str, where: Row, **figures: Any) -> Row:
    """A row with every column of ``diagnostic``; those that are not given are null."""
    names = {column.name for column in DIAGNOSTICS[diagnostic]}
    unknown = set(figures) - names
    if unknown:
        raise KeyError(f"no column {unknown} in {diagnostic}")
    return {**where, **dict.fromkeys(names), **figures}


def bias_rows(where: Row, masses: Masses) -> Iterator[Row]:
    """The additive rows of one scope."""
    family = {"family": "additive"}
    present = {sector: list(orders) for sector, orders in masses.items() if orders is not None}
    whole = sum(map(sum, present.values()))
    for sector in ("fj", "affine", "lc"):
        if sector not in present:
            yield row("mass", where, **family, sector=sector, sector_gate=0.0)
            continue
        orders = present[sector]
        total = sum(orders)
        for order, figure in enumerate(orders):
            jet_order = 1 if sector == "affine" else order
            yield row(
                "mass", where, **family, sector=sector, jet_order=jet_order, effective_mass=figure
            )
        yield row(
            "mass",
            where,
            **family,
            sector=sector,
            effective_mass=total,
            sector_share=total / whole if whole else None,
            sector_gate=1 / len(present),
            mean_order=mean(orders) if sector != "affine" else None,
        )
    jets = [orders for sector, orders in present.items() if sector != "affine"]
    if jets:
        pooled = [sum(figures) for figures in zip(*jets, strict=True)]
        total = sum(pooled)
        for order, figure in enumerate(pooled):
            share = figure / total if total else None
            yield row("mass", where, **family, sector="fj+lc", jet_order=order, order_share=share)
        yield row("mass", where, **family, sector="fj+lc", mean_order=mean(pooled))


def rotary_rows(where: Row, orders: Sequence[float]) -> Iterator[Row]:
    """The multiplicative rows of one scope."""
    shared = {"family": "multiplicative", "sector": "fj"}
    for order, figure in enumerate(orders):
        share = figure / sum(orders) if sum(orders) else None
        yield row(
            "mass", where, **shared, jet_order=order, effective_mass=figure, order_share=share
        )
    yield row("mass", where, **shared, effective_mass=sum(orders), mean_order=mean(orders))


def rotary_result(by_layer: Sequence[Sequence[float]], heads: int = 4, **changes: Any) -> Result:
    """A RoPE-like model: the masses by order of a head of each layer."""
    orders = range(len(by_layer[0]))

    def whole(layers: Sequence[Sequence[float]]) -> list[float]:
        return [heads * sum(masses[order] for masses in layers) for order in orders]

    rows = list(rotary_rows(scope(mechanism="rope"), whole(by_layer)))
    for layer, masses in enumerate(by_layer):
        rows += rotary_rows(scope(layer, mechanism="rope"), whole([masses]))
        for head in range(heads):
            rows += rotary_rows(scope(layer, head, mechanism="rope"), masses)
    return result("mass", rows, **changes)


def mean(orders: Sequence[float]) -> float | None:
    """Mass-weighted mean order."""
    total = sum(orders)
    return sum(r * figure for r, figure in enumerate(orders)) / total if total else None


FULL: Masses = {"fj": [1.0, 0.1, 0.05, 0.05], "affine": [8.1], "lc": [0.6, 0.06, 0.02, 0.02]}


def mass_result(masses: Masses = FULL, layers: int = 2, heads: int = 4, **changes: Any) -> Result:
    """A model of which every head has the same masses."""

    def times(number: int) -> Masses:
        return {
            sector: None if orders is None else [number * figure for figure in orders]
            for sector, orders in masses.items()
        }

    rows = list(bias_rows(scope(), times(layers * heads)))
    for layer in range(layers):
        rows += bias_rows(scope(layer), times(heads))
        for head in range(heads):
            rows += bias_rows(scope(layer, head), masses)
    return result("mass", rows, **changes)


Channels = Mapping[float, Sequence[float]]
"""Mass by order of each channel, by its wavelength in tokens."""


def spectrum_rows(
    where: Row, masses: Channels, length: int = 128, norms: bool = False, **shared: Any
) -> Iterator[Row]:
    """Rows of one scope; channels are numbered unless ``channel`` is None in ``shared``.

    With ``norms`` every channel has the norms 3 and 4 on data.
    """
    total = sum(map(sum, masses.values()))

    def band(turn: float) -> str | None:
        return None if turn != turn else BANDS[(turn >= 16) + (turn > length)]

    def shown(mass: float, **figures: Any) -> Row:
        return row("spectrum", where, mass=mass, share=mass / total if total else None, **figures)

    def on_data(channels: int) -> Row:
        if not norms:
            return {}
        return {
            "query_norm": 3 * channels**0.5,
            "key_norm": 4 * channels**0.5,
            "data_mass": 12.0 * channels,
            "data_share": channels / len(masses),
        }

    found = set(map(band, masses))
    for name in [*(BANDS if found - {None} else ()), *(found & {None})]:
        inside = [orders for turn, orders in masses.items() if band(turn) == name]
        yield shown(sum(map(sum, inside)), band=name, **on_data(len(inside)))
    for channel, (turn, orders) in enumerate(masses.items()):
        for order, mass in enumerate(orders):
            figures = {"channel": channel, "jet_order": order, "band": band(turn), **shared}
            known = turn == turn
            frequency = None if not known else 6.283185 / turn
            finite = turn if known and turn < float("inf") else None
            figures |= {"inv_freq": frequency, "wavelength": finite, **on_data(1)}
            yield shown(mass, **figures)


BANDS = ("local", "mid", "beyond")
TURNS: Channels = {6.28: [1.0], 9.0: [1.0], 40.0: [4.0], 100.0: [2.0], 1000.0: [2.0]}


def spectrum_result(
    masses: Channels = TURNS, layers: int = 2, heads: int = 4, **changes: Any
) -> Result:
    """A model of which every head has the same spectrum."""

    def times(number: int) -> Channels:
        return {turn: [number * mass for mass in orders] for turn, orders in masses.items()}

    rows = list(spectrum_rows(scope(mechanism="rope"), times(layers * heads)))
    for layer in range(layers):
        rows += spectrum_rows(scope(layer, mechanism="rope"), times(heads))
        for head in range(heads):
            rows += spectrum_rows(scope(layer, head, mechanism="rope"), masses)
    return result("spectrum", rows, **changes)


def energy_rows(
    where: Row, window: int, bucket: str, energies: Mapping[str, Sequence[float | None]]
) -> Iterator[Row]:
    """Rows of one scope and window from the functional energy of each order; None: degenerate."""
    for sector, orders in energies.items():
        shared = {"sector": sector, "window": window, "bucket": bucket, "lag_weights": "uniform"}
        degenerate = None in orders
        squares = [0.0 if figure is None else figure**2 for figure in orders]
        whole = sum(squares)
        yield row(
            "energy", where, **shared, kernel_energy=0.5, energy_share=1.0, degenerate=degenerate
        )
        for order, figure in enumerate(orders):
            yield row(
                "energy",
                where,
                **shared,
                jet_order=1 if sector == "affine" else order,
                functional_energy=None if sector == "affine" else figure,
                kernel_energy=0.25,
                energy_share=squares[order] / whole if whole else None,
                degenerate=degenerate,
            )


JETS: dict[str, Sequence[float | None]] = {
    "fj": [0.9, 0.3, 0.1, 0.05],
    "affine": [1.0],
    "lc": [0.8, 0.2, 0.1, 0.05],
    "fj+lc": [0.95, 0.25, 0.1, 0.05],
}


def energy_result(
    energies: Mapping[str, Sequence[float | None]] = JETS,
    layers: int = 2,
    windows: Sequence[int] = (2048, 32768),
) -> Result:
    """Model and layers over every window, and two lag buckets of each."""
    rows = [
        made
        for window in windows
        for bucket in ("all", "train", "x1_4")
        for where in (scope(), *map(scope, range(layers)))
        for made in energy_rows(where, window, bucket, energies)
    ]
    return result("energy", rows, provenance={"lengths": list(windows)})


def fit_result(
    fits: Mapping[int, tuple[float | None, Sequence[float | None]]], layers: int = 2
) -> Result:
    """A tabulated bias: by window the part explained, and the energies of affine, fj and lc."""
    rows = [
        row(
            "energy",
            where,
            sector=sector,
            jet_order=order,
            window=window,
            bucket="all",
            lag_weights="uniform",
            kernel_energy=energy,
            degenerate=energy is None,
            fitted=True,
            r2=explained,
        )
        for window, (explained, energies) in fits.items()
        for where in (
            scope(mechanism="t5_bias"),
            *(scope(layer, mechanism="t5_bias") for layer in range(layers)),
        )
        for sector, energy in zip(("affine", "fj", "lc"), energies, strict=True)
        for order in (None, 1 if sector == "affine" else 0)
    ]
    return result("energy", rows, provenance={"lengths": list(fits)})


def loo_result(
    figures: Mapping[str, float | None],
    length: int = 32768,
    layers: int = 0,
    **changes: Any,
) -> Result:
    """Prior KL of each removal, the same in every layer."""
    rows = [
        row("loo", where, removed=removed, eval_length=length, prior_kl=kl, loo_delta_mse=0.01)
        for removed, kl in figures.items()
        for where in (scope(), *map(scope, range(layers)))
    ]
    provenance = {"target": "full kernel", "lengths": [length]}
    return result("loo", rows, provenance=provenance, **changes)


def probe_rows(
    where: Row,
    top1: Mapping[str, Mapping[str, float | None]],
    length: int = 32768,
    **shared: Any,
) -> Iterator[Row]:
    """Rows of one scope from top-1 by precision and bucket."""
    keys = {"variant": "checkpoint", "family": "additive", **shared}
    for precision, by_bucket in top1.items():
        for bucket, share in by_bucket.items():
            yield row(
                "probe",
                where,
                **keys,
                precision=precision,
                eval_length=length,
                bucket=bucket,
                queries=128,
                top1=share,
                within_64=share,
                margin=0.0123,
                ties=1.0,
                chance=1 / (length - 1),
            )


TOP1 = {
    "fp32": {"train": 1.0, "x1_4": 0.9, "x16_32": 0.7, "x32_64": 0.5},
    "int8": {"train": 1.0, "x1_4": 0.8, "x16_32": 0.4, "x32_64": 0.0},
}


def probe_result(layers: int = 0) -> Result:
    """Top-1 at two precisions, the same in every layer."""
    places = (scope(), *map(scope, range(layers)))
    rows = [made for where in places for made in probe_rows(where, TOP1)]
    return result("probe", rows, provenance={"lengths": [32768]})


def inspect_row(layer: int, mechanism: str = "rope", **fields: Any) -> Row:
    """One layer's row; every value comes from a config field of its name."""
    values = {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64, "scale": 0.125, **fields}
    sources = {
        f"{name}_source": f"config: {name}"
        for name in values
        if name not in ("sectors", "max_order") and not name.endswith("_source")
    }
    return row("inspect", scope(layer, mechanism=mechanism), **{**sources, **values})


def inspect_result(rows: Sequence[Row], **changes: Any) -> Result:
    """A result of layers."""
    return result("inspect", rows, **changes)


def stability_result(layers: int = 2) -> Result:
    """The whole kernel, one jet sector and affine at two lengths."""
    kernel = {
        "bias_rms": 0.5,
        "bias_max": 2.5,
        "attention_entropy": 3.2,
        "effective_support": 24.5,
        "mean_distance": 13.7,
    }
    jets = {"norm_final": 0.9, "int8_error_order": 0.004, "condition_number": 1.5e5}
    rows = [
        row("stability", where, variant="checkpoint", sector=sector, eval_length=length, **figures)
        for length in (128, 32768)
        for sector, figures in ((None, kernel), ("fj", {**kernel, **jets}), ("affine", kernel))
        for where in (scope(), *map(scope, range(layers)))
    ]
    return result("stability", rows, provenance={"lengths": [128, 32768]})


def verify_row(where: Row, law: str, **figures: Any) -> Row:
    """One law of the checkpoint's RoPE over a window of 32,768 tokens, kept."""
    usual = {
        "subject": "checkpoint",
        "transform": "rope",
        "precision": "float32",
        "eval_length": 32768,
        "error": 1e-5,
        "tolerance": 1e-3,
        "passed": True,
        "reason": "",
    }
    made = {**usual, **figures}
    made.setdefault("last_position", made["eval_length"] - 1)
    return row("verify", where, law=law, **made)


def verify_result(layers: int = 2) -> Result:
    """Laws and parity that hold, and a standard transform that is not relative."""
    judged = {"error": None, "tolerance": None, "passed": None}
    rows = [
        made
        for where in (scope(mechanism="rope"), *(scope(n, mechanism="rope") for n in range(layers)))
        for made in (
            verify_row(where, "group"),
            verify_row(where, "relative_score"),
            verify_row(where, "query_growth", growth=1.0, **judged),
            verify_row(where, "key_growth", growth=1.0, **judged),
            verify_row(where, "attention_logits", eval_length=256, error=2e-7),
            verify_row(where, "attention_output", eval_length=256, error=4e-7),
        )
    ]
    fails = {"error": 0.5, "passed": False, "reason": "bounded shear time is not additive: 0.999"}
    standard = {"subject": "standard", "transform": "jordan_m2_bounded", **fails}
    rows.append(verify_row(scope(mechanism="jordan"), "group", **standard))
    return result("verify", rows, provenance={"lengths": [32768]})


def nll_rows(where: Row, losses: Mapping[int, float], *, attention: bool = True) -> Iterator[Row]:
    """Rows of one scope, by length; the loss rises by a tenth beyond the train length of 128."""
    looks = {"attention_entropy": 2.0, "effective_support": 7.39, "mean_distance": 31.5}
    for length, loss in losses.items():
        buckets = {"all": length, "train": min(length, 128), "x1_4": length - 128}
        for bucket, tokens in buckets.items():
            if tokens > 0:
                own = loss * (1.1 if bucket == "x1_4" else 1.0)
                model = where["scope"] == "model"
                figures = {"nll": own, "ci_low": own - 0.02, "ci_high": own + 0.02} if model else {}
                yield row(
                    "nll",
                    where,
                    eval_length=length,
                    bucket=bucket,
                    windows=3,
                    tokens=3 * tokens,
                    **figures,
                    **({**looks, "sink_mass": 0.04} if attention else {}),
                )


def nll_result(losses: Mapping[int, float], layers: int = 2, *, attention: bool = True) -> Result:
    """A byte-level model with losses by length."""
    rows = list(nll_rows(scope(), losses, attention=attention))
    for layer in range(layers if attention else 0):
        rows += nll_rows(scope(layer), losses)
        rows += nll_rows(scope(layer, 0), losses)
    return result("nll", rows, provenance={"unit": "byte", "lengths": list(losses)})


def kernel_rows(
    where: Row, r2: Mapping[str, float], control: str | None = None, side: str = "past"
) -> Iterator[Row]:
    """Rows of one scope: the kernel, a shape for each of ``r2``, three groups and two lags."""
    key = {"side": side, "control": control}
    statistics = {"model": ("p10", "median", "p90"), "layer": ("median",), "head": (None,)}
    best = max(r2, key=lambda shape: r2[shape])
    for statistic in statistics[where["scope"]]:
        key["statistic"] = statistic
        counted = statistic in (None, "median")
        lone = {"bic": -700.0} if statistic is None else {}
        size = {"range": 12.0, "lag_share": 0.43, "sink_share": 0.31}
        yield row("kernel", where, **key, **size, decaying=0.99 if counted else None)
        for shape, share in r2.items():
            wins = float(shape == best) if counted else None
            figures = {"r2": share, "preferred": wins, **lone}
            if shape == "rapidity_recency":
                figures |= {"fitted_scale": 11.0, "slope": 2.0}
            yield row("kernel", where, **key, shape=shape, **figures)
        for group in ("affine", "F0"):
            yield row("kernel", where, **key, group=group, unique_r2=0.01, incremental_r2=0.45)
        yield row("kernel", where, **key, group="total", r2=0.9)
        for lag in (0, 4) if control is None else ():
            yield row("kernel", where, **key, lag=lag, kernel=-0.5 * lag, standard_error=0.01 * lag)


def kernel_result(layers: int = 2, sides: Sequence[str] = ("past",)) -> Result:
    """Mostly rapidity recency, with both controls."""
    shapes = {"linear_recency": 0.55, "rapidity_recency": 0.75, "none": 0.0}
    places = [scope(mechanism="rope")]
    places += [scope(layer, mechanism="rope") for layer in range(layers)]
    places += [scope(layer, 0, mechanism="rope") for layer in range(layers)]
    rows = []
    for control, factor in ((None, 1.0), ("shuffled", 0.96), ("fresh", 0.1)):
        for side in sides:
            for where in places:
                measured = {shape: factor * share for shape, share in shapes.items()}
                rows += kernel_rows(where, measured, control, side)
    return result("kernel", rows)


BAD_HEAD = Skipped(1, "gate_logits holds 1 values that are NaN or infinite", 2, bad_values=True)


def check_row(
    where: Row,
    value: float | None = 0.3,
    *,
    rule: str = "affine-floor",
    status: str = "violated",
    **figures: Any,
) -> Row:
    """A check that the share of the affine sector is at least 0.5."""
    return row(
        "gate",
        where,
        **{
            "rule": rule,
            "metric": "mass.sector_share[affine]",
            "requirement": "at least 0.5",
            "severity": "error",
            "status": status,
            "met": None if value is None else value >= 0.5,
            "value": value,
            "minimum": 0.5,
            "policy": "gate.toml",
            "line": 3,
            "fingerprint": f"{rule} {where['layer']} {where['head']}",
            **figures,
        },
    )


def gate_result(rows: Sequence[Row] | None = None, **changes: Any) -> Result:
    """Checks of every status, or those that are given."""
    found = rows or (
        check_row(scope(0)),
        check_row(scope(1), 0.8, status="passed"),
        check_row(scope(2), 0.7, status="passed"),
        check_row(scope(3), None, status="inconclusive", reason="the sector is absent"),
        check_row(scope(), 0.4, rule="soft", severity="warning", line=8),
        check_row(scope(), 0.4, rule="late", status="suppressed", reason="a reason", line=14),
        check_row(scope(), 0.4, rule="old", status="known", change="unchanged", baseline=0.4),
    )
    provenance = {"policy": "gate.toml", "policy_uri": "ci/gate.toml", "tool_version": "0.1.0"}
    return result(
        "gate", found, provenance={**provenance, **changes.pop("provenance", {})}, **changes
    )


def compare_result(*affine: float) -> Result:
    """Checkpoints of a run, which differ in their affine mass."""
    found = [
        Input(
            path=f"runs/step-{100 * number}.safetensors",
            name=f"step-{100 * number}",
            step=100 * number,
            results={"mass": mass_result({**FULL, "affine": [mass]})},
            missing={},
            files=(),
        )
        for number, mass in enumerate(affine)
    ]
    return compared(found)


def claim(name: str, holds: bool | None, finding: str = "0.84 against 0.12") -> Row:
    """A claim as a result of `reproduce` states it."""
    return {
        "experiment": "language",
        "claim": name,
        "paper": "affine first",
        "finding": finding,
        "holds": holds,
        "command": "pjdiag reproduce language",
    }


def reproduce_result(
    rows: Sequence[Row] | None = None, *claims: Row, quick: bool = False
) -> Result:
    """Two methods by seed and over the seeds, at two lengths, with an interval."""
    found = rows or [
        row(
            "reproduce",
            scope(mechanism=None),
            experiment="language",
            subject="wikitext2",
            variant=variant,
            seed=seed,
            eval_length=length,
            part=part,
            figure=figure,
            value=value,
            unit="nats per byte" if figure == "nll" else None,
            ci_low=value - 0.1 if seed is None else None,
            ci_high=value + 0.1 if seed is None else None,
            n=3 if seed is None else 1,
        )
        for variant, value in (("full", 1.6), ("rope", 2.4))
        for seed in (None, 0, 1, 2)
        for figure, part, lengths in (
            ("nll", None, (128, 32768)),
            ("loo_delta_nll", "sector:affine", (128,)),
            ("loo_delta_nll", "order:2", (128,)),
        )
        for length in lengths
    ]
    stated = claims or (claim("affine is largest", True), claim("order 2 matters", False))
    experiments = [{"name": "language", "question": "?", "seeds": [0, 1, 2], "minutes": 5.0}]
    provenance = {"quick": quick, "experiments": experiments, "claims": list(stated)}
    return Result("reproduce", {}, {"command": None, **provenance}, tuple(found))


EVERY_RESULT = {
    "inspect": inspect_result([inspect_row(0), inspect_row(1)]),
    "mass": mass_result(),
    "spectrum": spectrum_result(),
    "energy": energy_result(),
    "loo": loo_result({"order:0": 0.2, "order:1": 2e-5, "sector:affine": 0.4}, layers=2),
    "probe": probe_result(layers=2),
    "stability": stability_result(),
    "verify": verify_result(),
    "kernel": kernel_result(),
    "nll": nll_result({128: 1.61, 32768: 1.70}),
    "gate": gate_result(),
    "compare": compare_result(0.6, 4.05, 8.1),
    "reproduce": reproduce_result(),
}
