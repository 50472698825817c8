"""Research checkpoints with known logits, losses, kernels: ours are the same."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from pjdiag.models.pj_bias import PJBias
from pjdiag.position.kernel import mass
from pjdiag.terms import Sector

DATA = Path(__file__).parents[1] / "data"
TOKENS = torch.tensor([[(31 * i * i + 7 * i) % 256 for i in range(512)]])


@cache
def reference(name: str) -> tuple[CausalLM, dict[str, Any]]:
    container = torch.load(DATA / f"{name}.pt", weights_only=True)
    weights = {key: value.numpy() for key, value in container["model_state"].items()}
    model = CausalLM.from_tensors(ModelConfig.from_research(container), weights)
    return model, json.loads((DATA / f"{name}.expected.json").read_text())


@cache
def logits(name: str) -> torch.Tensor:
    with torch.no_grad():
        return reference(name)[0](TOKENS)[0]


def kernels() -> list[tuple[PJBias, dict[str, Any]]]:
    model, expected = reference("full")
    modules = [block.get_submodule("attn.pj_bias") for block in model.blocks]
    return [
        (module, layer)
        for module, layer in zip(modules, expected["layers"], strict=True)
        if isinstance(module, PJBias)
    ]


def assert_relative(found: torch.Tensor, expected: Any, bound: float = 1e-5) -> None:
    wanted = torch.tensor(expected)
    assert found.shape == wanted.shape
    assert ((found - wanted).abs() <= bound * wanted.abs()).all()


@pytest.mark.parametrize("name", ["full", "pj_rotary"])
def test_logits(name: str) -> None:
    expected = reference(name)[1]["logits_at"]
    assert len(expected) == 6
    for position, values in expected.items():
        row = logits(name)[int(position)]
        assert (row[:8] - torch.tensor(values["first8"])).abs().max() < 1e-4
        assert int(row.argmax()) == values["argmax"]


@pytest.mark.parametrize("name", ["full", "pj_rotary"])
def test_mean_loss(name: str) -> None:
    loss = cross_entropy(logits(name)[:-1].double(), TOKENS[0, 1:]).item()
    assert loss == pytest.approx(reference(name)[1]["mean_nll_next_token"], rel=1e-5)


def test_effective_values() -> None:
    assert len(kernels()) == 2
    for module, layer in kernels():
        kernel = module.kernel()
        assert_relative(kernel.gates, layer["gates"])
        assert_relative(kernel.omega, layer["omega"])
        assert kernel.slope is not None
        assert_relative(kernel.slope, layer["slope"])
        assert kernel.damping is not None
        assert_relative(kernel.damping, layer["damping"])
        assert_relative(mass(kernel, Sector.FJ), layer["mass"]["fj"])
        assert_relative(mass(kernel, Sector.LC), layer["mass"]["lc"])


def test_biases() -> None:
    for module, layer in kernels():
        with torch.no_grad():
            assert_relative(module(torch.tensor(layer["lags"]).float()), layer["bias"])


def test_summaries() -> None:
    _, expected = reference("full")
    found = [module.kernel() for module, _ in kernels()]
    gates = torch.cat([kernel.gates for kernel in found]).mean(0)
    assert_relative(gates, expected["mean_gates_fj_affine_lc"])
    for sector in (Sector.FJ, Sector.LC):
        mean = torch.cat([mass(kernel, sector) for kernel in found]).mean(0)
        assert_relative(mean, expected["mean_order_mass"][sector.value])
