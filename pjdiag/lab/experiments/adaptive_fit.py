"""A PJ-bias that learns a teacher kernel, and the smallest model that holds what it learned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pjdiag.lab.experiments.kernel_targets import MAX_ORDER, OMEGA, TRAIN_LENGTH, Target
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig
from pjdiag.models.pj_bias import PJBias, PJBiasInit
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Sector

STEPS = 1500
LEARNING_RATE = 3e-2

HOLDER = ModelConfig(
    method="full",
    vocab_size=2,
    train_length=TRAIN_LENGTH,
    embed_dim=2,
    num_heads=1,
    layers=1,
    max_order=MAX_ORDER,
    mlp_ratio=1,
    slope_form=SlopeForm.SIGNED,
)
"""One layer, one head; nothing in it but the PJ-bias is trained."""

Parameters = dict[str, list[list[float]] | list[float]]
"""Raw parameters by name, of one head: ``[1, ...]``."""


@dataclass(frozen=True)
class Learned:
    """What the restarts came to."""

    errors: list[float]
    """Mean squared error of each restart over the lags below L."""
    variance: float
    """Of the teacher over these lags."""
    parameters: list[Parameters]
    """Of each restart."""

    @property
    def best(self) -> int:
        """The restart with the least error: chosen without a look at what it found."""
        return self.errors.index(min(self.errors))

    @property
    def r2(self) -> float:
        """Share of the teacher's variance that the best restart has."""
        return 1 - min(self.errors) / self.variance


def learn(target: Target, *, steps: int, restarts: int, seed: int) -> Learned:
    """Fit a PJ-bias with all three sectors to ``target`` over the lags 0..L-1.

    Gates, order spectra, amplitudes, signed slope and damping are learned by Adam at 3e-2; the
    frequency is the teacher's. Each restart is a head of its own: the heads share no parameter.
    """
    lags = torch.arange(TRAIN_LENGTH, dtype=torch.float64)
    wanted = torch.from_numpy(target.kernel(lags.numpy()))
    bias = start(restarts, seed)
    learned = [p for name, p in bias.named_parameters() if name != "omega"]
    optimiser = torch.optim.Adam(learned, lr=LEARNING_RATE)
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        _errors(bias, lags, wanted).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        errors = _errors(bias, lags, wanted)
    return Learned(
        errors=errors.tolist(),
        variance=float(wanted.var(correction=0)),
        parameters=[
            {
                name: values.detach()[head : head + 1].tolist()
                for name, values in bias.named_parameters()
            }
            for head in range(restarts)
        ],
    )


def start(restarts: int, seed: int) -> PJBias:
    """Uniform gates and order spectra, no recency, small random amplitudes; in float64."""
    bias = PJBias(
        set(Sector),
        num_heads=restarts,
        max_order=MAX_ORDER,
        train_length=TRAIN_LENGTH,
        slope_form=SlopeForm.SIGNED,
        init=PJBiasInit(affine_slope=0.0),
        generator=torch.Generator().manual_seed(seed),
    ).double()
    with torch.no_grad():
        bias.get_parameter("omega").fill_(OMEGA)
    return bias


def holder(parameters: Parameters) -> CausalLM:
    """The smallest causal model whose attention adds the learned bias.

    >>> made = holder({"omega": [OMEGA], "raw_affine_slope": [-0.5]})
    >>> round(float(made.blocks[0].attn.pj_bias.kernel().slope.detach()), 3)
    -0.5
    """
    model = CausalLM(HOLDER)
    bias = model.get_submodule("blocks.0.attn.pj_bias")
    with torch.no_grad():
        for name, values in parameters.items():
            bias.get_parameter(name).copy_(torch.tensor(values, dtype=torch.float64))
    return model


def _errors(bias: PJBias, lags: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared error of each head, ``[H]``."""
    errors: Tensor = (bias(lags) - wanted).square().mean(dim=1)
    return errors
