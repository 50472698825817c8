"""docs/sample.md says in words what these figures are."""

from __future__ import annotations

import pytest

import pjdiag

LENGTH = 32768


@pytest.fixture(scope="module")
def stability():
    result = pjdiag.stability(pjdiag.sample(), [LENGTH])
    return lambda sector, layer=None: result.select(
        sector=sector, layer=layer, scope="model" if layer is None else "layer"
    )[0]


@pytest.fixture(scope="module")
def probe():
    return pjdiag.probe(pjdiag.sample(), [LENGTH])


def test_recency_takes_over(stability):
    assert stability("fj")["bias_rms"] < 0.2
    assert stability("fj", layer=0)["norm_final"] == 0
    assert stability("affine")["bias_rms"] > 1000 * stability("fj")["bias_rms"]
    assert stability(None, layer=1)["effective_support"] == pytest.approx(20, abs=5)
    assert stability(None, layer=0)["effective_support"] > 1000


def test_the_light_cone_keeps_its_size_and_slows_down(stability):
    lc = stability("lc")
    (mass,) = pjdiag.mass(pjdiag.sample()).select(scope="model", sector="lc", jet_order=None)
    assert lc["amplitude_max"] <= mass["effective_mass"]
    assert lc["local_phase_ratio"] == pytest.approx(0.005, abs=0.001)
    assert stability("fj")["condition_number"] == float("inf")


def test_resolution_is_in_the_digits_that_quantisation_removes(probe):
    def far(name, **where):
        rows = probe.select(**where)
        return [row[name] for row in rows if row["bucket"] not in ("train", "x1_4", "x4_16")]

    assert min(far("top1", scope="model", precision="fp32")) == 1.0
    assert min(far("hard_pair_accuracy", scope="model", precision="fp32")) >= 0.97
    assert min(far("margin", scope="model", precision="fp32")) < 1e-5
    int8, int4 = (far("top1", scope="model", precision=name) for name in ("int8", "int4"))
    assert 0.5 < sum(int8) / len(int8) < 1
    assert sum(int4) / len(int4) < 0.5
    assert max(far("top1", scope="layer", layer=0, precision="fp32")) < 0.7
    assert min(far("top1", scope="layer", layer=1, precision="fp32")) == 1.0


def test_no_order_but_0_matters():
    result = pjdiag.loo(pjdiag.sample(), lengths=[128, LENGTH])
    for order in (1, 2, 3):
        for row in result.select(scope="model", removed=f"order:{order}"):
            assert row["prior_kl"] < 1e-9
    near, far = result.select(scope="model", removed="order:3")
    assert far["loo_delta_mse"] > 1e6 * near["loo_delta_mse"]
    (affine,) = result.select(scope="model", removed="sector:affine", eval_length=LENGTH)
    assert affine["prior_kl"] == pytest.approx(1.0, abs=0.1)
