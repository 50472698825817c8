"""Scale stability: the golden table, a checkpoint's own kernels, aggregation."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import pjdiag
from pjdiag.diagnostics.stability import stability_variants
from pjdiag.diagnostics.stability_figures import (
    amplitude_figures,
    far_positions,
    kernel_figures,
    phase_figures,
)
from pjdiag.errors import UsageError
from pjdiag.position.kernel import bias
from pjdiag.terms import Sector
from tests.diagnostics.kernels import DATA, kernels_of
from tests.native import full_native, random_raw, write_native

NAMES = {
    "bias_abs_max": "bias_max",
    "bias_rms": "bias_rms",
    "weighted_logit_std": "bias_std",
    "final_attention_entropy": "attention_entropy",
    "final_effective_support": "effective_support",
    "final_average_distance": "mean_distance",
    "qk_norm_proxy_max": "norm_max",
    "qk_norm_proxy_final": "norm_final",
    "qk_norm_proxy_mean": "norm_mean",
    "feature_abs_max": "amplitude_max",
    "int8_quant_error_tensor": "int8_error_tensor",
    "int8_quant_error_per_order": "int8_error_order",
    "int4_quant_error_tensor": "int4_error_tensor",
    "int4_quant_error_per_order": "int4_error_order",
    "local_phase_ratio_final": "local_phase_ratio_final",
    "local_phase_ratio_far_mean": "local_phase_ratio",
    "far_phase_span_radians": "far_phase_span",
    "far_local_collision_rate": "local_collision",
    "wrapped_phase_collision_rate": "wrapped_collision",
    "wrapped_phase_nearest_median": "wrapped_nearest",
    "far_gram_condition_number": "condition_number",
    "nonfinite_count": "non_finite",
}


def golden_rows():
    with (DATA / "stability_variants_float64.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def table():
    return stability_variants(sorted({int(row["eval_len"]) for row in golden_rows()}))


@pytest.mark.parametrize(
    "wanted", golden_rows(), ids=lambda row: f"{row['variant']}-{row['eval_len']}"
)
def test_golden_stability(table, wanted):
    (found,) = table.select(variant=wanted["variant"], eval_length=int(wanted["eval_len"]))
    for name, column in NAMES.items():
        value = float(wanted[name])
        if column == "condition_number":
            if value < 1e12:
                assert found[column] == pytest.approx(value, rel=1e-5), name
            else:
                assert found[column] > 1e12
        elif column == "wrapped_nearest" and value < 1e-10:
            assert abs(found[column] - value) < 1e-10
        else:
            assert found[column] == pytest.approx(value, rel=1e-6, abs=1e-12), name


def test_own_kernels_head_by_head(tmp_path):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=1))
    result = pjdiag.stability(reading, [512])
    lags = np.arange(512.0)
    for head, function in enumerate(bias(kernels_of(reading)[0], lags)):
        (row,) = result.select(scope="head", head=head, sector=None)
        assert row["bias_max"] == pytest.approx(np.abs(function).max())
        prior = np.exp(function - function.max())
        prior /= prior.sum()
        assert row["mean_distance"] == pytest.approx(prior @ lags)
        assert row["attention_entropy"] == pytest.approx(-(prior * np.log(prior)).sum())
        assert row["norm_max"] is None


def test_light_cone_phases_slow_down_and_fourier_phases_do_not(tmp_path):
    result = pjdiag.stability(full_native(tmp_path / "m.safetensors"), [32768])
    (fj,) = result.select(scope="model", sector="fj")
    (lc,) = result.select(scope="model", sector="lc")
    assert fj["local_phase_ratio"] == pytest.approx(1.0)
    assert lc["local_phase_ratio"] == pytest.approx(128 * np.log(2) / 16384, rel=0.01)
    assert lc["amplitude_max"] < 50


def test_aggregates(tmp_path):
    result = pjdiag.stability(full_native(tmp_path / "m.safetensors"), [256])
    heads = result.select(scope="head", sector="lc")
    (model,) = result.select(scope="model", sector="lc")
    assert model["bias_max"] == max(row["bias_max"] for row in heads)
    assert model["bias_rms"] == pytest.approx(np.mean([row["bias_rms"] for row in heads]))
    assert model["non_finite"] == 0


@pytest.mark.parametrize("command", ["energy", "loo", "probe", "stability"])
def test_overflow_is_named_and_left_out(tmp_path, command):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
    raw["fj_zeta_re"][1] = 1.7e308
    raw["fj_alpha_logits"][1] = 0
    raw["gate_logits"][1] = [50, 0, 0]
    raw["raw_fj_damping"][1] = -800.0
    path = write_native(tmp_path / "m.safetensors", [raw])
    settings = {"decision": False} if command == "probe" else {}
    result = getattr(pjdiag, command)(path, lengths=[32768], **settings)
    assert [(entry.head, entry.bad_values) for entry in result.skipped] == [(1, True)]
    assert "overflows" in result.skipped[0].reason
    assert result.inconclusive
    assert result.select(scope="head", head=0)


def test_useless_length(tmp_path):
    with pytest.raises(UsageError, match="length is 1"):
        pjdiag.stability(full_native(tmp_path / "m.safetensors"), [1])


def test_small_windows_are_finite():
    for length in (2, 3, 5):
        kernel = np.linspace(0, -1, length)
        assert np.isfinite(list(kernel_figures(kernel).values())).all()
        assert np.isfinite(list(amplitude_figures(kernel[:, None]).values())).all()
    assert far_positions(3).tolist() == [0, 1, 2]
    assert len(far_positions(100_000)) == 4096
    assert np.isfinite(list(phase_figures(np.arange(8.0), 0.3).values())).all()
