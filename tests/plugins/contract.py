"""The contract of an adapter: its reading reconstructs the attention of the model's own class.

A tiny random model of the real transformers class runs eagerly and returns its attention. Our
reading sees only the saved folder, and the input of each attention module, caught by a hook of
this test. The logarithm of the attention, centred in each row, must equal our logits, centred.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

import pjdiag
from pjdiag import adapters
from pjdiag.adapters import Layer, Reading
from pjdiag.diagnostics.layer_logits import layer_logits

TOLERANCE = 1e-4
MASKED = -1e30
"""Logits below this are masked keys."""


@dataclass(frozen=True)
class Case:
    """A configuration of one architecture, and how to run it."""

    name: str
    config: Any
    """A configuration object of the real class."""
    auto: Any = AutoModelForCausalLM
    """What builds the model from the configuration."""
    attention: str = "Attention"
    """End of the class name of the modules that are given the layer's input."""
    within: str = ""
    """Part of these modules' paths: tells attention to oneself from attention to an encoder."""
    length: int = 512
    adapter: str | None = None
    """The name of the adapter that must win; None: the case's name."""
    input_name: str = "hidden_states"
    only: tuple[int, ...] | None = None
    """Layers with attention; None: all."""
    spread: float = 0.3
    """Size of the random weights."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Arguments of the model's call."""
    before_softmax: bool = False
    """Whether the logits are caught on their way into the softmax: where far keys underflow in
    it, or where a cap or a sink takes part."""


def build(case: Case, folder: Path, seed: int = 0) -> PreTrainedModel:
    """A random model of the real class, saved to ``folder``; norms and biases are random too."""
    torch.manual_seed(seed)
    config = type(case.config)(**case.config.to_dict())
    config._attn_implementation = "eager"
    model = case.auto.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            size = (
                case.spread / max(1.0, parameter.shape[-1] ** 0.5 / 4)
                if parameter.ndim > 1
                else 0.3
            )
            parameter.add_(size * noise)
    model.eval()
    model.save_pretrained(folder)
    return model


@dataclass(frozen=True)
class Run:
    """What one run of the model gave."""

    inputs: list[np.ndarray]
    """Per attention module ``[B, T, E]``."""
    logits: list[np.ndarray]
    """Per attention module ``[B, H, T, T]``, up to a constant in each row; -inf: not seen."""
    mask: np.ndarray
    """``[B, T]``."""


def run(case: Case, model: PreTrainedModel, padding: int, seed: int = 3) -> Run:
    """The inputs and the attention of every layer for two sequences, the second padded left."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    tokens = torch.randint(3, vocabulary, (2, case.length), generator=generator)
    mask = torch.ones_like(tokens)
    mask[1, :padding] = 0
    inputs: list[np.ndarray] = []

    def keep(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        value = named[case.input_name] if case.input_name in named else given[0]
        inputs.append(value.detach().double().numpy())

    handles = [
        module.register_forward_pre_hook(keep, with_kwargs=True)
        for path, module in model.named_modules()
        if type(module).__name__.endswith(case.attention) and case.within in path
    ]
    try:
        with torch.no_grad(), softmax_inputs() as caught:
            out = model(
                tokens, attention_mask=mask, output_attentions=True, use_cache=False, **case.extra
            )
    finally:
        for handle in handles:
            handle.remove()
    if case.before_softmax:
        logits = caught
    else:
        with np.errstate(divide="ignore"):
            logits = [np.log(a.double().numpy()) for a in _attentions(out) if a is not None]
    assert len(logits) == len(inputs), f"{len(inputs)} inputs, {len(logits)} attentions"
    return Run(inputs, logits, mask.bool().numpy())


@contextlib.contextmanager
def softmax_inputs() -> Iterator[list[np.ndarray]]:
    """What the model gives to ``softmax`` over four axes, masked keys as -inf."""
    caught: list[np.ndarray] = []
    softmax = torch.nn.functional.softmax

    def catch(logits: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        if logits.ndim == 4:
            values = logits.double().numpy()
            caught.append(np.where(values > MASKED, values, -np.inf))
        return softmax(logits, *rest, **named)

    torch.nn.functional.softmax = catch  # type: ignore[assignment]
    try:
        yield caught
    finally:
        torch.nn.functional.softmax = softmax


def _attentions(out: Any) -> Any:
    """Attention of every layer to its own sequence; an encoder's layers, then a decoder's."""
    names = ("attentions", "encoder_attentions", "decoder_attentions")
    found = [layer for name in names for layer in getattr(out, name, None) or ()]
    assert found, "the class returned no attention"
    return found


def reading_of(case: Case, folder: Path, length: int) -> Reading:
    """Our reading of the saved folder at the length of the run."""
    reading = adapters.read(pjdiag.load(folder), eval_length=length)
    assert reading.adapter == (case.adapter or case.name)
    return reading


def largest_error(
    layer: Layer, x: np.ndarray, theirs: np.ndarray, key_input: np.ndarray | None = None
) -> float:
    """The largest difference of row-centred logits, rows 1 and later, one sequence."""
    seen = np.isfinite(theirs)
    ours = layer_logits(layer, x, key_input)
    assert (seen == visible(layer, x.shape[0])).all(), "another set of keys is visible"
    difference = np.where(seen, ours, 0.0) - np.where(seen, theirs, 0.0)
    mean = difference.sum(-1, keepdims=True) / seen.sum(-1, keepdims=True)
    return float(np.abs(np.where(seen, difference - mean, 0.0))[:, 1:].max())


def visible(layer: Layer, length: int) -> np.ndarray:
    """``[T, T]``: which keys a query sees by our reading of the layer."""
    lag = np.arange(length)[:, None] - np.arange(length)[None, :]
    seen = lag >= 0 if layer.causal.value else np.ones_like(lag, dtype=bool)
    if layer.window.value is not None:
        reach = layer.window.value
        seen = seen & (lag < reach) & (layer.causal.value | (lag > -reach))
    return seen


def errors(case: Case, folder: Path, padding: int = 37, seed: int = 0) -> list[float]:
    """The largest error of each layer over both sequences."""
    return compared(case, folder, run(case, build(case, folder, seed), padding))


def compared(case: Case, folder: Path, found: Run) -> list[float]:
    """The largest error of each layer of a run over both sequences."""
    reading = reading_of(case, folder, case.length)
    layers = [layer for layer in reading.layers if case.only is None or layer.index in case.only]
    assert len(layers) == len(found.inputs), f"{len(layers)} layers, {len(found.inputs)} ran"
    made = []
    for layer, x, logits in zip(layers, found.inputs, found.logits, strict=True):
        by_sequence = []
        for sequence in range(2):
            kept = found.mask[sequence]
            shared = layer.shared_kv_layer.value
            keys = None if shared is None else found.inputs[shared][sequence][kept]
            by_sequence.append(
                largest_error(layer, x[sequence][kept], logits[sequence][:, kept][:, :, kept], keys)
            )
        made.append(max(by_sequence))
    return made
