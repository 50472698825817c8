"""Training a Hugging Face model on tokens of its own: tokenizer, phases, held-out loss."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from pjdiag.errors import UsageError
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.patched_recipe import Phase
from pjdiag.lab.recipe import HeldOutPoint, Progress, ProgressCallback
from pjdiag.models.patching import pj_parameters

EVAL_BATCH = 32
SPECIAL = "<|endoftext|>"


class TokenRecipe(Protocol):
    """What every phase of a recipe has in common."""

    @property
    def train_length(self) -> int:
        """Tokens of a window."""

    @property
    def batch_size(self) -> int:
        """Windows of train_length + 1 tokens in a step."""

    @property
    def weight_decay(self) -> float:
        """Of matrices."""

    @property
    def gradient_clip(self) -> float:
        """Largest norm of the gradient."""

    @property
    def eval_every(self) -> int:
        """Steps between two looks at the held-out works."""

    @property
    def eval_windows(self) -> int:
        """Fixed held-out windows, evenly spread, for the losses on the way."""

    @property
    def seed(self) -> int:
        """Of weights and batches."""


@dataclass(frozen=True)
class Measured:
    """Held-out loss."""

    nats_per_token: float
    nats_per_byte: float
    predicted_tokens: int
    bytes_per_token: float


def made_tokenizer(works: Sequence[Work], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer of the works' text; equal input gives an equal tokenizer."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    fast: Any = transformers.PreTrainedTokenizerFast
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator((work.data.decode() for work in works), trainer)
    return fast(tokenizer_object=made, eos_token=SPECIAL)


def encoded(tokenizer: Any, work: Work) -> NDArray[np.int64]:
    """The ids of a work, without special tokens."""
    ids = tokenizer(work.data.decode(), add_special_tokens=False, verbose=False)["input_ids"]
    return np.asarray(ids, dtype=np.int64)


class Measure:
    """Loss over windows of ``length`` + 1 tokens that follow one another within a work."""

    def __init__(self, texts: Sequence[NDArray[np.int64]], corpus: Corpus, length: int) -> None:
        self.length = length
        self.bytes_per_token = corpus.held_out_bytes / sum(len(text) for text in texts)
        self.windows = np.stack(
            [
                text[start : start + length + 1]
                for text in texts
                for start in range(0, len(text) - length, length)
            ]
        )

    @torch.no_grad()
    def __call__(self, model: Any, most: int | None = None) -> Measured:
        count = len(self.windows) if most is None else min(most, len(self.windows))
        chosen = self.windows[np.linspace(0, len(self.windows) - 1, count).round().astype(int)]
        training = model.training
        model.eval()
        total = 0.0
        for first in range(0, count, EVAL_BATCH):
            windows = torch.from_numpy(chosen[first : first + EVAL_BATCH])
            total += float(_loss(model, windows)) * len(windows)
        model.train(training)
        nats, tokens = total / count, count * self.length
        return Measured(nats, nats / self.bytes_per_token, tokens, self.bytes_per_token)


class TokenTraining:
    """Phases of training, one after the other, and what was measured on the way."""

    def __init__(
        self,
        recipe: TokenRecipe,
        texts: Sequence[NDArray[np.int64]],
        measure: Measure,
        progress: ProgressCallback | None,
        total: int,
    ) -> None:
        """``total``: steps of all the phases to come."""
        self.recipe, self.measure, self.progress = recipe, measure, progress
        self.draw = _sampler(texts, recipe.train_length + 1)
        self.history: list[HeldOutPoint] = []
        self.seconds = 0.0
        self.done = 0
        self.total = total

    def phase(
        self, model: Any, phase: Phase, name: str, offset: int = 0, *, told: bool = True
    ) -> None:
        """Train ``model`` in place; its steps count from ``offset``.

        With ``told`` its losses go into the history. Raises UsageError where training diverges.
        """
        recipe, started, before = self.recipe, time.monotonic(), self.seconds
        optimizer = _optimizer(model, phase, recipe.weight_decay)
        losses: list[float] = []
        model.train()
        for step in range(1, phase.steps + 1):
            torch.manual_seed(_step_seed(recipe.seed, offset + step))
            factor = phase.learning_rate_factor(step)
            for group in optimizer.param_groups:
                group["lr"] = factor * group["peak_rate"]
            optimizer.zero_grad(set_to_none=True)
            loss = _loss(model, self.draw(recipe.batch_size))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip)
            optimizer.step()
            last = float(loss.detach()) / self.measure.bytes_per_token
            losses.append(last)
            if not math.isfinite(last):
                raise UsageError(
                    f"training diverged at step {step} of the {name} phase",
                    "lower the learning rates",
                )
            self.done += 1
            self.seconds = before + time.monotonic() - started
            held_out = None
            if step % recipe.eval_every == 0 or step == phase.steps:
                held_out = self.measure(model, recipe.eval_windows).nats_per_byte
                if told:
                    mean = float(np.mean(losses))
                    self.history.append(HeldOutPoint(offset + step, mean, held_out))
                losses = []
            if self.progress is not None:
                rate = factor * phase.learning_rate
                self.progress(Progress(self.done, self.total, last, rate, held_out, self.seconds))


def _sampler(texts: Sequence[NDArray[np.int64]], length: int) -> Callable[[int], torch.Tensor]:
    """A function that draws ``[count, length]`` windows, none across two works."""
    data = torch.from_numpy(np.concatenate(texts))
    first = np.cumsum([0, *(len(text) for text in texts)])
    places = np.cumsum([max(0, len(text) - length + 1) for text in texts])
    offsets = torch.arange(length)

    def draw(count: int) -> torch.Tensor:
        place: NDArray[np.int64] = torch.randint(int(places[-1]), (count,)).numpy()
        index = np.searchsorted(places, place, side="right")
        starts = torch.from_numpy(first[index] + place - np.concatenate([[0], places])[index])
        return data[starts[:, None] + offsets]

    return draw


def _loss(model: Any, windows: torch.Tensor) -> torch.Tensor:
    """Mean next-token NLL of ``windows`` ``[B, T + 1]``, in nats."""
    logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _optimizer(model: Any, phase: Phase, weight_decay: float) -> torch.optim.AdamW:
    """AdamW in three groups: matrices, vectors without decay, the PJ-bias without."""
    position = {id(parameter) for parameter in pj_parameters(model)}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in position]
    groups = [
        ([p for p in rest if p.ndim > 1], phase.learning_rate, weight_decay),
        ([p for p in rest if p.ndim < 2], phase.learning_rate, 0.0),
        (pj_parameters(model), phase.position_learning_rate, 0.0),
    ]
    return torch.optim.AdamW(
        [
            {"params": parameters, "peak_rate": rate, "weight_decay": decay}
            for parameters, rate, decay in groups
            if parameters
        ],
        betas=(0.9, 0.99),
    )


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)
