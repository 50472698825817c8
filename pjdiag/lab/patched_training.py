"""Making the patched sample: tokenizer, base training, patch, further training, control."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from pjdiag.lab.corpora import Corpus
from pjdiag.lab.patched_recipe import PatchedRecipe
from pjdiag.lab.recipe import HeldOutPoint, ProgressCallback
from pjdiag.lab.token_training import Measure, Measured, TokenTraining, encoded, made_tokenizer
from pjdiag.models.patch_settings import PatchSettings
from pjdiag.models.patching import patch, patched_layers


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
    measure = Measure(held_out, corpus, recipe.train_length)
    with torch.random.fork_rng(devices=[]):
        steps = recipe.base.steps
        total = steps + 2 * recipe.patched.steps
        training = TokenTraining(recipe, texts, measure, progress, total)
        model = _llama(recipe, tokenizer)
        training.phase(model, recipe.base, "base")
        base, control = measure(model), copy.deepcopy(model)
        training.phase(control, recipe.patched, "control", steps, told=False)
        patch(model, PatchSettings(recipe.train_length, recipe.sectors, recipe.max_order))
        before = _gates(model)
        training.phase(model, recipe.patched, "patched", steps)
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


@torch.no_grad()
def _gates(model: Any) -> list[list[list[float]]]:
    return [bias.kernel().gates.double().tolist() for _, bias in patched_layers(model)]
