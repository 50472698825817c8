"""Losses by position and attention statistics of a ``CausalLM``, with memory linear in T."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjdiag.errors import AdapterError
from pjdiag.models.capture import observed_attention
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.losses import losses_from_logits
from pjdiag.models.running import RunningAttention
from pjdiag.position.attention_statistics import attention_statistics

HEAD_TOKENS = 4096
"""Positions to which the output head is applied at once: ``[T, V]`` logits never exist whole."""
FIGURES = ("attention_entropy", "mean_distance", "sink_mass")


@dataclass(frozen=True)
class Evaluated:
    """What a model makes of B windows of T + 1 tokens."""

    losses: NDArray[np.float64]
    """``[B, T]`` nats: the negative log-likelihood of the token after each position."""
    attention: NDArray[np.float64] | None
    """``[layers, H, spans, len(FIGURES)]``, means over the windows and the positions of a span;
    None where they were not asked for."""


@torch.no_grad()
def evaluate(
    model: CausalLM,
    tokens: NDArray[np.integer],
    attention_spans: Sequence[tuple[int, int]] | None = None,
    head_tokens: int = HEAD_TOKENS,
) -> Evaluated:
    """Next-token losses of ``tokens`` ``[B, T + 1]``, read from the first position on.

    With ``attention_spans`` (first and last position of each, both included) also the attention
    statistics of every head. The head is applied to ``head_tokens`` positions at a time.

    >>> from pjdiag.models.config import ModelConfig
    >>> model = CausalLM(ModelConfig(embed_dim=16, num_heads=2, layers=1))
    >>> found = evaluate(model, np.zeros((3, 9), dtype=np.uint8), [(0, 3), (4, 7)])
    >>> found.losses.shape, found.attention.shape
    ((3, 8), (1, 2, 2, 3))
    """
    windows = torch.from_numpy(np.asarray(tokens, dtype=np.int64)).to(_device(model))
    read, wanted = windows[:, :-1], windows[:, 1:]
    layers: list[Tensor] = []
    if attention_spans is None:
        states = model.hidden(read)
    else:
        spans = list(attention_spans)

        def observe(_: int, seen: RunningAttention) -> None:
            layers.append(attention_by_span(seen, spans))

        with observed_attention(model, observe):
            states = model.hidden(read)
    losses = token_losses(model, states, wanted, max(1, head_tokens // len(windows)))
    attention = torch.stack(layers).cpu().numpy() if layers else None
    return Evaluated(losses.double().cpu().numpy(), attention)


@torch.no_grad()
def next_log_probabilities(
    model: CausalLM, ids: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``[B, C]``: log-probability of each of ``candidates`` ``[B, C]`` as the token after ``ids``.

    ``ids`` is ``[B, T]``. The head is applied to the last position only.

    >>> from pjdiag.models.config import ModelConfig
    >>> model = CausalLM(ModelConfig(embed_dim=16, num_heads=2, layers=1))
    >>> every = next_log_probabilities(model, np.zeros((1, 9), np.int64), np.arange(256)[None])
    >>> every.shape, round(float(np.exp(every).sum()), 6)
    ((1, 256), 1.0)
    """
    device = _device(model)
    states = model.hidden(torch.from_numpy(np.asarray(ids, dtype=np.int64)).to(device))[:, -1]
    wanted = torch.from_numpy(np.ascontiguousarray(candidates)).to(device)
    found: NDArray[np.float64] = (
        model.head(states).log_softmax(-1).gather(1, wanted).double().cpu().numpy()
    )
    return found


def _device(model: CausalLM) -> torch.device:
    return next(model.parameters()).device


def token_losses(model: CausalLM, states: Tensor, wanted: Tensor, positions: int) -> Tensor:
    """``[B, T]`` nats of ``wanted`` ``[B, T]``, from the states ``[B, T, E]`` before them.

    The head is applied to ``positions`` at a time.
    """
    pieces = [
        losses_from_logits(model.head(part), target)
        for part, target in zip(
            torch.split(states, positions, dim=1),
            torch.split(wanted, positions, dim=1),
            strict=True,
        )
    ]
    return torch.cat(pieces, dim=1)


@torch.no_grad()
def attention_by_span(seen: RunningAttention, spans: Sequence[tuple[int, int]]) -> Tensor:
    """``[H, len(spans), len(FIGURES)]`` of one causal layer: means over windows and positions.

    Grouped keys, windows and soft caps are honoured. Raises AdapterError for a layer that looks
    ahead.
    """
    if not seen.causal:
        raise AdapterError(
            "a layer looks ahead; its attention has no recency to speak of",
            "leave --attention out",
        )
    queries, keys, line = seen.queries, seen.keys, seen.bias_by_lag
    length = queries.shape[2]
    if keys.shape[1] != queries.shape[1]:
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
    if seen.window is not None and seen.window < length:
        line = queries.new_zeros(queries.shape[1], length) if line is None else line.clone()
        line[:, seen.window :] = -torch.inf
    found = attention_statistics(queries, keys, line, seen.scale, softcap=seen.softcap)
    figures = torch.stack([getattr(found, name) for name in ("entropy", *FIGURES[1:])], dim=-1)
    return torch.stack(
        [figures[:, :, first : last + 1].mean(dim=(0, 2)) for first, last in spans], dim=1
    )
