"""Fixed recovery against bases written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pjdiag.lab.experiments.base import Setting
from pjdiag.lab.experiments.fixed_recovery import BASES, EXPERIMENT, design, fit
from pjdiag.lab.experiments.kernel_targets import TARGETS
from pjdiag.lab.experiments.parts import Parts

L = 1024
W = 2 * math.pi * 17 / L


def by_hand(name: str, d: float) -> float:
    """The targets, written out without arrays."""
    x, turn = d / L, math.cos(W * d)
    beta = d / math.hypot(d, L)
    core = math.cos(W * L * math.asinh(x)) * (1 + 0.4 * beta + 0.2 * beta * beta)
    return {
        "phase": turn,
        "linear": x,
        "first_jet": x * turn,
        "second_jet": x**2 * math.exp(-0.1 * x) * turn,
        "third_jet": x**3 * math.exp(-0.1 * x) * turn,
        "recency_weak_jet": -0.4 * x + 0.15 * x**2 * turn,
        "lc_core": core,
        "lc_affine": core - 0.25 * math.asinh(x),
    }[name]


def columns_by_hand(basis: str, d: float) -> list[float]:
    x, found = d / L, []
    if "lc" in basis:
        beta, turn = d / math.hypot(d, L), W * L * math.asinh(x)
        found = [beta**r * f(turn) for r in range(4) for f in (math.cos, math.sin)]
    elif "fj" in basis:
        size = math.exp(-0.1 * x)
        found = [x**r * size * f(W * d) for r in range(4) for f in (math.cos, math.sin)]
    elif basis == "phase":
        found = [math.cos(W * d), math.sin(W * d)]
    if "affine" in basis:
        found.append(math.asinh(x) if "lc" in basis else x)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_those_of_the_formulas(name):
    lags = np.asarray([0.0, 1.0, 17.0, 500.0, 1023.0, 8191.0])
    expected = [by_hand(name, float(d)) for d in lags]
    assert TARGETS[name].kernel(lags) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("basis", BASES)
def test_r2_is_that_of_a_projection(name, basis):
    """A basis spans the same with or without r!, and projections need no standardising."""
    matrix = np.asarray([[1.0, *columns_by_hand(basis, d)] for d in range(L)])
    wanted = np.asarray([by_hand(name, d) for d in range(L)])
    ortho, _ = np.linalg.qr(matrix)
    rest = wanted - ortho @ (ortho.T @ wanted)
    expected = 1 - (rest @ rest) / ((wanted - wanted.mean()) @ (wanted - wanted.mean()))
    assert fit(TARGETS[name], basis)["r2_inside"] == pytest.approx(expected, abs=1e-9)


def test_beyond_the_training_length_a_kernels_own_basis_goes_on():
    for target in TARGETS.values():
        assert fit(target, target.basis)["r2_outside"] > 0.98
    assert fit(TARGETS["lc_core"], "fj")["r2_outside"] < 0
    assert fit(TARGETS["phase"], "lc")["r2_outside"] < 0


def test_condition_numbers_grow_with_the_orders():
    lags = np.arange(L, dtype=np.float64)
    numbers = {basis: fit(TARGETS["phase"], basis)["condition_number"] for basis in BASES}
    assert numbers["affine"] == pytest.approx(1)
    assert numbers["phase"] == pytest.approx(1, abs=1e-6)
    assert 50 < numbers["fj"] < numbers["lc"] < 200
    assert design("fj_affine", lags).shape == (L, 9)


def test_every_claim_comes_out(tmp_path):
    setting = Setting(tmp_path, None, quick=True, workers=1, report=print)
    rows = EXPERIMENT.run(setting, Parts(tmp_path / "parts", {}))
    assert len(rows) == len(TARGETS) * len(BASES) * 3
    for claim in EXPERIMENT.claims:
        assert claim.finding(rows).holds is True, claim.finding(rows).text


@pytest.mark.parametrize("index", [0, 1])
def test_a_claim_that_does_not_come_out_says_so(tmp_path, index):
    setting = Setting(tmp_path, None, quick=True, workers=1, report=print)
    rows = EXPERIMENT.run(setting, Parts(tmp_path / "parts", {}))
    spoilt = [
        {**row, "value": 0.5}
        if (row["subject"], row["variant"]) == ("recency_weak_jet", "fj_affine")
        else row
        for row in rows
    ]
    finding = EXPERIMENT.claims[index].finding(spoilt)
    assert finding.holds is False
    assert "0.5000" in finding.text
