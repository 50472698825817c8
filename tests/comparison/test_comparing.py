"""Differences against figures taken from both results by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import pjdiag
from pjdiag.comparison.comparing import ERRORS, INTERVALS, compare, compared
from pjdiag.comparison.inputs import Input
from pjdiag.comparison.matching import SUMS
from pjdiag.results import Result, Skipped
from pjdiag.terms import DIAGNOSTICS, KEYS, Scope, Sector
from tests.native import full_native, random_raw, write_native
from tests.render.results import mass_result, result, row, scope


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    first, second = (full_native(folder / f"{seed}.safetensors", seed=seed) for seed in (1, 2))
    return first, second


def given(name: str, measured: Result, step: int | None = None) -> Input:
    return Input(name, name, step, {measured.diagnostic: measured}, {}, ())


def test_differences_of_every_scope(pair: tuple[Path, Path]) -> None:
    made = compare(*pair)
    a, b = map(pjdiag.mass, pair)
    keys = ("scope", "layer", "head", "family", "sector", "jet_order")
    count = 0
    for figure in ("effective_mass", "order_share", "sector_share", "sector_gate", "mean_order"):
        there = {tuple(r[k] for k in keys): r[figure] for r in b.rows}
        for one in a.rows:
            where = {key: one[key] for key in keys}
            if one[figure] is None:
                continue
            (found,) = made.select(figure=figure, **where)
            other = there[tuple(where.values())]
            assert (found["value_a"], found["value_b"]) == (one[figure], other)
            assert found["difference"] == other - one[figure]
            assert found["relative"] == pytest.approx((other - one[figure]) / one[figure])
            count += 1
    assert count == len(made.rows) > 150
    assert {r["scope"] for r in made.rows} == set(Scope)


def test_columns_and_keys_are_those_stated(pair: tuple[Path, Path]) -> None:
    made = compare(*pair, diagnostics=["mass", "energy"])
    names = {column.name for column in made.columns}
    assert all(set(each) <= names for each in made.rows)
    for name, keys in KEYS.items():
        assert set(keys) <= names
        columns = {column.name for column in DIAGNOSTICS[name]}
        assert {c for n, c in (*INTERVALS, *ERRORS) if n == name} <= columns
        assert set(SUMS.get(name, ())) <= columns
    assert Result.from_json(made.to_json()) == made


def test_the_rows_that_moved_most_come_first(pair: tuple[Path, Path]) -> None:
    rows = compare(*pair).rows
    moved = [each["moved"] for each in rows]
    assert moved == sorted(moved, reverse=True)
    assert all(0 <= each <= 2 for each in moved)
    for each in rows:
        if each["figure"].endswith("share"):
            assert each["moved"] == abs(each["difference"])
    layers = [each for each in rows if each["figure"] == "mean_order" and each["scope"] == "layer"]
    largest = max(abs(each[side]) for each in layers for side in ("value_a", "value_b"))
    for each in layers:
        assert each["moved"] == pytest.approx(abs(each["difference"]) / largest)


def test_swapped_differences_change_sign(pair: tuple[Path, Path]) -> None:
    keys = ("scope", "layer", "head", "sector", "jet_order", "figure")
    there, back = compare(*pair), compare(*reversed(pair))
    forward = {tuple(r[k] for k in keys): r["difference"] for r in there.rows}
    backward = {tuple(r[k] for k in keys): -r["difference"] for r in back.rows}
    assert forward == backward


def nll(mean: float, half: float | None) -> Result:
    ends = {} if half is None else {"ci_low": mean - half, "ci_high": mean + half}
    return result("nll", [row("nll", scope(), eval_length=128, bucket="all", nll=mean, **ends)])


@pytest.mark.parametrize(
    ("half", "noise", "within"), [(0.03, 0.05, False), (0.3, math.hypot(0.3, 0.04), True)]
)
def test_intervals_give_the_noise(half: float, noise: float, within: bool) -> None:
    made = compared([given("a", nll(1.5, half)), given("b", nll(1.7, 0.04))])
    (only,) = made.rows
    assert only["figure"] == "nll"
    assert only["noise"] == pytest.approx(noise)
    assert only["within_noise"] is within


def test_without_an_interval_there_is_no_noise() -> None:
    (only,) = compared([given("a", nll(1.5, None)), given("b", nll(1.7, 0.04))]).rows
    assert (only["noise"], only["within_noise"]) == (None, None)


def test_standard_errors_give_the_noise() -> None:
    def curve(height: float) -> Result:
        figures = {"side": "past", "statistic": "median", "lag": 3, "kernel": height}
        return result("kernel", [row("kernel", scope(), **figures, standard_error=0.3)])

    (only,) = compared([given("a", curve(1.0)), given("b", curve(2.0))]).rows
    assert only["noise"] == pytest.approx(1.96 * math.sqrt(2) * 0.3, rel=1e-4)
    assert only["within_noise"] is False


def test_what_is_within_the_noise_comes_last() -> None:
    def loss(short: float, long: float, half: float) -> Result:
        rows = [
            row("nll", scope(), eval_length=length, bucket="all", nll=mean, ci_low=mean - h,
                ci_high=mean + h)
            for length, mean, h in ((128, short, half), (512, long, 0.001))
        ]  # fmt: skip
        return result("nll", rows)

    made = compared([given("a", loss(1.0, 1.0, 5.0)), given("b", loss(3.0, 1.1, 5.0))])
    assert [each["eval_length"] for each in made.rows] == [512, 128]


def test_layers_are_compared_where_there_are_as_many(tmp_path: Path) -> None:
    two = full_native(tmp_path / "two.safetensors")
    three = full_native(tmp_path / "three.safetensors", layers=3)
    made = compare(two, three)
    assert {each["scope"] for each in made.rows} == {"model"}
    assert made.provenance["levels"] == {"mass": "model"}
    assert any("two.safetensors has 2 layers, three.safetensors 3" in w for w in made.warnings)
    assert "effective_mass" not in {each["figure"] for each in made.rows}


def test_heads_are_compared_where_there_are_as_many(tmp_path: Path) -> None:
    two = full_native(tmp_path / "two.safetensors")
    four = full_native(tmp_path / "four.safetensors", heads=4)
    made = compare(two, four)
    assert {each["scope"] for each in made.rows} == {"model", "layer"}
    assert made.provenance["levels"] == {"mass": "layer"}
    assert any("in layer 0 two.safetensors has 2 heads" in warning for warning in made.warnings)
    assert "effective_mass" not in {each["figure"] for each in made.rows}


def test_mechanisms_with_nothing_in_common(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bias = write_native(tmp_path / "a.safetensors", [random_raw(set(Sector), 2, 3, rng)])
    rope = write_native(tmp_path / "b.safetensors", method="rope")
    made = compare(bias, rope, diagnostics=["mass"])
    assert made.rows == ()
    assert made.inconclusive
    assert any("additive in the first and multiplicative" in w for w in made.warnings)
    assert made.provenance["levels"] == {"mass": "head"}


def test_what_checkpoints_are_built_of_where_they_share_no_mass(tmp_path: Path) -> None:
    rope = write_native(tmp_path / "a.safetensors", method="rope")
    pope = write_native(tmp_path / "b.safetensors", method="pope")
    made = compare(rope, pope)
    asked = compare(rope, pope, diagnostics=["inspect"])
    assert made.rows == asked.rows != ()
    assert made.provenance["instead_of"] == "mass"
    assert "instead_of" not in asked.provenance
    assert {entry.layer for entry in made.skipped} == {0}
    assert not made.inconclusive
    saved = compare(pjdiag.mass(rope), pjdiag.mass(write_bias(tmp_path / "c.safetensors")))
    assert saved.rows == ()  # of a saved result nothing else is known


def test_bad_values_stay_inconclusive_where_no_mass_is_shared(tmp_path: Path) -> None:
    bad = write_bias(tmp_path / "a.safetensors", gate=np.nan)
    made = compare(bad, write_native(tmp_path / "b.safetensors", method="rope"))
    assert made.provenance["instead_of"] == "mass"
    assert made.inconclusive


def write_bias(path: Path, gate: float | None = None) -> Path:
    layer = random_raw(set(Sector), 2, 3, np.random.default_rng(0))
    if gate is not None:
        layer["gate_logits"][0, 0] = gate
    return write_native(path, [layer])


def test_a_sector_that_one_has_not() -> None:
    absent = {"fj": [1.0], "affine": [3.0], "lc": None}
    present = {"fj": [1.0], "affine": [2.0], "lc": [1.0]}
    made = compared([given("a", mass_result(absent)), given("b", mass_result(present))])
    (light,) = made.select(scope="model", figure="sector_share", sector="lc")
    assert (light["value_a"], light["value_b"], light["difference"]) == (None, 0.25, None)
    assert (light["relative"], light["moved"]) == (None, None)
    (affine,) = made.select(scope="model", figure="sector_share", sector="affine")
    assert affine["difference"] == -0.25
    assert any("rows only the second has" in warning for warning in made.warnings)
    assert made.rows[-1]["difference"] is None


def test_a_figure_that_was_zero_has_no_relative_change() -> None:
    made = compared(
        [
            given("a", mass_result({"fj": [1.0], "affine": [0.0], "lc": None})),
            given("b", mass_result({"fj": [1.0], "affine": [1.0], "lc": None})),
        ]
    )
    (affine,) = made.select(scope="model", figure="sector_share", sector="affine")
    assert (affine["difference"], affine["relative"]) == (0.5, None)


def test_a_run_is_put_in_the_order_of_its_steps(tmp_path: Path) -> None:
    paths = [full_native(tmp_path / f"step-{n}.safetensors", seed=n) for n in (900, 0, 90)]
    made = compare(*paths)
    assert [each["step"] for each in made.provenance["checkpoints"]] == [0, 90, 900]
    assert list(dict.fromkeys(each["step"] for each in made.rows)) == [90, 900]
    first = pjdiag.mass(paths[1])
    for each in made.select(scope="model", figure="sector_share"):
        (own,) = first.select(scope="model", sector=each["sector"], jet_order=None)
        assert each["value_a"] == own["sector_share"]


def test_two_keep_their_order(tmp_path: Path) -> None:
    paths = [full_native(tmp_path / f"step-{n}.safetensors", seed=n) for n in (900, 0)]
    described = compare(*paths).provenance["checkpoints"]
    assert [each["step"] for each in described] == [900, 0]


def test_bad_values_of_one_make_it_inconclusive() -> None:
    bad = Skipped(1, "gate_logits holds 1 values that are NaN or infinite", 2, bad_values=True)
    shared = Skipped(3, "linear attention")
    a = mass_result(skipped=(shared,))
    b = mass_result(skipped=(shared, bad))
    made = compared([given("a", a), given("b", b)])
    assert made.inconclusive
    assert made.rows
    assert [entry.reason for entry in made.skipped] == [
        "linear attention",
        "b: gate_logits holds 1 values that are NaN or infinite",
    ]


def test_settings_that_differ_are_said() -> None:
    a, b = nll(1.5, 0.1), nll(1.6, 0.1)
    b.provenance["data_digest"] = "sha256:1"  # type: ignore[index]
    made = compared([given("a", a), given("b", b)])
    assert any("data_digest: a None, b sha256:1" in warning for warning in made.warnings)
