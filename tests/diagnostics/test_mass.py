"""Effective mass: golden values, the research code's checkpoint, aggregation, absence."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pjdiag
from pjdiag.position.jordan import jordan_query
from pjdiag.position.rotary import pj_rotary_query
from pjdiag.terms import Sector
from tests import oracle
from tests.diagnostics.kernels import DATA, golden, golden_reading, kernels_of, oracle_heads
from tests.native import full_native, random_raw, write_native


def masses(result, sector, **where):
    rows = [r for r in result.select(sector=sector, **where) if r["jet_order"] is not None]
    return [row["effective_mass"] for row in sorted(rows, key=lambda row: row["jet_order"])]


def figure(result, column, **where):
    (row,) = result.select(**where)
    return row[column]


def test_golden_masses(tmp_path):
    result = pjdiag.mass(golden_reading(tmp_path))
    wanted = golden()["diagnostics"]
    for head in range(2):
        where = {"scope": "head", "head": head}
        assert masses(result, "fj", **where) == pytest.approx(wanted["mass_fj"][head], rel=1e-12)
        assert masses(result, "lc", **where) == pytest.approx(wanted["mass_lc"][head], rel=1e-12)


def test_masses_of_every_head_agree_with_the_oracle(tmp_path):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors"))
    result = pjdiag.mass(reading)
    for layer, kernel in enumerate(kernels_of(reading)):
        for head, values in enumerate(oracle_heads(kernel)):
            for sector, wanted in oracle.masses(values).items():
                found = masses(result, sector, scope="head", layer=layer, head=head)
                assert found == pytest.approx(wanted, rel=1e-12)


def test_research_checkpoint():
    expected = json.loads((DATA / "full.expected.json").read_text())
    result = pjdiag.mass(pjdiag.load(DATA / "full.pt", allow_pickle=True))
    for layer, wanted in enumerate(expected["layers"]):
        for sector in ("fj", "lc"):
            for head, orders in enumerate(wanted["mass"][sector]):
                found = masses(result, sector, scope="head", layer=layer, head=head)
                assert found == pytest.approx(orders, rel=1e-5)
        for head, (gates, slope) in enumerate(zip(wanted["gates"], wanted["slope"], strict=True)):
            where = {"scope": "head", "layer": layer, "head": head, "jet_order": None}
            for sector, gate in zip(Sector, gates, strict=True):
                found = figure(result, "sector_gate", sector=sector.value, **where)
                assert found == pytest.approx(gate, rel=1e-5)
            affine = figure(result, "effective_mass", sector="affine", **where)
            assert affine == pytest.approx(gates[1] * slope, rel=1e-5)
    for sector in ("fj", "lc"):
        mean_over_heads = [mass / 8 for mass in masses(result, sector, scope="model")]
        assert mean_over_heads == pytest.approx(expected["mean_order_mass"][sector], rel=1e-5)
    for sector, gate in zip(Sector, expected["mean_gates_fj_affine_lc"], strict=True):
        found = figure(result, "sector_gate", scope="model", sector=sector.value, jet_order=None)
        assert found == pytest.approx(gate, rel=1e-5)


def test_aggregates_are_sums_that_are_divided_once(tmp_path):
    result = pjdiag.mass(full_native(tmp_path / "m.safetensors", layers=3, heads=2, seed=4))
    for sector in ("fj", "affine", "lc"):
        by_head = [
            masses(result, sector, scope="head", layer=layer, head=head)
            for layer in range(3)
            for head in range(2)
        ]
        assert masses(result, sector, scope="model") == pytest.approx(np.sum(by_head, axis=0))
    totals = {s: sum(masses(result, s, scope="model")) for s in ("fj", "affine", "lc")}
    for sector, total in totals.items():
        share = figure(result, "sector_share", scope="model", sector=sector, jet_order=None)
        assert share == pytest.approx(total / sum(totals.values()), rel=1e-12)
    orders = [
        figure(result, "order_share", scope="model", sector="fj+lc", jet_order=order)
        for order in range(4)
    ]
    pooled = np.add(masses(result, "fj", scope="model"), masses(result, "lc", scope="model"))
    assert orders == pytest.approx((pooled / pooled.sum()).tolist(), rel=1e-12)
    mean = figure(result, "mean_order", scope="model", sector="fj+lc", jet_order=None)
    assert mean == pytest.approx(float(pooled @ np.arange(4) / pooled.sum()), rel=1e-12)


def test_an_absent_sector_is_absent_and_its_noise_is_not_read(tmp_path):
    rng = np.random.default_rng(0)
    raw = random_raw(tuple(Sector), 2, 3, rng)
    raw["lc_zeta_re"][:] = np.nan
    raw["gate_logits"][:, 2] = np.nan
    path = write_native(tmp_path / "m.safetensors", [raw], method="fj_affine")
    result = pjdiag.mass(path)
    (row,) = result.select(scope="model", sector="lc")
    assert row["sector_gate"] == 0.0
    assert row["effective_mass"] is None
    assert row["sector_share"] is None
    shares = [
        figure(result, "sector_share", scope="model", sector=sector, jet_order=None)
        for sector in ("fj", "affine")
    ]
    assert sum(shares) == pytest.approx(1.0)
    assert not result.inconclusive


def test_nan_in_a_gate_excludes_that_head_and_names_the_tensor(tmp_path):
    rng = np.random.default_rng(1)
    raw = random_raw(tuple(Sector), 2, 3, rng)
    raw["gate_logits"][1, 0] = np.nan
    result = pjdiag.mass(write_native(tmp_path / "m.safetensors", [raw]))
    (entry,) = result.skipped
    assert (entry.layer, entry.head, entry.bad_values) == (0, 1, True)
    assert "blocks.0.attn.pj_bias.gate_logits" in entry.reason
    assert result.inconclusive
    assert result.select(scope="head", head=0)
    assert not result.select(scope="head", head=1)
    model, head = (result.select(scope=scope, sector="fj")[0] for scope in ("model", "head"))
    assert model["effective_mass"] == head["effective_mass"]


def test_all_heads_bad_leaves_no_row(tmp_path):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(1))
    raw["omega"][:] = np.inf
    result = pjdiag.mass(write_native(tmp_path / "m.safetensors", [raw]))
    assert result.rows == ()
    assert len(result.skipped) == 2
    assert result.inconclusive


def test_zero_amplitudes_have_mass_zero_and_no_share(tmp_path):
    raw = random_raw({Sector.FJ, Sector.LC}, 2, 3, np.random.default_rng(1))
    for name in ("fj_zeta_re", "fj_zeta_im", "lc_zeta_re", "lc_zeta_im"):
        raw[name][:] = 0
    result = pjdiag.mass(write_native(tmp_path / "m.safetensors", [raw], method="fj_lc"))
    (row,) = result.select(scope="model", sector="fj", jet_order=None)
    assert row["effective_mass"] == 0.0
    assert row["sector_share"] is None
    assert any("no mass" in warning for warning in result.warnings)


@pytest.mark.parametrize("method", ["rope", "rope_yarn", "pj_rotary", "jordan"])
def test_rope_like_heads_have_multiplicative_mass_only(tmp_path, method):
    extra = {}
    if method == "jordan":
        extra = {
            f"blocks.0.attn.positioner.raw_{name}": np.full((2, 1), 0.3, dtype=np.float32)
            for name in ("damping", "shear")
        }
    path = write_native(tmp_path / "m.safetensors", method=method, extra=extra)
    result = pjdiag.mass(path)
    assert {row["family"] for row in result.rows} == {"multiplicative"}
    assert all(row["sector_share"] is None for row in result.rows)
    total = figure(result, "effective_mass", scope="model", jet_order=None)
    assert total == pytest.approx(sum(masses(result, "fj", scope="model")))
    assert total > 0


def test_rope_mass_is_the_frobenius_norm_of_the_bilinear_forms(tmp_path):
    gain = np.linspace(0.5, 1.5, 16).astype(np.float32)
    path = write_native(
        tmp_path / "m.safetensors", method="rope", extra={"blocks.0.norm1.weight": gain}
    )
    weight = pjdiag.load(path).read("blocks.0.attn.qkv.weight").astype(np.float64) * gain
    result = pjdiag.mass(path)
    for head in range(2):
        total = 0.0
        for channel in range(4):
            q0, q1 = weight[8 * head + 2 * channel : 8 * head + 2 * channel + 2]
            k0, k1 = weight[16 + 8 * head + 2 * channel : 16 + 8 * head + 2 * channel + 2]
            cosine = np.outer(q0, k0) + np.outer(q1, k1)
            sine = np.outer(q0, k1) - np.outer(q1, k0)
            total += np.sqrt((cosine**2).sum() + (sine**2).sum()) / np.sqrt(8)
        found = figure(result, "effective_mass", scope="head", head=head, jet_order=None)
        assert found == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("method", ["pj_rotary", "jordan"])
def test_jet_masses_are_the_sizes_of_the_forms_that_the_scores_contain(tmp_path, method):
    shear = np.asarray([[0.7], [-0.4]], dtype=np.float32)
    extra = {}
    if method == "jordan":
        prefix = "blocks.0.attn.positioner"
        extra = {f"{prefix}.raw_damping": np.full((2, 1), -60.0), f"{prefix}.raw_shear": shear}
    path = write_native(
        tmp_path / "m.safetensors", method=method, max_order=1, embed_dim=8, extra=extra
    )
    weight = pjdiag.load(path).read("blocks.0.attn.qkv.weight").astype(np.float64)
    result = pjdiag.mass(path)
    positions, omega = np.asarray([0.0, 1.0, 2.0, 5.0, 9.0, 40.0]), np.ones(1)
    for head in range(2):
        q, k = (weight[8 * part + 4 * head : 8 * part + 4 * head + 4] for part in range(2))
        if method == "jordan":
            block = (omega, np.zeros(1), shear[head].astype(np.float64) / 128, 2)
            turned = jordan_query(np.eye(4)[:, None, :] + 0 * positions[:, None], positions, *block)
        else:
            turned = pj_rotary_query(
                np.eye(4)[:, None, :] + 0 * positions[:, None], positions, omega, 1.0, 128.0
            )
        # Keys at position 0 are not turned: the form at lag d is q' turned(d) k.
        forms = np.einsum("ie,itj,jf->tef", q, turned, k) / 2.0
        basis = np.stack(
            [(positions / 128) ** p * wave(positions) for p in (0, 1) for wave in (np.cos, np.sin)],
            axis=1,
        )
        fitted, residual, *_ = np.linalg.lstsq(basis, forms.reshape(6, -1), rcond=None)
        assert residual.max() < 1e-20
        wanted = [np.linalg.norm(fitted[:2]), np.linalg.norm(fitted[2:])]
        found = masses(result, "fj", scope="head", head=head)
        assert found == pytest.approx(wanted, rel=1e-6)


def test_families_are_never_pooled(tmp_path):
    raw = random_raw({Sector.AFFINE}, 2, 0, np.random.default_rng(1))
    path = write_native(tmp_path / "m.safetensors", [raw], method="rope_affine")
    result = pjdiag.mass(path)
    share = figure(
        result, "sector_share", scope="model", family="additive", sector="affine", jet_order=None
    )
    assert share == 1.0
    assert result.select(family="multiplicative", scope="model")


def test_pope_says_that_its_mass_needs_data(tmp_path):
    result = pjdiag.mass(write_native(tmp_path / "m.safetensors", method="pope"))
    assert result.rows == ()
    assert result.inconclusive
    assert "needs data" in result.skipped[0].reason
