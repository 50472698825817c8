"""Problems of indirect indexing, answered again by hand."""

from collections import Counter

import pytest
import torch

from pjdiag.lab.experiments.indirect_task import (
    IndirectTask,
    answer_logits,
    answer_loss,
    answered,
)
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.config import ModelConfig

TASK = IndirectTask()
MODEL = ModelConfig("pope", train_length=TASK.length, embed_dim=16, num_heads=2, layers=1)


def drawn(count: int, seed: int = 0) -> torch.Tensor:
    return TASK.problems(count, torch.Generator().manual_seed(seed))


def test_the_answer_stands_the_offset_from_the_source() -> None:
    for problem in drawn(2000).tolist():
        *string, source, offset, answer = map(chr, problem)
        assert len(set(string)) == 8
        assert all("a" <= letter <= "z" for letter in string)
        place = string.index(source) + ord(offset) - ord("M")
        assert 0 <= place < 8
        assert string[place] == answer != source


def test_offsets_and_places_are_equally_likely() -> None:
    problems = drawn(40_000)
    offsets = Counter((problems[:, -2] - ord("M")).tolist())
    assert sorted(offsets) == list(TASK.offsets)
    assert all(abs(count / 5000 - 1) < 0.08 for count in offsets.values())
    places = (problems[:, :8] == problems[:, -3:-2]).long().argmax(1)
    for offset in (-4, 3):
        found = Counter(places[problems[:, -2] == ord("M") + offset].tolist())
        assert sorted(found) == ([4, 5, 6, 7] if offset < 0 else [0, 1, 2, 3, 4])
        expected = 5000 / len(found)
        assert all(abs(count / expected - 1) < 0.15 for count in found.values())


def test_the_seed_decides_the_problems() -> None:
    assert torch.equal(drawn(50, 3), drawn(50, 3))
    assert not torch.equal(drawn(50, 3), drawn(50, 4))
    torch.manual_seed(5)
    first = TASK.problems(20)
    torch.manual_seed(5)
    assert torch.equal(TASK.problems(20), first)


def test_fixed_problems_are_in_the_order_of_the_offsets() -> None:
    problems = TASK.fixed(3, 7)
    assert torch.equal(problems, TASK.fixed(3, 7))
    wanted = [ord("M") + offset for offset in TASK.offsets for _ in range(3)]
    assert problems[:, -2].tolist() == wanted


def test_what_a_guess_is_worth() -> None:
    problems = drawn(20_000, 1)
    share = 0.0
    for *string, _source, offset, answer in problems.tolist():
        d = offset - ord("M")
        possible = string[d:] if d > 0 else string[:d]
        assert answer in possible
        share += 1 / len(possible)
    assert share / len(problems) == pytest.approx(TASK.guess, abs=0.002)


def test_another_size_is_another_task() -> None:
    assert (
        len({IndirectTask(8, 4).digest, IndirectTask(8, 3).digest, IndirectTask(9, 4).digest}) == 3
    )
    assert IndirectTask(8, 4).digest == TASK.digest


def test_the_answer_is_not_read_and_the_last_token_answers() -> None:
    model = CausalLM(MODEL, seed=2).eval()
    problems = drawn(6)
    other = problems.clone()
    other[:, -1] = ord("z")
    with torch.no_grad():
        logits = answer_logits(model, problems)
        assert torch.equal(logits, answer_logits(model, other))
        whole = model(problems[:, :-1])[:, -1]
        assert torch.allclose(logits, whole, atol=1e-6)
        chosen = whole.log_softmax(1)[torch.arange(6), problems[:, -1]]
        assert float(answer_loss(model, problems)) == pytest.approx(-float(chosen.mean()), rel=1e-5)


def test_right_answers_are_counted_whatever_the_batch() -> None:
    model = CausalLM(MODEL, seed=2)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias[ord("q")] = 1.0
    problems = drawn(1100, 9)
    right, loss = answered(model, problems)
    assert right.tolist() == [problem[-1] == ord("q") for problem in problems.tolist()]
    with torch.no_grad():
        assert loss == pytest.approx(float(answer_loss(model, problems)), rel=1e-5)
    assert model.training, "the mode is put back"
