"""The fit of a tabulated bias: what the dictionary holds is found, and it is labelled a fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pjdiag
from pjdiag.adapters import BadTensor, Loaded, Reading, Sourced, TabulatedKernel
from pjdiag.diagnostics.table_fit import FEWEST_LAGS, MOST_LAGS, fit_table
from pjdiag.errors import UsageError
from pjdiag.position.coordinates import phase
from pjdiag.position.relative_bias import bias_by_lag
from pjdiag.terms import LagWeights, Mechanism, Sector
from tests.native import write_native

TABLE = -np.log1p(np.arange(32.0))[:, None] * np.asarray([[1.0, 0.25]]) + np.asarray([[0.3, -2.0]])
"""Two heads whose bias falls from bucket to bucket."""


def tabulated(table: np.ndarray, bad: tuple[BadTensor, ...] = ()) -> TabulatedKernel:
    return TabulatedKernel(
        Mechanism.T5_BIAS,
        num_buckets=Sourced(len(table), "test"),
        max_distance=Sourced(128, "test"),
        read=lambda: Loaded(table, bad),
    )


def reading_of(tmp_path, *parts, causal: bool = True) -> Reading:
    """Layers of 2 heads, each with one of ``parts``; L is 512."""
    whole = pjdiag.read(write_native(tmp_path / "m.safetensors", method="rope"))
    layers = tuple(
        replace(whole.layers[0], index=index, parts=(part,), causal=Sourced(causal, "test"))
        for index, part in enumerate(parts)
    )
    return replace(whole, layers=layers, train_length=Sourced(512, "test"), warnings=())


def norm(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.sqrt(((values - weights @ values / weights.sum()) ** 2) @ weights))


def figure(result, name, **where):
    (value,) = {row[name] for row in result.select(**where)}
    return value


@pytest.mark.parametrize("weights", [np.ones(400), 400 - np.arange(400.0)])
def test_a_recency_is_affine(weights):
    lags = np.arange(400.0)
    bias = np.stack([2 - 3 * lags / 512, 1 - 0.7 * np.arcsinh(lags / 16)])
    fit = fit_table(bias, weights, 512)
    assert fit.r2 == pytest.approx([1.0, 1.0], abs=1e-12)
    for head in range(2):
        found = fit.components[Sector.AFFINE][head]
        assert found == pytest.approx(bias[head] - weights @ bias[head] / weights.sum(), abs=1e-9)
        for sector in (Sector.FJ, Sector.LC):
            assert np.abs(fit.components[sector][head]).max() < 1e-9


@pytest.mark.parametrize("sector", [Sector.FJ, Sector.LC])
def test_a_character_of_the_grid_is_found_in_its_own_sector(sector):
    lags = np.arange(2000.0)
    coordinate = lags if sector == Sector.FJ else phase(lags, 128)
    turn = np.geomspace(4.0, coordinate[-1], 48)[20]
    bias = np.cos(2 * np.pi * coordinate / turn + 0.4)[None] * 3
    fit = fit_table(bias, np.ones(2000), 128)
    assert fit.r2[0] == pytest.approx(1.0, abs=1e-9)
    sizes = {name: norm(part[0], np.ones(2000)) for name, part in fit.components.items()}
    assert max(sizes, key=lambda name: sizes[name]) == sector


@given(st.integers(0, 2**32 - 1), st.sampled_from(list(LagWeights)))
def test_components_are_orthogonal_and_add_up(seed, kind):
    rng = np.random.default_rng(seed)
    lags = np.arange(300.0)
    weights = np.ones(300) if kind == LagWeights.UNIFORM else 300 - lags
    table = rng.normal(size=(32, 2)).cumsum(axis=0)
    bias = bias_by_lag(table, lags, False, 128)
    fit = fit_table(bias, weights, 512)
    parts = list(fit.components.values())
    residual = fit.bias - sum(parts)
    for head in range(2):
        squares = [norm(part[head], weights) ** 2 for part in parts]
        whole = norm(bias[head], weights) ** 2
        assert norm(fit.bias[head], weights) ** 2 == pytest.approx(whole)
        assert sum(squares) + norm(residual[head], weights) ** 2 == pytest.approx(whole)
        assert fit.r2[head] == pytest.approx(sum(squares) / whole)
        assert abs(weights @ fit.bias[head]) < 1e-9 * weights.sum() * np.abs(bias).max()


def test_the_fit_is_the_best_of_its_dictionary():
    lags = np.arange(256.0)
    bias = bias_by_lag(TABLE, lags, False, 128)
    fit = fit_table(bias, np.ones(256), 512)
    scales = 2.0 ** np.arange(9)
    for head in range(2):
        wanted = []
        for scale in scales:
            columns = np.stack([np.ones(256), lags, np.arcsinh(lags / scale)], axis=1)
            rest = bias[head] - columns @ np.linalg.lstsq(columns, bias[head], rcond=None)[0]
            wanted.append(1 - (rest @ rest) / norm(bias[head], np.ones(256)) ** 2)
        affine = norm(fit.components[Sector.AFFINE][head], np.ones(256)) ** 2
        assert affine / fit.variance[head] / 256 == pytest.approx(max(wanted), rel=1e-9)


@pytest.mark.parametrize("lags", [FEWEST_LAGS - 1, MOST_LAGS + 1])
def test_too_few_or_too_many_lags_are_refused(lags):
    with pytest.raises(ValueError, match=f"{lags} lags"):
        fit_table(np.zeros((1, lags)), np.ones(lags), 512)


def test_energy_of_a_table_is_fitted_and_says_so(tmp_path):
    result = pjdiag.energy(reading_of(tmp_path, tabulated(TABLE)), [512])
    assert {row["fitted"] for row in result.rows} == {True}
    assert {row["mechanism"] for row in result.rows} == {"t5_bias"}
    bias = bias_by_lag(TABLE, np.arange(512.0), False, 128)
    fit = fit_table(bias, np.ones(512), 512)
    for head in range(2):
        where = {"scope": "head", "head": head, "bucket": "all"}
        assert figure(result, "r2", **where) == pytest.approx(fit.r2[head])
        for sector, order in ((Sector.FJ, 0), (Sector.AFFINE, 1), (Sector.LC, 0)):
            wanted = norm(fit.components[sector][head], np.ones(512))
            found = figure(result, "kernel_energy", sector=sector.value, jet_order=order, **where)
            assert found == pytest.approx(wanted / norm(bias[head], np.ones(512)), rel=1e-9)
    assert result.provenance["table_fit"].startswith("linear recency")


def test_aggregates_add_variances_before_they_divide(tmp_path):
    noisy = TABLE + 0.5 * np.random.default_rng(0).normal(size=TABLE.shape)
    big = tabulated(10 * noisy)
    result = pjdiag.energy(reading_of(tmp_path, tabulated(TABLE), big), [256])
    fits = [
        fit_table(bias_by_lag(table, np.arange(256.0), False, 128), np.ones(256), 512)
        for table in (TABLE, 10 * noisy)
    ]
    explained = sum(fit.explained.sum() for fit in fits)
    variance = sum(fit.variance.sum() for fit in fits)
    found = figure(result, "r2", scope="model", bucket="all")
    assert found == pytest.approx(explained / variance)
    assert found != pytest.approx(np.mean([fit.r2.mean() for fit in fits]), rel=1e-3)


def test_centring_and_causal_weights_reach_the_fit(tmp_path):
    reading = reading_of(tmp_path, tabulated(TABLE))
    where = {"scope": "model", "bucket": "all", "sector": "affine", "jet_order": 1}
    plain = pjdiag.energy(reading, [256])
    centred = pjdiag.energy(reading, [256], centred=True)
    # With equal weights the last row's mean is the free constant.
    one, other = (figure(found, "kernel_energy", **where) for found in (plain, centred))
    assert one == pytest.approx(other, rel=1e-9)
    causal = pjdiag.energy(reading, [256], LagWeights.CAUSAL)
    assert figure(causal, "r2", **where) != pytest.approx(figure(plain, "r2", **where), rel=1e-6)


def test_layers_that_share_a_table_have_the_same_figures(tmp_path):
    result = pjdiag.energy(reading_of(tmp_path, *[tabulated(TABLE)] * 3), [128])
    by_layer = [
        [row["kernel_energy"] for row in result.select(scope="layer", layer=layer)]
        for layer in range(3)
    ]
    assert by_layer[0] == by_layer[1] == by_layer[2]


def test_a_constant_table_has_no_shape(tmp_path):
    result = pjdiag.energy(reading_of(tmp_path, tabulated(np.full((32, 2), 7.3))), [128])
    assert {row["kernel_energy"] for row in result.rows} == {None}
    assert {row["r2"] for row in result.rows} == {None}
    assert all(row["degenerate"] for row in result.rows if row["sector"] != "affine")


def test_bad_values_exclude_their_head(tmp_path):
    table = TABLE.copy()
    table[3, 1] = np.nan
    part = tabulated(table, (BadTensor("relative_attention_bias.weight", 1, (1,)),))
    result = pjdiag.energy(reading_of(tmp_path, part), [128])
    assert result.inconclusive
    assert {row["head"] for row in result.select(scope="head")} == {0}


def test_only_the_past_of_a_bidirectional_bias_is_fitted(tmp_path):
    reading = reading_of(tmp_path, tabulated(TABLE), causal=False)
    result = pjdiag.energy(reading, [128])
    (warning,) = result.warnings
    assert warning == "layer 0: the bias of the keys after the query is not in the fit"
    past = bias_by_lag(TABLE, np.arange(128.0), True, 128)
    wanted = fit_table(past, np.ones(128), 512)
    assert figure(result, "r2", scope="head", head=0, bucket="all") == pytest.approx(wanted.r2[0])


@pytest.mark.parametrize("window", [FEWEST_LAGS - 1, MOST_LAGS + 1])
def test_a_window_that_cannot_be_fitted_is_skipped(tmp_path, window):
    result = pjdiag.energy(reading_of(tmp_path, tabulated(TABLE)), [window])
    assert result.rows == ()
    assert "is fitted over 32 to 262,144 lags" in result.skipped[0].reason


def test_a_rotary_layer_has_no_bias_and_is_pointed_elsewhere(tmp_path):
    result = pjdiag.energy(write_native(tmp_path / "m.safetensors", method="rope"))
    assert result.rows == ()
    assert "pjdiag spectrum" in result.skipped[0].reason


def test_an_unknown_train_length_is_asked_for(tmp_path):
    reading = replace(reading_of(tmp_path, tabulated(TABLE)), train_length=Sourced(None, "test"))
    with pytest.raises(UsageError, match="training length"):
        pjdiag.energy(reading, [128])


@pytest.mark.parametrize(
    ("diagnose", "reason"),
    [
        (pjdiag.mass, "no parameter mass"),
        (pjdiag.loo, "no orders or sectors"),
        (pjdiag.stability, "no amplitudes or phases"),
        (lambda reading: pjdiag.probe(reading, [64], decision=False), "no position codes"),
    ],
)
def test_the_other_diagnostics_of_a_bias_say_why_they_are_silent(tmp_path, diagnose, reason):
    reading = replace(reading_of(tmp_path, tabulated(TABLE), tabulated(TABLE)), eval_length=64)
    result = diagnose(reading)
    assert result.rows == ()
    assert [entry.layer for entry in result.skipped] == [0, 1]
    for entry in result.skipped:
        assert reason in entry.reason
        assert entry.reason.endswith("`pjdiag energy` fits it")
