"""Metric expressions: what they name, and where they go wrong."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.gate.metrics import (
    Bound,
    ExpressionError,
    parse_metric,
    parse_requirement,
)
from pjdiag.terms import DIAGNOSTICS, FIGURE_KINDS, KEYS

METRICS = {
    "mass.sector_share[affine]": {"sector": "affine"},
    "mass.mean_order[fj+lc]": {"sector": "fj+lc"},
    "mass.effective_mass[fj, family=multiplicative]": {
        "sector": "fj",
        "family": "multiplicative",
    },
    "mass.order_share[sector=fj+lc,order=2]": {"sector": "fj+lc", "jet_order": 2},
    "mass.sector_gate[ lc , layer = 3 , head=1 ]": {"sector": "lc", "layer": 3, "head": 1},
    "inspect.rope_theta[mechanism=rope]": {"mechanism": "rope"},
    "inspect.num_heads": {},
    "energy.energy_share[affine, length=4096, bucket=x1_4, centred=false]": {
        "sector": "affine",
        "window": 4096,
        "bucket": "x1_4",
        "centred": False,
    },
    "loo.prior_kl[removed=order:2, length=32768]": {"removed": "order:2", "eval_length": 32768},
    "probe.top1[precision=int8, bucket=x16_32]": {"precision": "int8", "bucket": "x16_32"},
    "spectrum.share[band=beyond]": {"band": "beyond"},
    "stability.int8_error_order[lc]": {"sector": "lc"},
    "verify.passed[law=attention_logits]": {"law": "attention_logits"},
    "nll.nll[length=512]": {"eval_length": 512},
    "kernel.r2[group=total, control=shuffled, statistic=median]": {
        "group": "total",
        "control": "shuffled",
        "statistic": "median",
    },
}


@pytest.mark.parametrize("text", METRICS)
def test_what_an_expression_names(text: str) -> None:
    metric = parse_metric(text)
    assert dict(metric.named) == METRICS[text]
    assert f"{metric.diagnostic}.{metric.column}" == text.partition("[")[0]
    assert parse_metric(str(metric)) == metric


def test_every_diagnostic_has_keys_that_are_columns() -> None:
    assert set(KEYS) == set(DIAGNOSTICS) - {"gate", "compare", "reproduce"}
    for diagnostic, keys in KEYS.items():
        assert set(keys) <= {column.name for column in DIAGNOSTICS[diagnostic]}


@pytest.mark.parametrize("diagnostic", KEYS)
def test_every_figure_of_every_diagnostic_can_be_asked(diagnostic: str) -> None:
    for column in DIAGNOSTICS[diagnostic]:
        if column.kind in (*FIGURE_KINDS, "text") and column.name not in KEYS[diagnostic]:
            assert parse_metric(f"{diagnostic}.{column.name}").column == column.name
        else:
            with pytest.raises(ExpressionError):
                parse_metric(f"{diagnostic}.{column.name}")


WRONG = {
    "": (0, "no metric"),
    "mass": (0, "no metric"),
    "Mass.sector_share": (0, "no metric"),
    "mess.sector_share": (0, "unknown diagnostic 'mess'"),
    "masss.sector_share": (0, "unknown diagnostic 'masss'"),
    "gate.value": (0, "unknown diagnostic 'gate'"),
    "mass.sector_shar": (5, "unknown column 'sector_shar' of mass"),
    "mass.family": (5, "family is no figure of mass"),
    "mass.jet_order": (5, "jet_order is no figure of mass"),
    "inspect.inv_freq": (8, "inv_freq is no figure"),
    "mass.sector_share[affin]": (18, "'affin' is neither a sector"),
    "mass.sector_share[affine": (18, "not closed"),
    "mass.sector_share[]": (18, "not closed"),
    "mass.sector_share[affine,]": (25, "not closed"),
    "mass.sector_share[bucket=all]": (18, "mass has no key 'bucket'"),
    "mass.sector_share[affine, sector=fj]": (26, "sector is named twice"),
    "mass.sector_share[sector=affin]": (25, "sector is 'affin'"),
    "mass.sector_share[layer=-1]": (24, "layer is '-1'"),
    "mass.sector_share[layer=one]": (24, "layer is 'one'"),
    "mass.sector_share[layer=]": (24, "layer is ''"),
    "mass.sector_share[family=both]": (25, "family is 'both'"),
    "mass.sector_share[fj] extra": (21, "'extra' after the metric"),
    "energy.energy_share[centred=1]": (28, "centred is '1'"),
    "spectrum.share[band=near]": (20, "band is 'near'"),
    "mass.sector_share[affine=1]": (18, "mass has no key 'affine'"),
    "mass.sector_share[\u0661]": (18, "neither a sector"),
    "mass.sector_share[layer=\u0661]": (24, "layer is"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_and_where(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_metric(text)
    offset, says = WRONG[text]
    assert (caught.value.offset, says in caught.value.message) == (offset, True), caught.value
    assert caught.value.hint


def test_near_names_are_offered() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_metric("mass.sector_shar")
    assert "'sector_share'" in caught.value.hint
    with pytest.raises(ExpressionError) as caught:
        parse_metric("masss.sector_share")
    assert caught.value.hint == "near it: 'mass'"


@pytest.mark.parametrize(
    ("text", "holds", "fails"),
    [
        ("mass.sector_share[affine] >= 0.5", (0.5, 0.9), (0.49,)),
        ("mass.sector_share[affine]>0.5", (0.51,), (0.5, 0.1)),
        ("mass.sector_share[affine] <= 0.5", (0.5, 0.0), (0.51,)),
        ("mass.sector_share[affine] < 5e-1", (0.4,), (0.5, 0.6)),
        ("inspect.num_heads == 4", (4.0,), (3.0, 4.5)),
        ("mass.mean_order[fj] >= -1", (-1.0, 0.0), (-1.5,)),
    ],
)
def test_comparisons(text: str, holds: tuple[float, ...], fails: tuple[float, ...]) -> None:
    _, bound = parse_requirement(text)
    assert all(map(bound.holds, holds))
    assert not any(map(bound.holds, fails))


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("mass.sector_share[affine]", 25),
        ("mass.sector_share[affine] >=", 25),
        ("mass.sector_share[affine] = 0.5", 25),
        ("mass.sector_share[affine] != 0.5", 25),
        ("mass.sector_share[affine] >= half", 29),
        ("mass.sector_share[affine] >= nan", 29),
        ("mass.sector_share[affine] <= inf", 29),
        ("mass.sector_share[affine] >= 50%", 29),
    ],
)
def test_what_is_no_comparison(text: str, offset: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_requirement(text)
    assert caught.value.offset == offset


REALS = st.floats(-1e6, 1e6, allow_nan=False)


@given(REALS, REALS, REALS)
def test_bounds_agree_with_their_distance(value: float, first: float, second: float) -> None:
    low, high = sorted((first, second))
    for bound in (Bound(low), Bound(None, high), Bound(low, high)):
        assert bound.holds(value) == (bound.distance(value) == 0)
        least, most = bound.limits
        inside = (least is None or value >= least) and (most is None or value <= most)
        assert bound.holds(value) == inside


@given(REALS, st.floats(0, 1e3))
def test_both_ends_of_a_tolerance_are_inside(target: float, tolerance: float) -> None:
    bound = Bound(target=target, tolerance=tolerance)
    assert bound.holds(target)
    if tolerance > abs(target) * 1e-6:
        assert bound.holds(target + tolerance)
        assert bound.holds(target - tolerance)
        assert not bound.holds(target + 1.001 * tolerance)


def test_an_exact_value_has_no_slack() -> None:
    assert not Bound(target=0.5).holds(math.nextafter(0.5, 1))


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(0.5), "at least 0.5"),
        (Bound(None, 0.5), "at most 0.5"),
        (Bound(0.5, open=True), "above 0.5"),
        (Bound(None, 0.5, open=True), "below 0.5"),
        (Bound(0.25, 0.5), "0.25 to 0.5"),
        (Bound(None, 1e-6), "at most 1e-6"),
        (Bound(2.5e12, 1e300), "2.5e12 to 1e300"),
        (Bound(target=500000), "exactly 500000"),
        (Bound(target=4), "exactly 4"),
        (Bound(target=0.5, tolerance=0.1), "within 0.1 of 0.5"),
    ],
)
def test_bounds_in_words(bound: Bound, words: str) -> None:
    assert str(bound) == words
