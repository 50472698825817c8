"""The trainable PJ-bias: its parameters, its start, and what its gradients reach."""

import itertools

import pytest
import torch

from pjdiag.models.pj_bias import PJBias, PJBiasInit
from pjdiag.position.kernel import GATE_INDEX
from pjdiag.position.parameters import SECTOR_NAMES, SHARED_NAMES, SlopeForm
from pjdiag.terms import Rho, Sector

SUBSETS = [set(subset) for size in (1, 2, 3) for subset in itertools.combinations(Sector, size)]


@pytest.mark.parametrize("sectors", SUBSETS)
def test_only_enabled_sectors_have_parameters(sectors: set[Sector]) -> None:
    module = PJBias(sectors, num_heads=3, max_order=2, train_length=64)
    expected = {*SHARED_NAMES, *(name for sector in sectors for name in SECTOR_NAMES[sector])}
    assert {name for name, _ in module.named_parameters()} == expected
    assert set(module.state_dict()) == expected
    kernel = module.kernel()
    assert set(kernel.sectors) == sectors
    for sector in set(Sector) - sectors:
        assert torch.equal(kernel.gates[:, GATE_INDEX[sector]], torch.zeros(3))
    assert torch.allclose(kernel.gates.sum(1), torch.ones(3))


def test_where_it_starts() -> None:
    module = PJBias(set(Sector), num_heads=4, max_order=3, train_length=128)
    kernel = module.kernel()
    assert torch.allclose(kernel.gates, torch.full((4, 3), 1 / 3))
    assert kernel.slope is not None
    assert torch.allclose(kernel.slope, torch.full((4,), 2.0))
    assert kernel.damping is not None
    assert torch.allclose(kernel.damping, torch.full((4,), 0.1))
    wavelengths = 2 * torch.pi / kernel.omega
    assert torch.allclose(wavelengths[[0, -1]], torch.tensor([128.0, 8.0]))
    assert torch.allclose(wavelengths[:-1] / wavelengths[1:], torch.full((3,), 16 ** (1 / 3)))
    for jet in (kernel.fj, kernel.lc):
        assert jet is not None
        assert torch.allclose(jet.order_spectrum, torch.full((4, 4), 0.25))
        assert torch.equal(jet.amplitude_re[:, 0], torch.full((4,), 0.2))
        assert jet.amplitude_re[:, 1:].std() < 0.2
        assert jet.amplitude_im.abs().min() > 0


def test_the_seed_decides_the_start() -> None:
    def start(seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return PJBias(set(Sector), 2, 1, 64, generator=generator).state_dict()

    first, again, other = start(1), start(1), start(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["fj_zeta_im"], other["fj_zeta_im"])


def test_a_signed_slope_is_the_raw_value() -> None:
    signed = PJBias(
        {Sector.AFFINE}, 2, 0, 64, slope_form=SlopeForm.SIGNED, init=PJBiasInit(affine_slope=0.0)
    )
    lags = torch.arange(5.0)
    assert torch.equal(signed(lags), torch.zeros(2, 5))
    signed(lags).sum().backward()
    slope = signed.get_parameter("raw_affine_slope")
    assert torch.allclose(slope.grad, torch.full((2,), -10 / 64))


def test_affine_follows_rho() -> None:
    lags = torch.tensor([0.0, 64.0])
    linear = PJBias({Sector.AFFINE}, 1, 0, 64)(lags)
    lightcone = PJBias({Sector.AFFINE}, 1, 0, 64, rho=Rho.LIGHTCONE)(lags)
    assert torch.allclose(linear, torch.tensor([[0.0, -2.0]]))
    assert torch.allclose(lightcone, torch.tensor([[0.0, -2.0 * 0.881374]]))


def test_gradients_reach_every_parameter() -> None:
    module = PJBias(set(Sector), num_heads=2, max_order=2, train_length=16)
    weight = torch.randn(2, 40, generator=torch.Generator().manual_seed(0))
    (module(torch.arange(40.0)) * weight).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.all(parameter.grad != 0), name


def test_positions_stay_wide_when_the_model_is_cast() -> None:
    module = PJBias(set(Sector), num_heads=2, max_order=1, train_length=128)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for narrow in (torch.bfloat16, torch.float16):
        module.to(narrow)
        for name, value in module.state_dict().items():
            assert value.dtype == torch.float32
            assert torch.equal(value, before[name]), name
    assert module.double().omega.dtype == torch.float64


def test_it_needs_a_sector() -> None:
    with pytest.raises(ValueError, match="at least one sector"):
        PJBias(set(), num_heads=2, max_order=1, train_length=128)


def test_it_names_itself() -> None:
    assert repr(PJBias({Sector.LC}, 2, 1, 128)) == "PJBias(lc; L=128, rho=linear)"
