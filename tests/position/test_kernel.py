"""The PJ-bias kernel: against the oracle, the shift algebra, gates and absent sectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjdiag.position.kernel import (
    JetParameters,
    PositionKernel,
    affine,
    bias,
    components,
    envelope,
    gated_components,
    mass,
)
from pjdiag.position.parameters import (
    SlopeForm,
    effective_kernel,
    gates_from_logits,
    parameter_shapes,
)
from pjdiag.terms import Rho, Sector
from tests import oracle
from tests.position.backends import BACKENDS, AsArray, numpy_array

TRAIN_LENGTH = 128
ORDERS = 4
LAGS = [0.0, 1.0, 7.0, 127.0, 128.0, 1000.0, 4095.0, 32767.0]

seeds = st.integers(0, 2**32 - 1)
sector_sets = st.sets(st.sampled_from(list(Sector)), min_size=1)


def random_raw(seed: int, heads: int = 2) -> dict[str, np.ndarray]:
    """All raw parameters, noise in those that a sector set leaves unused."""
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(set(Sector), heads, ORDERS - 1)
    raw = {name: rng.normal(size=shape) * 2 for name, shape in shapes.items()}
    raw["omega"] = rng.uniform(0, math.pi, size=heads)
    return raw


def oracle_head(
    raw: dict[str, np.ndarray],
    sectors: set[Sector],
    index: int,
    rho: Rho = Rho.LINEAR,
    signed: bool = False,
) -> oracle.Head:
    """The same raw parameters, made effective by the oracle."""
    order = (Sector.FJ, Sector.AFFINE, Sector.LC)
    enabled = [sector for sector in order if sector in sectors]
    logits = raw["gate_logits"][index].tolist()
    gates = dict(
        zip(enabled, oracle.softmax([logits[order.index(s)] for s in enabled]), strict=True)
    )

    def zeta(name: str) -> list[complex]:
        parts = zip(
            raw[f"{name}_zeta_re"][index].tolist(),
            raw[f"{name}_zeta_im"][index].tolist(),
            strict=True,
        )
        return [complex(re, im) for re, im in parts]

    slope = float(raw["raw_affine_slope"][index])
    return oracle.Head(
        train_length=TRAIN_LENGTH,
        omega=float(raw["omega"][index]),
        gates=tuple(gates.get(sector, 0.0) for sector in order),
        fj_alpha=oracle.softmax(raw["fj_alpha_logits"][index].tolist()),
        fj_zeta=zeta("fj"),
        lc_alpha=oracle.softmax(raw["lc_alpha_logits"][index].tolist()),
        lc_zeta=zeta("lc"),
        damping=oracle.softplus(float(raw["raw_fj_damping"][index])),
        slope=slope if signed else oracle.softplus(slope),
        rho=rho.value,
    )


def build(raw: dict[str, np.ndarray], array: AsArray, *args: Any, **kwargs: Any) -> PositionKernel:
    return effective_kernel({name: array(value) for name, value in raw.items()}, *args, **kwargs)


@given(seeds, sector_sets, st.sampled_from(list(Rho)), st.sampled_from(list(SlopeForm)))
def test_bias_and_mass_against_the_oracle(
    seed: int, sectors: set[Sector], rho: Rho, slope_form: SlopeForm
) -> None:
    raw = random_raw(seed)
    for array in BACKENDS.values():
        kernel = build(raw, array, sectors, TRAIN_LENGTH, rho, slope_form)
        found = np.asarray(bias(kernel, array(LAGS)))
        for index in range(kernel.num_heads):
            head = oracle_head(raw, sectors, index, rho, slope_form == SlopeForm.SIGNED)
            expected = [oracle.bias(head, lag) for lag in LAGS]
            np.testing.assert_allclose(found[index], expected, rtol=1e-10, atol=1e-10)
            for sector in sectors:
                np.testing.assert_allclose(
                    np.asarray(mass(kernel, sector)[index]),
                    oracle.masses(head)[sector.value],
                    rtol=1e-12,
                )


@given(seeds, sector_sets)
def test_gates_sum_to_one_over_the_enabled_sectors(seed: int, sectors: set[Sector]) -> None:
    logits = np.random.default_rng(seed).normal(size=(5, 3)) * 20
    for array in BACKENDS.values():
        gates = np.asarray(gates_from_logits(array(logits), sectors))
        np.testing.assert_allclose(gates.sum(axis=1), 1, rtol=1e-14)
        for column, sector in enumerate((Sector.FJ, Sector.AFFINE, Sector.LC)):
            if sector not in sectors:
                assert (gates[:, column] == 0).all()


@given(seeds)
def test_gated_components_add_up_to_the_bias(seed: int) -> None:
    kernel = build(random_raw(seed), numpy_array, set(Sector), TRAIN_LENGTH)
    parts = [gated_components(kernel, sector, np.asarray(LAGS)) for sector in Sector]
    assert [part.shape[1] for part in parts] == [ORDERS, 1, ORDERS]
    total = np.concatenate(parts, axis=1).sum(axis=1)
    np.testing.assert_allclose(total, bias(kernel, np.asarray(LAGS)), atol=1e-9, rtol=1e-12)


@pytest.mark.parametrize("absent", list(Sector))
def test_absent_sectors(array: AsArray, absent: Sector) -> None:
    raw = random_raw(1)
    sectors = set(Sector) - {absent}
    kernel = build(raw, array, sectors, TRAIN_LENGTH)
    assert set(kernel.sectors) == sectors
    assert (np.asarray(kernel.gate(absent)) == 0).all()
    lags = array(LAGS)
    compute = affine if absent == Sector.AFFINE else components
    arguments = (kernel, lags) if absent == Sector.AFFINE else (kernel, absent, lags)
    with pytest.raises(ValueError, match=f"sector {absent.value} is absent"):
        compute(*arguments)
    with pytest.raises(ValueError, match=f"sector {absent.value} is absent"):
        mass(kernel, absent)


def test_noise_in_a_disabled_sector_changes_nothing() -> None:
    raw = random_raw(2)
    noisy = dict(raw, lc_zeta_re=raw["lc_zeta_re"] * 1e9, gate_logits=raw["gate_logits"].copy())
    noisy["gate_logits"][:, 2] = 1e9
    sectors = {Sector.FJ, Sector.AFFINE}
    lags = np.asarray(LAGS)
    quiet = bias(build(raw, numpy_array, sectors, TRAIN_LENGTH), lags)
    np.testing.assert_array_equal(quiet, bias(build(noisy, numpy_array, sectors, 128), lags))


def test_no_sector_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sector"):
        effective_kernel(random_raw(0), set(), TRAIN_LENGTH)
    with pytest.raises(KeyError, match="raw_affine_slope"):
        effective_kernel(
            {"omega": np.ones(1), "gate_logits": np.ones((1, 3))}, {Sector.AFFINE}, 128
        )


# The shift algebra: (Ef)(d) = f(d + 1), z = e^{-c/L + i w}


def complex_jets(omega: float, damping: float, lags: np.ndarray) -> np.ndarray:
    """``(d/L)^r / r! z^d`` for every order, ``[R+1, T]``, read off real Fourier-jet components."""
    parts = []
    for re, im in ((1.0, 0.0), (0.0, -1.0)):
        ones = np.ones((1, ORDERS))
        kernel = PositionKernel(
            train_length=TRAIN_LENGTH,
            rho=Rho.LINEAR,
            gates=np.asarray([[1.0, 0.0, 0.0]]),
            omega=np.asarray([omega]),
            fj=JetParameters(ones, re * ones, im * ones),
            lc=None,
            damping=np.asarray([damping]),
            slope=None,
        )
        parts.append(components(kernel, Sector.FJ, lags)[0])
    return parts[0] + 1j * parts[1]


@given(st.floats(0, math.pi), st.floats(0, 5), st.integers(0, 2000))
def test_the_shift_lowers_the_order_by_one(omega: float, damping: float, start: int) -> None:
    lags = np.arange(start, start + 64.0)
    jets = complex_jets(omega, damping, lags)
    z = np.exp(complex(-damping / TRAIN_LENGTH, omega))
    for order in range(ORDERS):
        lowered = jets[order, 1:] - z * jets[order, :-1]
        expected = np.zeros_like(lowered)
        for below in range(order):
            step = (1 / TRAIN_LENGTH) ** (order - below) / math.factorial(order - below)
            expected += z * step * jets[below, :-1]
        magnitude = np.abs(jets[order]).max() + 1e-300
        assert np.abs(lowered - expected).max() <= 1e-11 * magnitude


@given(st.floats(0, math.pi), st.floats(0, 5), st.integers(0, 2000))
def test_one_shift_more_than_the_order_annihilates(
    omega: float, damping: float, start: int
) -> None:
    lags = np.arange(start, start + 64.0)
    jets = complex_jets(omega, damping, lags)
    z = np.exp(complex(-damping / TRAIN_LENGTH, omega))
    for order in range(ORDERS):
        image = jets[order]
        magnitude = np.abs(image).max() + 1e-300
        for _ in range(order + 1):
            image = image[1:] - z * image[:-1]
        assert np.abs(image).max() <= 1e-10 * magnitude
    # Each power is needed: one shift less leaves the simple character z^d.
    image = jets[2]
    for _ in range(2):
        image = image[1:] - z * image[:-1]
    remaining = np.abs(jets[0][:-2]) * abs(z) ** 2 / TRAIN_LENGTH**2
    tolerance = 1e-10 * np.abs(jets[2]).max()
    np.testing.assert_allclose(np.abs(image), remaining, rtol=1e-6, atol=tolerance)


def test_the_affine_sector_is_a_jet_of_the_unit_root(array: AsArray) -> None:
    raw = random_raw(3)
    kernel = build(raw, array, {Sector.AFFINE}, TRAIN_LENGTH)
    values = np.asarray(affine(kernel, array(np.arange(64.0))))
    once = np.diff(values, axis=1)
    slope = np.asarray(kernel.slope)
    np.testing.assert_allclose(once, np.repeat(-slope[:, None] / TRAIN_LENGTH, 63, axis=1))
    assert np.abs(np.diff(once, axis=1)).max() < 1e-14


# Precision and gradients


def test_single_precision_lags_to_32k() -> None:
    raw = random_raw(4)
    exact = build(raw, numpy_array, set(Sector), TRAIN_LENGTH)
    single = exact.map(lambda values: torch.as_tensor(values, dtype=torch.float32))
    lags = np.arange(32768.0)
    for sector in (Sector.FJ, Sector.LC):
        found = components(single, sector, torch.arange(32768.0))
        expected = components(exact, sector, lags)
        assert found.dtype == torch.float32
        # Rounding to 24 bits moves the angle by at most 2^-23 w d; likewise the decay.
        carrier = 2.0**-23 * lags * exact.omega[:, None, None]
        decay = 2.0**-22 * lags / TRAIN_LENGTH * exact.damping[:, None, None]
        allowed = largest_size(exact, sector, lags) * (carrier + decay + 1e-5) + 1e-37
        assert (np.abs(found.numpy() - expected) <= allowed).all()
        assert carrier.max() < 0.013


def largest_size(kernel: PositionKernel, sector: Sector, lags: np.ndarray) -> np.ndarray:
    """The largest size that each component can have at each lag."""
    jet = kernel.jet(sector)
    assert jet is not None
    size = jet.order_spectrum * np.hypot(jet.amplitude_re, jet.amplitude_im)
    return size[:, :, None] * envelope(kernel, sector, lags)


def test_kernels_refuse_low_precision_lags() -> None:
    kernel = build(random_raw(5), BACKENDS["torch"], set(Sector), TRAIN_LENGTH)
    for lags in (torch.arange(4), torch.arange(4, dtype=torch.bfloat16)):
        with pytest.raises(TypeError, match="expected float32 or float64"):
            bias(kernel, lags)


def test_gradients() -> None:
    raw = {name: torch.tensor(value) for name, value in random_raw(6, heads=1).items()}
    names = sorted(raw)
    lags = torch.tensor([0.0, 3.0, 200.0], dtype=torch.float64)

    def of_raw(*values: torch.Tensor) -> torch.Tensor:
        kernel = effective_kernel(dict(zip(names, values, strict=True)), set(Sector), TRAIN_LENGTH)
        return bias(kernel, lags)

    assert torch.autograd.gradcheck(of_raw, [raw[name].requires_grad_() for name in names])
