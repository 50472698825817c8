"""Every value of the reference file, on both backends and by the oracle, to 1e-12."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjdiag.position.coordinates import phase, rapidity, velocity
from pjdiag.position.kernel import (
    JetParameters,
    PositionKernel,
    affine,
    bias,
    components,
)
from pjdiag.position.rotary import pj_rotary_frequencies, pj_rotary_key, pj_rotary_query
from pjdiag.terms import Rho, Sector
from tests import oracle
from tests.position.backends import AsArray

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "pj_reference_values.json").read_text())
KERNEL = GOLDEN["kernel"]
PJ_ROTARY = GOLDEN["pj_rotary"]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12, atol=1e-12)


def golden_kernel(array: AsArray, rho: Rho = Rho.LINEAR) -> PositionKernel:
    jet = JetParameters(*(array(KERNEL[name]) for name in ("alpha", "zeta_re", "zeta_im")))
    return PositionKernel(
        train_length=KERNEL["L"],
        rho=rho,
        gates=array(KERNEL["gates_fj_affine_lc"]),
        omega=array(KERNEL["omega"]),
        fj=jet,
        lc=jet,
        damping=array(KERNEL["damping"]),
        slope=array(KERNEL["slope"]),
    )


def golden_head(index: int, rho: str = "linear") -> oracle.Head:
    zeta = [
        complex(re, im)
        for re, im in zip(KERNEL["zeta_re"][index], KERNEL["zeta_im"][index], strict=True)
    ]
    alpha = KERNEL["alpha"][index]
    return oracle.Head(
        train_length=KERNEL["L"],
        omega=KERNEL["omega"][index],
        gates=tuple(KERNEL["gates_fj_affine_lc"][index]),
        fj_alpha=alpha,
        fj_zeta=zeta,
        lc_alpha=alpha,
        lc_zeta=zeta,
        damping=KERNEL["damping"][index],
        slope=KERNEL["slope"][index],
        rho=rho,
    )


def test_coordinates(array: AsArray) -> None:
    functions = {"rapidity": rapidity, "phase": phase, "velocity": velocity}
    for entry in GOLDEN["coordinates"]:
        for name, function in functions.items():
            close(function(array([entry["lag"]]), entry["L"]), [entry[name]])


@pytest.mark.parametrize("sector", [Sector.FJ, Sector.LC])
def test_components(array: AsArray, sector: Sector) -> None:
    found = components(golden_kernel(array), sector, array(KERNEL["lags"]))
    close(found, KERNEL[f"{sector.value}_components"])


@pytest.mark.parametrize("rho", list(Rho))
def test_affine(array: AsArray, rho: Rho) -> None:
    found = affine(golden_kernel(array, rho), array(KERNEL["lags"]))
    close(found, KERNEL[f"affine_{rho.value}"])


def test_bias(array: AsArray) -> None:
    close(bias(golden_kernel(array), array(KERNEL["lags"])), KERNEL["bias"])


def test_pj_rotary(array: AsArray) -> None:
    query, key = array(PJ_ROTARY["query"]), array(PJ_ROTARY["key"])
    positions = array(range(len(PJ_ROTARY["query"])))
    inv_freq = pj_rotary_frequencies(query.shape[-1], PJ_ROTARY["base"], positions)
    at = positions, inv_freq, PJ_ROTARY["eta"], PJ_ROTARY["train_length"]
    query_out, key_out = pj_rotary_query(query, *at), pj_rotary_key(key, *at)
    close(query_out, PJ_ROTARY["query_out"])
    close(key_out, PJ_ROTARY["key_out"])
    close(query_out @ key_out.T, PJ_ROTARY["scores"])


@pytest.mark.parametrize("index", range(len(KERNEL["omega"])))
def test_oracle_kernel(index: int) -> None:
    head = golden_head(index)
    for name, component in (("fj", oracle.fj_component), ("lc", oracle.lc_component)):
        found = [[component(head, r, d) for d in KERNEL["lags"]] for r in head.orders]
        close(found, KERNEL[f"{name}_components"][index])
    for rho in ("linear", "lightcone"):
        found = [oracle.affine_component(golden_head(index, rho), d) for d in KERNEL["lags"]]
        close(found, KERNEL[f"affine_{rho}"][index])
    close([oracle.bias(head, d) for d in KERNEL["lags"]], KERNEL["bias"][index])


@pytest.mark.parametrize("index", range(len(KERNEL["omega"])))
def test_oracle_diagnostics(index: int) -> None:
    expected = {
        name: value[index] for name, value in GOLDEN["diagnostics"].items() if type(value) is list
    }
    head = golden_head(index)
    lags = range(GOLDEN["diagnostics"]["window"])
    masses = oracle.masses(head)
    close(masses["fj"], expected.pop("mass_fj"))
    close(masses["lc"], expected.pop("mass_lc"))
    for name, sectors in (
        ("energy_fj_orders_over_fj_sum", "fj"),
        ("energy_lc_orders_over_lc_sum", "lc"),
        ("energy_fj_plus_lc_per_order", "fj+lc"),
    ):
        # The file's denominators carry an added 1e-12.
        whole = oracle.norm([sum(oracle.gated_orders(head, sectors, lag)) for lag in lags])
        energies = oracle.functional_energy(head, sectors, lags)
        close([energy * whole / (whole + 1e-12) for energy in energies], expected.pop(name))
    found = [oracle.loo_delta_mse(head, order, lags) for order in head.orders]
    close(found, expected.pop("loo_delta_mse_target_is_full_kernel"))
    assert not expected


def test_oracle_coordinates_and_rotary() -> None:
    for entry in GOLDEN["coordinates"]:
        for name in ("rapidity", "phase", "velocity"):
            close(getattr(oracle, name)(entry["lag"], entry["L"]), entry[name])
    shared = PJ_ROTARY["base"], PJ_ROTARY["eta"], PJ_ROTARY["train_length"]
    for role in ("query", "key"):
        found = [oracle.pj_rotary(x, t, *shared, role) for t, x in enumerate(PJ_ROTARY[role])]
        close(found, PJ_ROTARY[f"{role}_out"])
