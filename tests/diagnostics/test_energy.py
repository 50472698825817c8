"""Functional energy: golden values, the oracle, windows, buckets, degenerate denominators."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pjdiag
from pjdiag.adapters import MultiplicativeSpectrum, Sourced
from pjdiag.diagnostics import lags as lag_module
from pjdiag.errors import UsageError
from pjdiag.position.kernel import gated_components
from pjdiag.terms import LagWeights, Mechanism, Sector, lag_buckets
from tests import oracle
from tests.diagnostics.kernels import golden, golden_reading, kernels_of, oracle_heads
from tests.native import full_native, random_raw, write_native


def column(result, name, **where):
    rows = [row for row in result.select(**where) if row["jet_order"] is not None]
    return [row[name] for row in sorted(rows, key=lambda row: row["jet_order"])]


GOLDEN_GUARD = 1e-12
"""The golden energies were divided by ``||b_S|| + 1e-12``; ours by ``||b_S||``, as defined."""


def test_golden_energies(tmp_path):
    wanted = golden()["diagnostics"]
    reading = golden_reading(tmp_path)
    result = pjdiag.energy(reading, [wanted["window"]])
    lags = [float(lag) for lag in range(wanted["window"])]
    for head, values in enumerate(oracle_heads(kernels_of(reading)[0])):
        where = {"scope": "head", "head": head, "bucket": "all"}
        for sector, name in (
            ("fj", "energy_fj_orders_over_fj_sum"),
            ("lc", "energy_lc_orders_over_lc_sum"),
            ("fj+lc", "energy_fj_plus_lc_per_order"),
        ):
            norm = oracle.norm([sum(oracle.gated_orders(values, sector, lag)) for lag in lags])
            golden_values = [value * (1 + GOLDEN_GUARD / norm) for value in wanted[name][head]]
            found = column(result, "functional_energy", sector=sector, **where)
            assert found == pytest.approx(golden_values, rel=1e-12)


@pytest.mark.parametrize("weights", list(LagWeights))
def test_energies_agree_with_the_oracle_in_windows_and_buckets(tmp_path, weights):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=1))
    window = 600
    result = pjdiag.energy(reading, [window], weights)
    heads = oracle_heads(kernels_of(reading)[0])
    spans = {"all": range(window)}
    spans |= {b.name: range(b.first, b.last + 1) for b in lag_buckets(128, window)}
    for bucket, span in spans.items():
        lags = [float(lag) for lag in span]
        weight = [window - lag for lag in lags] if weights == LagWeights.CAUSAL else None
        for head, values in enumerate(heads):
            where = {"scope": "head", "head": head, "bucket": bucket}
            for sector in ("fj", "lc", "fj+lc"):
                assert column(result, "functional_energy", sector=sector, **where) == (
                    pytest.approx(oracle.functional_energy(values, sector, lags, weight), rel=1e-9)
                )
                assert column(result, "kernel_energy", sector=sector, **where) == (
                    pytest.approx(oracle.kernel_energy(values, sector, lags, weight), rel=1e-9)
                )


def test_shares_sum_to_one(tmp_path):
    result = pjdiag.energy(full_native(tmp_path / "m.safetensors"), [128, 4096])
    for group in {
        (row["window"], row["bucket"], row["scope"], row["layer"], row["head"])
        for row in result.rows
    }:
        where = dict(zip(("window", "bucket", "scope", "layer", "head"), group, strict=True))
        whole = sum(
            sum(column(result, "energy_share", sector=sector, **where))
            for sector in ("fj", "affine", "lc")
        )
        assert whole == pytest.approx(1.0)
        assert sum(column(result, "energy_share", sector="fj+lc", **where)) == pytest.approx(1.0)


@given(scale=st.floats(0.01, 100.0))
def test_scaling_the_amplitudes_leaves_functional_energy(tmp_path_factory, scale):
    folder = tmp_path_factory.mktemp("scaled")
    raw = random_raw({Sector.FJ, Sector.LC}, 2, 3, np.random.default_rng(5))
    scaled = {n: v * scale if "zeta" in n else v for n, v in raw.items()}
    results = [
        pjdiag.energy(write_native(folder / "m.safetensors", [values], method="fj_lc"), [256])
        for values in (raw, scaled)
    ]
    for name in ("functional_energy", "kernel_energy", "energy_share"):
        before, after = ([row[name] for row in result.rows] for result in results)
        assert [v is None for v in before] == [v is None for v in after]
        kept = [(b, a) for b, a in zip(before, after, strict=True) if b is not None]
        assert [a for _, a in kept] == pytest.approx([b for b, _ in kept], rel=1e-9)


def test_orders_that_cancel_are_flagged_not_divided_by(tmp_path):
    raw = random_raw({Sector.FJ, Sector.LC}, 1, 0, np.random.default_rng(5))
    raw["gate_logits"][:] = 0
    raw["raw_fj_damping"][:] = -800.0
    for name in ("fj_zeta_re", "fj_zeta_im"):
        raw[name][:] = 1.0
    for name in ("lc_zeta_re", "lc_zeta_im"):
        raw[name][:] = -1.0
    raw["omega"][:] = 0.0
    path = write_native(
        tmp_path / "m.safetensors", [raw], method="fj_lc", num_heads=1, max_order=0, embed_dim=8
    )
    result = pjdiag.energy(path, [128])
    (row,) = result.select(scope="model", sector="fj+lc", jet_order=0, bucket="all")
    assert row["degenerate"]
    assert row["functional_energy"] is None
    (fj,) = result.select(scope="model", sector="fj", jet_order=0, bucket="all")
    assert fj["functional_energy"] == pytest.approx(1.0)
    assert fj["kernel_energy"] is None


def test_chunks_make_no_difference(tmp_path, monkeypatch):
    path = full_native(tmp_path / "m.safetensors")
    whole = pjdiag.energy(path, [5000])
    monkeypatch.setattr(
        import_module("pjdiag.diagnostics.energy_squares"),
        "lag_chunks",
        lambda first, last: lag_module.lag_chunks(first, last, size=777),
    )
    pieces = pjdiag.energy(path, [5000])
    for name in ("functional_energy", "kernel_energy"):
        found, wanted = (
            [r[name] for r in result.rows if r[name] is not None] for result in (pieces, whole)
        )
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("lengths", [[0], [1], [-5], []])
def test_useless_lengths(tmp_path, lengths):
    with pytest.raises(UsageError, match="length"):
        pjdiag.energy(full_native(tmp_path / "m.safetensors"), lengths)


@pytest.mark.parametrize("weights", list(LagWeights))
def test_centred_energies_are_those_of_centred_rows(tmp_path, weights):
    reading = pjdiag.read(full_native(tmp_path / "m.safetensors", layers=1))
    window = 300
    result = pjdiag.energy(reading, [window], weights, centred=True)
    lags = np.arange(float(window))
    kernel = kernels_of(reading)[0]
    parts = {s: gated_components(kernel, s, lags) for s in kernel.sectors}
    full = sum(part.sum(axis=1) for part in parts.values())

    def square(function, first, last):
        rows = range(window) if weights == LagWeights.CAUSAL else [window - 1]
        return sum(
            ((function[: i + 1] - function[: i + 1].mean())[first : last + 1] ** 2).sum()
            for i in rows
        )

    for name, first, last in (("all", 0, window - 1), ("train", 1, 127), ("x1_4", 128, 299)):
        for head in range(2):
            where = {"scope": "head", "head": head, "bucket": name}
            whole = square(full[head], first, last)
            for sector in ("fj", "lc"):
                own = parts[Sector(sector)][head]
                wanted = [np.sqrt(square(part, first, last) / whole) for part in own]
                found = column(result, "kernel_energy", sector=sector, **where)
                assert found == pytest.approx(wanted, rel=1e-9)
                jets = square(own.sum(axis=0), first, last)
                wanted = [np.sqrt(square(part, first, last) / jets) for part in own]
                found = column(result, "functional_energy", sector=sector, **where)
                assert found == pytest.approx(wanted, rel=1e-9)


def test_a_constant_has_no_centred_energy(tmp_path):
    raw = random_raw({Sector.FJ, Sector.AFFINE}, 1, 0, np.random.default_rng(5))
    raw["omega"][:] = 0.0
    raw["raw_fj_damping"][:] = -800.0
    path = write_native(
        tmp_path / "m.safetensors",
        [raw],
        method="fj_affine",
        num_heads=1,
        max_order=0,
        embed_dim=8,
    )
    (row,) = pjdiag.energy(path, [64], centred=True).select(
        scope="model", sector="fj", jet_order=0, bucket="all"
    )
    assert row["kernel_energy"] == pytest.approx(0.0, abs=1e-9)
    (plain,) = pjdiag.energy(path, [64]).select(
        scope="model", sector="fj", jet_order=0, bucket="all"
    )
    assert plain["kernel_energy"] > 0.01


def test_an_unknown_mechanism_is_not_said_to_have_no_bias(tmp_path):
    unknown = Sourced(None, "unknown")
    part = MultiplicativeSpectrum(
        Mechanism.UNKNOWN, *[unknown] * 6, unread_reason="undetermined: rope or alibi"
    )
    reading = golden_reading(tmp_path)
    layer = replace(reading.layers[0], parts=(part,))
    reasons = [entry.reason for entry in pjdiag.energy(replace(reading, layers=(layer,))).skipped]
    assert reasons == ["undetermined: rope or alibi"]
