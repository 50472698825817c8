"""Making the patched sample: tokenizer, base training, patch, further training, control."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from pjdiag.errors import UsageError
from pjdiag.lab.corpora import Corpus, Work
from pjdiag.lab.patched_recipe import PatchedRecipe, Phase
from pjdiag.lab.recipe import HeldOutPoint, Progress, ProgressCallback
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.patch_settings import PatchSettings
from pjdiag.models.patching import patch, patched_layers, pj_parameters

EVAL_BATCH = 32
SPECIAL = "<|endoftext|>"


@dataclass(frozen=True)
class Measured:
    """Held-out loss."""

    nats_per_token: float
    nats_per_byte: float
    predicted_tokens: int
    bytes_per_token: float


@dataclass(frozen=True)
class PatchedRun:
    """What the phases left behind."""

    model: Any
    """The patched model, in evaluation mode."""
    tokenizer: Any
    base: Measured
    """Before the patch."""
    patched: Measured
    """After further training with the PJ-bias."""
    control: Measured
    """After the same further training without it."""
    gates: dict[str, list[list[list[float]]]]
    """``before`` and ``after``: layers x heads x (FJ, affine, LC)."""
    history: tuple[HeldOutPoint, ...]
    """In nats per byte; steps go on from the base to the patched model."""
    parameters: int
    seconds: float


def run_recipe(
    recipe: PatchedRecipe, corpus: Corpus, progress: ProgressCallback | None = None
) -> PatchedRun:
    """Train the base model, patch it, train on; and train the unpatched control alike.

    torch's global random state is left as it was. Raises UsageError where training diverges.
    """
    tokenizer = made_tokenizer(corpus.train, recipe.vocab_size)
    texts = [encoded(tokenizer, work) for work in corpus.train]
    held_out = [encoded(tokenizer, work) for work in corpus.held_out]
    measure = _Measure(held_out, corpus, recipe.train_length)
    with torch.random.fork_rng(devices=[]):
        training = _Training(recipe, texts, measure, progress)
        model = _llama(recipe, tokenizer)
        training.phase(model, recipe.base, "base")
        base, control = measure(model), copy.deepcopy(model)
        training.phase(control, recipe.patched, "control")
        patch(model, PatchSettings(recipe.train_length, recipe.sectors, recipe.max_order))
        before = _gates(model)
        training.phase(model, recipe.patched, "patched")
    return PatchedRun(
        model=model.eval(),
        tokenizer=tokenizer,
        base=base,
        patched=measure(model),
        control=measure(control),
        gates={"before": before, "after": _gates(model)},
        history=tuple(training.history),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=training.seconds,
    )


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


def save_run(run: PatchedRun, folder: Path) -> None:
    """Write model and tokenizer as a Hugging Face folder."""
    with quiet():
        run.model.save_pretrained(folder)
        run.tokenizer.save_pretrained(folder)


def _llama(recipe: PatchedRecipe, tokenizer: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(recipe.seed)
    end = tokenizer.eos_token_id
    config = LlamaConfig(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_hidden_layers,
        num_attention_heads=recipe.num_attention_heads,
        num_key_value_heads=recipe.num_key_value_heads,
        max_position_embeddings=recipe.train_length,
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    return LlamaForCausalLM(config)


class _Measure:
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


class _Training:
    """The phases, one after the other, and what was measured on the way."""

    def __init__(
        self,
        recipe: PatchedRecipe,
        texts: Sequence[NDArray[np.int64]],
        measure: _Measure,
        progress: ProgressCallback | None,
    ) -> None:
        self.recipe, self.measure, self.progress = recipe, measure, progress
        self.draw = _sampler(texts, recipe.train_length + 1)
        self.history: list[HeldOutPoint] = []
        self.seconds = 0.0
        self.done = 0
        self.total = recipe.base.steps + 2 * recipe.patched.steps

    def phase(self, model: Any, phase: Phase, name: str) -> None:
        """Train ``model`` in place. The control's losses stay out of the history."""
        recipe, started, before = self.recipe, time.monotonic(), self.seconds
        optimizer = _optimizer(model, phase, recipe.weight_decay)
        offset = 0 if name == "base" else recipe.base.steps
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
                if name != "control":
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


@torch.no_grad()
def _gates(model: Any) -> list[list[list[float]]]:
    return [bias.kernel().gates.double().tolist() for _, bias in patched_layers(model)]
