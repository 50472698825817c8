"""The synthetic query task: bits, then a query, whose label a teacher kernel decides.

And the learner: heads that attend to the bits by a PJ-bias alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pjdiag.lab.experiments.kernel_targets import OMEGA, TARGETS
from pjdiag.lab.experiments.kernel_targets import TRAIN_LENGTH as TARGET_LENGTH
from pjdiag.models.pj_bias import PJBias, PJBiasInit
from pjdiag.position.parameters import SlopeForm
from pjdiag.terms import Sector

TRAIN_LENGTH = 128
"""L: the query and the L - 1 bits before it, at lags 1..L-1."""
STRETCH = TARGET_LENGTH / TRAIN_LENGTH
"""Teachers are the recovery kernels as functions of d/L, with 17 waves a training length."""
HEADS, MAX_ORDER = 4, 3
BATCH = 256
LEARNING_RATE = 3e-2
SHARPNESS = 4.0
"""K of a softmax teacher is multiplied by this."""
STEPS, QUICK_STEPS = 1500, 150
TEST = 8192
SECTOR_SETS: dict[str, frozenset[Sector]] = {
    "none": frozenset(),
    "affine": frozenset({Sector.AFFINE}),
    "fj": frozenset({Sector.FJ}),
    "fj_affine": frozenset({Sector.FJ, Sector.AFFINE}),
    "lc_affine": frozenset({Sector.LC, Sector.AFFINE}),
    "full": frozenset(Sector),
}


@dataclass(frozen=True)
class Teacher:
    """A kernel that weighs the bits."""

    name: str
    target: str
    """The recovery kernel K."""
    factor: float
    """K is multiplied by it."""
    softmax: bool
    """Weights are softmax(4 K) over the lags; otherwise K itself, signed."""
    sector: Sector
    """The sector that carries K."""
    order: int | None
    """Its top jet order; None where only the sector is asked about."""
    own_set: str
    """The smallest of the sector sets that holds K."""

    def weights(self) -> np.ndarray:
        """``[L - 1]``, of the bits at lags 1..L-1."""
        lags = np.arange(1, TRAIN_LENGTH, dtype=np.float64)
        kernel = self.factor * TARGETS[self.target].kernel(STRETCH * lags)
        if not self.softmax:
            return np.asarray(kernel)
        sharp = np.exp(SHARPNESS * (kernel - kernel.max()))
        return np.asarray(sharp / sharp.sum())


TEACHERS = (
    Teacher("affine", "linear", -1.0, True, Sector.AFFINE, None, "affine"),
    Teacher("jet_1", "first_jet", 1.0, False, Sector.FJ, 1, "fj"),
    Teacher("jet_2", "second_jet", 1.0, False, Sector.FJ, 2, "fj"),
    Teacher("jet_3", "third_jet", 1.0, False, Sector.FJ, 3, "fj"),
    Teacher("light_cone", "lc_core", 1.0, True, Sector.LC, None, "lc_affine"),
)


class Learners(nn.Module):
    """``M`` learners side by side, which share no parameter: each is as if it were trained alone.

    A learner has ``HEADS`` heads. Head h attends to the bits with softmax(b_h(d)) over lags
    1..L-1, b_h a PJ-bias; the logit of a positive label is ``sum_h v_h sum_d softmax(b_h)(d) x_d``.
    Nothing looks at content. The frequency is the teachers' and fixed; the slope is signed.

    >>> made = Learners(SECTOR_SETS["full"], [0, 1, 2])
    >>> made.weights().shape
    torch.Size([3, 127])
    """

    def __init__(self, sectors: Collection[Sector], seeds: Sequence[int]) -> None:
        super().__init__()
        self.count = len(seeds)
        signs = torch.tensor([1.0, -1.0]).repeat(HEADS // 2)
        self.values = nn.Parameter(signs.repeat(self.count, 1))
        self.bias = _side_by_side(sectors, seeds) if sectors else None

    def weights(self) -> Tensor:
        """What each learner multiplies the bits with, ``[M, L - 1]``."""
        lags = torch.arange(1, TRAIN_LENGTH, dtype=torch.float32)
        if self.bias is None:
            attention = torch.full((self.count, HEADS, len(lags)), 1 / len(lags))
        else:
            attention = self.bias(lags).softmax(1).view(self.count, HEADS, -1)
        scale = TRAIN_LENGTH**0.5
        found: Tensor = scale * torch.einsum("mh,mhd->md", self.values, attention)
        return found

    def forward(self, bits: Tensor) -> Tensor:
        """Logits ``[M, B]`` of a positive label, of bits ``[M, B, L - 1]``."""
        return (bits @ self.weights()[:, :, None])[..., 0]

    def head_parameters(self, learner: int) -> dict[str, Tensor]:
        """The raw PJ-bias parameters of one learner, ``[HEADS, ...]`` each."""
        if self.bias is None:
            return {}
        own = slice(learner * HEADS, (learner + 1) * HEADS)
        return {name: values.detach()[own] for name, values in self.bias.named_parameters()}


def _side_by_side(sectors: Collection[Sector], seeds: Sequence[int]) -> PJBias:
    """One PJ-bias whose heads are those of a PJ-bias of every seed."""

    def made(heads: int, seed: int) -> PJBias:
        return PJBias(
            sectors,
            heads,
            MAX_ORDER,
            TRAIN_LENGTH,
            slope_form=SlopeForm.SIGNED,
            init=PJBiasInit(affine_slope=0.0),
            generator=torch.Generator().manual_seed(seed),
        )

    whole = made(HEADS * len(seeds), 0)
    singles = [dict(made(HEADS, seed).named_parameters()) for seed in seeds]
    with torch.no_grad():
        for name, values in whole.named_parameters():
            values.copy_(torch.cat([single[name] for single in singles]))
        if "omega" in dict(whole.named_parameters()):
            whole.get_parameter("omega").fill_(OMEGA * STRETCH).requires_grad_(False)
    return whole


def bits_and_labels(
    weights: Tensor, generators: Iterable[torch.Generator], count: int
) -> tuple[Tensor, Tensor]:
    """Bits ``[M, count, L - 1]`` of +-1 and labels ``[M, count]``: the sign of the teacher's sum.

    ``weights`` is ``[M, L - 1]`` in float64. A sum of exactly 0 has the label 0.

    >>> bits, labels = bits_and_labels(
    ...     torch.ones(1, 3, dtype=torch.float64), [torch.Generator().manual_seed(0)], 2)
    >>> torch.equal(labels, bits.sum(2).sign())
    True
    """
    size = (count, weights.shape[1])
    draws = [torch.randint(2, size, generator=each, dtype=torch.int8) for each in generators]
    bits = 2 * torch.stack(draws).double() - 1
    labels = (bits @ weights[:, :, None])[..., 0].sign()
    return bits.float(), labels.float()


def margin_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean logistic loss of each learner ``[M]``, labels of 0 left out."""
    losses = softplus(-labels * logits) * labels.abs()
    return losses.sum(1) / labels.abs().sum(1)


def train_learners(
    sectors: Collection[Sector], teachers: Sequence[Teacher], seeds: Sequence[int], steps: int
) -> Learners:
    """A learner for every teacher and seed, teachers first; Adam, fresh bits at every step."""
    pairs = [(teacher, seed) for teacher in teachers for seed in seeds]
    weights = torch.from_numpy(np.stack([teacher.weights() for teacher, _ in pairs]))
    draws = [torch.Generator().manual_seed(1_000 + seed) for _, seed in pairs]
    learners = Learners(sectors, [seed for _, seed in pairs])
    learned = [parameter for parameter in learners.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(learned, lr=LEARNING_RATE)
    for _ in range(steps):
        bits, labels = bits_and_labels(weights, draws, BATCH)
        optimiser.zero_grad(set_to_none=True)
        margin_loss(learners(bits), labels).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return learners


def aligned(found: np.ndarray, wanted: np.ndarray) -> float:
    """R^2 of ``wanted`` by ``found`` times a free factor, no constant: their squared cosine.

    The label depends on the direction of the weights alone.

    >>> aligned(np.array([2.0, 0.0]), np.array([1.0, 1.0]))
    0.5
    """
    norms = float(found @ found) * float(wanted @ wanted)
    return float(found @ wanted) ** 2 / norms if norms > 0 else 0.0
