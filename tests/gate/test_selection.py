"""Which rows a metric speaks of."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pjdiag.gate.metrics import Metric, parse_metric
from pjdiag.gate.selection import AmbiguousError, Figure, figures
from pjdiag.results import Result
from pjdiag.terms import Family
from tests.render.results import FULL, inspect_result, inspect_row, mass_result, rotary_result

BOTH = replace(mass_result(), rows=(*mass_result().rows, *rotary_result([[1.0], [1.0]]).rows))


def found(result: Result, text: str, scope: str | None = None) -> list[Figure]:
    return figures(result, parse_metric(text), scope)


def values(result: Result, text: str, scope: str | None = None) -> list[float | None]:
    return [figure.value for figure in found(result, text, scope)]


def places(result: Result, text: str, scope: str | None = None) -> list[tuple[object, object]]:
    return [(figure.layer, figure.head) for figure in found(result, text, scope)]


def test_unnamed_keys_choose_aggregates() -> None:
    assert values(mass_result(), "mass.sector_share[affine]") == [pytest.approx(0.81)]
    assert values(mass_result(), "mass.effective_mass[affine]") == [pytest.approx(8 * 8.1)]
    assert values(mass_result(), "mass.effective_mass[fj, order=1]") == [pytest.approx(0.8)]


def test_a_named_layer_or_head_is_the_scope() -> None:
    result = mass_result()
    assert places(result, "mass.sector_share[affine, layer=1]") == [(1, None)]
    assert places(result, "mass.sector_share[affine, layer=1, head=2]") == [(1, 2)]
    assert values(result, "mass.effective_mass[affine, layer=1]") == [pytest.approx(4 * 8.1)]


def test_scopes() -> None:
    result = mass_result(layers=2, heads=2)
    text = "mass.sector_share[affine]"
    assert places(result, text, "model") == [(None, None)]
    assert places(result, text, "every layer") == [(0, None), (1, None)]
    assert places(result, text, "every head") == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places(result, text, "fraction") == places(result, text, "every head")
    assert places(result, "mass.sector_share[affine, layer=1]", "every head") == [(1, 0), (1, 1)]
    layers = inspect_result([inspect_row(0), inspect_row(1)])
    assert places(layers, "inspect.num_heads", "fraction") == [(0, None), (1, None)]


def test_several_rows_without_a_scope_are_ambiguous() -> None:
    layers = inspect_result([inspect_row(0), inspect_row(1)])
    with pytest.raises(AmbiguousError, match="matches 2 rows: layer 0, 1") as caught:
        found(layers, "inspect.num_heads")
    assert "scope" in caught.value.hint
    with pytest.raises(AmbiguousError, match="family additive, multiplicative") as caught:
        found(BOTH, "mass.effective_mass[fj]")
    options = caught.value.hint.removeprefix("write ").split(" or ")
    assert options == [f"mass.effective_mass[fj, family={f}]" for f in Family]
    for option in options:  # as it stands, each of them is one row
        assert len(found(BOTH, option)) == 1
    with pytest.raises(AmbiguousError):
        found(BOTH, "mass.effective_mass[fj]", "every head")
    assert len(found(BOTH, "mass.effective_mass[fj, family=multiplicative]")) == 1
    with pytest.raises(AmbiguousError, match="sector fj, affine, lc, fj"):
        found(mass_result(), "mass.mean_order")


def test_rows_that_cannot_be_told_apart_are_ambiguous_too() -> None:
    row = mass_result().rows[0]
    with pytest.raises(AmbiguousError, match=r"matches 2 rows$"):
        found(Result("mass", {}, {}, (row, dict(row))), "mass.effective_mass[fj, order=0]")


def test_the_bucket_of_all_lags_is_the_aggregate() -> None:
    rows = tuple(
        {"layer": None, "head": None, "sector": "fj", "bucket": bucket, "energy_share": share}
        for bucket, share in (("all", 0.5), ("train", 0.7))
    )
    result = Result("energy", {}, {}, rows)
    assert values(result, "energy.energy_share[fj]") == [0.5]
    assert values(result, "energy.energy_share[fj, bucket=train]") == [0.7]


@pytest.mark.parametrize(
    ("text", "scope", "reason"),
    [
        ("mass.sector_share[affine, layer=7]", None, "no row has layer 7; there are 0, 1"),
        ("mass.order_share[fj+lc, order=9]", None, "no row has jet_order 9; there are 0, 1, 2, 3"),
        ("mass.sector_share[fj, family=multiplicative]", None, "there are additive"),
        ("mass.sector_share[fj, mechanism=rope]", "every layer", "there are pj_bias"),
        ("mass.order_share[fj+lc]", None, "there is no order_share here"),
        ("mass.sector_share[lc]", None, "the sector is absent"),
    ],
)
def test_what_is_missing_says_why(text: str, scope: str | None, reason: str) -> None:
    result = mass_result({**FULL, "lc": None})
    figure = found(result, text, scope)[0]
    assert figure.value is None
    assert reason in figure.reason


def test_a_scope_without_rows() -> None:
    layers = inspect_result([inspect_row(0)])
    (figure,) = found(layers, "inspect.num_heads", "model")
    assert (figure.value, figure.reason) == (None, "inspect has no rows of this scope")
    (figure,) = found(Result("mass", {}, {}, ()), "mass.mean_order[fj]")
    assert figure.reason == "mass has no rows for this checkpoint"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_what_is_not_finite_has_no_value(bad: float | None) -> None:
    row = {"layer": None, "head": None, "sector": "fj", "mean_order": bad}
    figure = figures(Result("mass", {}, {}, (row,)), Metric("mass", "mean_order", {}), None)[0]
    assert figure.value is None
    assert figure.reason


def test_flags_are_one_or_zero() -> None:
    rows = tuple({"layer": None, "head": None, "law": str(f), "passed": f} for f in (True, False))
    result = Result("verify", {}, {}, rows)
    assert values(result, "verify.passed[law=True]") == [1.0]
    assert values(result, "verify.passed[law=False]") == [0.0]
