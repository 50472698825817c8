"""The synthetic query task: labels counted again by hand, and learners that do not meet."""

import math

import numpy as np
import pytest
import torch

from pjdiag.lab.experiments.query_task import (
    BATCH,
    HEADS,
    SECTOR_SETS,
    TEACHERS,
    TRAIN_LENGTH,
    Learners,
    Teacher,
    aligned,
    bits_and_labels,
    margin_loss,
    train_learners,
)
from pjdiag.terms import Sector

BY_NAME = {teacher.name: teacher for teacher in TEACHERS}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def written_out(name: str, lag: int) -> float:
    """A teacher's weight before normalisation, from its formula."""
    x, turn = lag / TRAIN_LENGTH, 2 * math.pi * 17 / TRAIN_LENGTH
    if name == "affine":
        return math.exp(-4 * x)
    if name == "light_cone":
        beta = x / math.sqrt(1 + x * x)
        core = math.cos(turn * TRAIN_LENGTH * math.asinh(x)) * (1 + 0.4 * beta + 0.2 * beta**2)
        return math.exp(4 * core)
    order = int(name[-1])
    return x**order * (1 if order == 1 else math.exp(-0.1 * x)) * math.cos(turn * lag)


@pytest.mark.parametrize("name", list(BY_NAME))
def test_teachers_weigh_as_their_formulas_say(name: str) -> None:
    wanted = np.array([written_out(name, lag) for lag in range(1, TRAIN_LENGTH)])
    found = BY_NAME[name].weights()
    if BY_NAME[name].softmax:
        wanted /= wanted.sum()
        assert found.min() > 0
    else:
        assert found.min() < 0 < found.max()
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_labels_are_signs_of_the_weighted_sum() -> None:
    weights = torch.tensor([[1.0, -2.0, 0.5], [1.0, 1.0, 0.0]], dtype=torch.float64)
    bits, labels = bits_and_labels(weights, [generator(0), generator(1)], 200)
    assert set(bits.flatten().tolist()) == {-1.0, 1.0}
    for learner in range(2):
        for query in range(200):
            total = sum(
                w * b
                for w, b in zip(
                    weights[learner].tolist(), bits[learner, query].tolist(), strict=True
                )
            )
            assert labels[learner, query] == (total > 0) - (total < 0)
    assert 0 in labels[1].tolist(), "two equal weights tie"


def test_ties_are_left_out_of_the_loss() -> None:
    logits = torch.tensor([[2.0, -1.0, 30.0]])
    loss = margin_loss(logits, torch.tensor([[1.0, 1.0, 0.0]]))
    wanted = (math.log1p(math.exp(-2)) + math.log1p(math.exp(1))) / 2
    assert loss.tolist() == pytest.approx([wanted])


@pytest.mark.parametrize("name", ["fj_affine", "full"])
def test_a_learner_is_a_sum_of_softmax_heads(name: str) -> None:
    learners = Learners(SECTOR_SETS[name], [3, 4])
    assert learners.bias is not None
    with torch.no_grad():
        learners.values.copy_(torch.arange(8.0).view(2, HEADS))
        found = learners.weights()
        bias = learners.bias(torch.arange(1.0, TRAIN_LENGTH)).double()
    for learner in range(2):
        wanted = torch.zeros(TRAIN_LENGTH - 1, dtype=torch.float64)
        for head in range(HEADS):
            weight = bias[learner * HEADS + head].exp()
            wanted += (learner * HEADS + head) * weight / weight.sum()
        assert torch.allclose(found[learner].double(), TRAIN_LENGTH**0.5 * wanted, rtol=1e-4)
    bits = torch.ones(2, 5, TRAIN_LENGTH - 1)
    with torch.no_grad():
        assert torch.allclose(learners(bits), found.sum(1, keepdim=True).expand(2, 5), rtol=1e-4)


def test_without_sectors_every_bit_counts_alike() -> None:
    learners = Learners(SECTOR_SETS["none"], [0])
    assert learners.head_parameters(0) == {}
    with torch.no_grad():
        learners.values.fill_(1.0)
        weights = learners.weights()
    assert (weights.max() - weights.min()).item() == pytest.approx(0, abs=1e-6)
    assert [name for name, _ in learners.named_parameters()] == ["values"]


@pytest.mark.parametrize("name", list(SECTOR_SETS))
def test_learners_side_by_side_are_as_if_alone(name: str) -> None:
    teachers = (BY_NAME["affine"], BY_NAME["jet_2"])
    together = train_learners(SECTOR_SETS[name], teachers, (0, 1), 4)
    alone = train_learners(SECTOR_SETS[name], teachers[1:], (1,), 4)
    with torch.no_grad():
        assert torch.allclose(together.weights()[3], alone.weights()[0], rtol=1e-3, atol=1e-5)
    for key, values in alone.head_parameters(0).items():
        assert torch.allclose(together.head_parameters(3)[key], values, rtol=1e-3, atol=1e-5)


def test_the_seed_decides_a_learner() -> None:
    first, again = (train_learners(frozenset(Sector), TEACHERS[:1], (0, 1), 2) for _ in range(2))
    with torch.no_grad():
        assert torch.equal(first.weights(), again.weights())
        assert not torch.allclose(first.weights()[0], first.weights()[1])


def test_the_frequency_stays_the_teachers() -> None:
    learners = train_learners(frozenset(Sector), TEACHERS[1:2], (0,), 3)
    omega = learners.head_parameters(0)["omega"]
    assert omega.tolist() == pytest.approx([2 * math.pi * 17 / TRAIN_LENGTH] * HEADS)


def test_it_learns_a_recency_that_it_can_hold() -> None:
    teacher = BY_NAME["affine"]
    learners = train_learners(SECTOR_SETS["affine"], [teacher], (0,), 60)
    start = Learners(SECTOR_SETS["affine"], [0])
    wanted = teacher.weights()
    with torch.no_grad():
        before, after = (
            aligned(each.weights()[0].double().numpy(), wanted) for each in (start, learners)
        )
    assert before < 0.5 < 0.9 < after


def test_alignment_is_the_share_a_free_factor_explains() -> None:
    rng = np.random.default_rng(0)
    found, wanted = rng.normal(size=(2, 50))
    factor = np.linalg.lstsq(found[:, None], wanted, rcond=None)[0]
    left = wanted - factor * found
    assert aligned(found, wanted) == pytest.approx(1 - left @ left / (wanted @ wanted))
    assert aligned(np.zeros(3), np.ones(3)) == 0


def test_ties_are_rare_for_every_teacher() -> None:
    for teacher in TEACHERS:
        weights = torch.from_numpy(teacher.weights())[None]
        _, labels = bits_and_labels(weights, [generator(5)], BATCH)
        assert labels.abs().mean() == 1


def test_teachers_have_a_set_that_holds_them() -> None:
    def fits(teacher: Teacher) -> bool:
        return teacher.sector in SECTOR_SETS[teacher.own_set]

    assert all(map(fits, TEACHERS))
    assert SECTOR_SETS["full"] == set(Sector)
