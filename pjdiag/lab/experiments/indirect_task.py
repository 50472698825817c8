"""Indirect indexing: name the letter that stands so many places from a given one in a string."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pjdiag.models.causal_lm import CausalLM

FIRST_LETTER = ord("a")
ALPHABET = 26
NO_OFFSET = ord("M")
"""Byte of an offset of 0; ``N`` is one to the right, ``L`` one to the left."""
BATCH = 512


@dataclass(frozen=True)
class IndirectTask:
    """Problems over strings of ``letters`` different letters, offsets of at most ``reach``.

    A problem is ``letters + 2`` bytes: the string, the source letter, the offset. The answer
    is always in the string. Offsets are equally likely; so are the places a source can have.

    >>> task = IndirectTask()
    >>> task.length, task.offsets
    (10, (-4, -3, -2, -1, 1, 2, 3, 4))
    >>> windows = task.problems(1, torch.Generator().manual_seed(1))
    >>> bytes(windows[0].tolist())
    b'evbxnuygxKv'
    """

    letters: int = 8
    reach: int = 4

    @property
    def length(self) -> int:
        """Tokens of a problem, the answer not counted."""
        return self.letters + 2

    @property
    def offsets(self) -> tuple[int, ...]:
        """Every offset, 0 left out."""
        return tuple(d for d in range(-self.reach, self.reach + 1) if d)

    @property
    def digest(self) -> str:
        """SHA-256 of the words that define the task."""
        words = f"indirect indexing: {self.letters} of {ALPHABET} letters, offsets {self.offsets}"
        return hashlib.sha256(words.encode()).hexdigest()

    @property
    def guess(self) -> float:
        """Accuracy of who knows the offset and the string, and guesses among possible answers."""
        return sum(1 / (self.letters - abs(d)) for d in self.offsets) / len(self.offsets)

    def problems(
        self, count: int, generator: torch.Generator | None = None, offset: int | None = None
    ) -> Tensor:
        """``[count, letters + 3]`` bytes as integers, the answer last.

        Drawn from ``generator``, or from torch's global random state; of one ``offset`` only
        where it is given.
        """
        strings = torch.rand(count, ALPHABET, generator=generator).argsort(1)[:, : self.letters]
        choice = torch.randint(len(self.offsets), (count,), generator=generator)
        offsets = torch.tensor(self.offsets)[choice]
        if offset is not None:
            offsets = torch.full_like(offsets, offset)
        share = torch.rand(count, generator=generator, dtype=torch.float64)
        place = (share * (self.letters - offsets.abs())).long() + (-offsets).clamp(min=0)
        rows = torch.arange(count)
        source, answer = strings[rows, place], strings[rows, place + offsets]
        return torch.cat(
            [
                strings + FIRST_LETTER,
                (source + FIRST_LETTER)[:, None],
                (offsets + NO_OFFSET)[:, None],
                (answer + FIRST_LETTER)[:, None],
            ],
            dim=1,
        )

    def fixed(self, each: int, seed: int) -> Tensor:
        """``each`` problems of every offset, in the order of ``offsets``; equal for equal seeds."""
        generator = torch.Generator().manual_seed(seed)
        return torch.cat([self.problems(each, generator, offset) for offset in self.offsets])


def answer_logits(model: CausalLM, windows: Tensor) -> Tensor:
    """Logits ``[B, V]`` of the answer to problems ``[B, letters + 3]``; theirs is not read."""
    logits: Tensor = model.head(model.hidden(windows[:, :-1])[:, -1])
    return logits


def answer_loss(model: CausalLM, windows: Tensor) -> Tensor:
    """Mean NLL of the answers, in nats."""
    return cross_entropy(answer_logits(model, windows), windows[:, -1])


@torch.no_grad()
def answered(model: CausalLM, windows: Tensor) -> tuple[Tensor, float]:
    """Which problems are answered rightly, ``[B]`` bool, and the mean NLL of the answers."""
    training = model.training
    model.eval()
    parts = [answer_logits(model, part) for part in torch.split(windows, BATCH)]
    model.train(training)
    logits = torch.cat(parts)
    return logits.argmax(1) == windows[:, -1], float(cross_entropy(logits, windows[:, -1]))
