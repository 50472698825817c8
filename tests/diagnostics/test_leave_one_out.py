"""Leave one out: golden values, the oracle, the stable prior KL."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pjdiag
from pjdiag.diagnostics.attention_prior import prefix_logsumexp, prior_kl
from pjdiag.errors import UsageError
from pjdiag.terms import Sector
from tests import oracle
from tests.diagnostics.kernels import golden, golden_reading, kernels_of, oracle_heads
from tests.native import full_native, random_raw, write_native


def test_golden_delta_mse(tmp_path):
    wanted = golden()["diagnostics"]
    result = pjdiag.loo(golden_reading(tmp_path), lengths=[wanted["window"]])
    for head, by_order in enumerate(wanted["loo_delta_mse_target_is_full_kernel"]):
        for order, value in enumerate(by_order):
            (row,) = result.select(scope="head", head=head, removed=f"order:{order}")
            assert row["loo_delta_mse"] == pytest.approx(value, rel=1e-12)


def test_every_removal_agrees_with_the_oracle(tmp_path):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=1, seed=2))
    window = 90
    result = pjdiag.loo(reading, lengths=[window])
    lags = [float(lag) for lag in range(window)]
    for head, values in enumerate(oracle_heads(kernels_of(reading)[0])):
        kernel = [oracle.bias(values, lag) for lag in lags]
        removed = {
            f"{name}:{order}": [oracle.gated_orders(values, sectors, lag)[order] for lag in lags]
            for name, sectors in (("order", "fj+lc"), ("fj", "fj"), ("lc", "lc"))
            for order in range(4)
        }
        for sector in ("fj", "lc"):
            removed[f"sector:{sector}"] = [
                math.fsum(oracle.gated_orders(values, sector, lag)) for lag in lags
            ]
        removed["sector:affine"] = [
            values.gates[1] * oracle.affine_component(values, lag) for lag in lags
        ]
        found = {row["removed"]: row for row in result.select(scope="head", head=head)}
        assert set(found) == set(removed)
        for name, component in removed.items():
            square = math.fsum(c * c for c in component) / window
            assert found[name]["loo_delta_mse"] == pytest.approx(square, rel=1e-10)
            divergence = oracle.prior_kl(kernel, component)
            assert found[name]["prior_kl"] == pytest.approx(divergence, rel=1e-8, abs=1e-13)


def test_a_given_target(tmp_path):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=1, seed=2))
    target = lambda lags: -0.01 * lags  # noqa: E731
    result = pjdiag.loo(reading, lengths=[64], target=target)
    lags = [float(lag) for lag in range(64)]
    for head, values in enumerate(oracle_heads(kernels_of(reading)[0])):
        for order in range(4):
            (row,) = result.select(scope="head", head=head, removed=f"order:{order}")
            wanted = oracle.loo_delta_mse(values, order, lags, target=[-0.01 * lag for lag in lags])
            assert row["loo_delta_mse"] == pytest.approx(wanted, rel=1e-9, abs=1e-13)
    assert not any("energy restated" in warning for warning in result.warnings)


def test_without_a_target_the_output_says_that_it_restates_energy(tmp_path):
    result = pjdiag.loo(full_native(tmp_path / "m.safetensors"), lengths=[64])
    assert any("energy restated" in warning for warning in result.warnings)


def test_one_order(tmp_path):
    result = pjdiag.loo(full_native(tmp_path / "m.safetensors"), order=2)
    assert {row["removed"] for row in result.rows} == {"order:2", "fj:2", "lc:2"}
    heads = result.select(scope="head", removed="fj:2")
    (model,) = result.select(scope="model", removed="fj:2")
    assert model["prior_kl"] == pytest.approx(np.mean([row["prior_kl"] for row in heads]))


@pytest.mark.parametrize("order", [4, 99, -1])
def test_an_order_out_of_range(tmp_path, order):
    with pytest.raises(UsageError, match=rf"order {order} is out of range.*orders 0 to 3"):
        pjdiag.loo(full_native(tmp_path / "m.safetensors"), order=order)


def test_affine_only_has_no_order(tmp_path):
    raw = random_raw({Sector.AFFINE}, 2, 0, np.random.default_rng(0))
    path = write_native(tmp_path / "m.safetensors", [raw], method="affine")
    assert {row["removed"] for row in pjdiag.loo(path).rows} == {"sector:affine"}
    with pytest.raises(UsageError, match="affine only"):
        pjdiag.loo(path, order=0)


logits = st.floats(-60, 60)


@given(
    values=hnp.arrays(np.float64, st.integers(1, 30), elements=logits),
    data=st.data(),
)
def test_prior_kl_is_the_plain_definition(values, data):
    change = data.draw(hnp.arrays(np.float64, values.shape, elements=logits))
    wanted = oracle.prior_kl(values.tolist(), change.tolist())
    assert prior_kl(values, change) == pytest.approx(wanted, rel=1e-9, abs=1e-11)


@given(st.floats(-1e3, 1e3), st.integers(1, 50))
def test_a_constant_changes_nothing(shift, length):
    values = np.linspace(0, 5, length)
    assert prior_kl(values, np.full(length, shift)) == 0.0


def test_small_changes_keep_their_digits():
    # KL of a change e C is e^2/2 times the variance of C, to first order in e.
    rng = np.random.default_rng(0)
    kernel, change = rng.normal(size=50), rng.normal(size=50)
    weights = np.exp(kernel)
    variance = []
    for i in range(50):
        p = weights[: i + 1] / weights[: i + 1].sum()
        mean = p @ change[: i + 1]
        variance.append(p @ (change[: i + 1] - mean) ** 2)
    for size in (1e-6, 1e-9):
        wanted = size**2 / 2 * np.mean(variance)
        assert prior_kl(kernel, size * change) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    "kernel",
    [
        np.linspace(0, -4000, 3000),
        np.linspace(0, 4000, 3000),
        np.sin(np.arange(3000)) * 2000,
    ],
)
def test_prefix_sums_survive_any_range(kernel):
    assert prefix_logsumexp(kernel) == pytest.approx(np.logaddexp.accumulate(kernel), rel=1e-12)
    assert math.isfinite(prior_kl(kernel, np.cos(np.arange(3000)) * 500))
