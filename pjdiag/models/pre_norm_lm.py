"""A small pre-norm language model without biases, run through a reading of its positions.

RMSNorm, causal attention, RMSNorm, GELU (exact), a head tied to the embedding. What an adapter
says of the positions (a transform of queries and keys, a bias by lag) is all that is known of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu

from pjdiag.models.running import Observer, RunningAttention
from pjdiag.position.transforms import PositionTransform

EPS = 1e-6
TILE_ELEMENTS = 2**20
"""Logits that are in memory at once: those of some queries of one head."""
NAMES = ("norm1", "norm2", "qkv", "mixing", "up", "down")


@dataclass(frozen=True)
class PreNormBlock:
    """One block; E channels, H heads. All tensors have one type."""

    norms: tuple[Tensor, Tensor]
    """Gains ``[E]`` before the attention and before the feed-forward network."""
    qkv: Tensor
    """``[3 E, E]``: rows of the queries, the keys and the values, head by head."""
    mixing: Tensor
    """``[E, E]``."""
    feed_forward: tuple[Tensor, Tensor]
    """``[F, E]`` and ``[E, F]``."""
    heads: int
    scale: float
    transform: PositionTransform
    bias: Callable[[Tensor], Tensor] | None = None
    """Lags ``[T]`` to logits ``[H, T]``."""


@dataclass(frozen=True)
class PreNormLM:
    """The whole model. Heads attend one after the other, some queries at a time.

    Memory is linear in T.

    >>> block = PreNormBlock((torch.ones(4), torch.ones(4)), torch.ones(12, 4), torch.eye(4),
    ...     (torch.ones(8, 4), torch.ones(4, 8)), 2, 0.5, PositionTransform(2))
    >>> model = PreNormLM(torch.ones(5, 4), [block], torch.ones(4))
    >>> model.logits(model.hidden(torch.zeros(1, 3, dtype=torch.long))).shape
    torch.Size([1, 3, 5])
    """

    embedding: Tensor
    """``[V, E]``, of the head too."""
    blocks: Sequence[PreNormBlock]
    norm: Tensor
    """Gain ``[E]`` before the head."""

    @property
    def vocabulary(self) -> int:
        """V, number of different tokens."""
        return self.embedding.shape[0]

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with a name, as a ``torch.nn.Module`` gives them."""
        yield "embedding", self.embedding
        for index, block in enumerate(self.blocks):
            parts = (*block.norms, block.qkv, block.mixing, *block.feed_forward)
            for name, tensor in zip(NAMES, parts, strict=True):
                yield f"block {index} {name}", tensor
        yield "norm", self.norm

    def hidden(self, ids: Tensor, observe: Observer | None = None) -> Tensor:
        """``[B, T, E]`` before the head, for ids ``[B, T]``; ``observe`` is told of each layer."""
        x = self.embedding[ids]
        for index, block in enumerate(self.blocks):
            seen = _attention(block, _normed(x, block.norms[0]))
            if observe is not None:
                observe(index, seen[0])
            x = x + _mixed(*seen) @ block.mixing.T
            up, down = block.feed_forward
            x = x + gelu(_normed(x, block.norms[1]) @ up.T) @ down.T
        return _normed(x, self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[.., V]``."""
        return hidden @ self.embedding.T


def _normed(x: Tensor, gain: Tensor) -> Tensor:
    made: Tensor = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * gain
    return made


def _attention(block: PreNormBlock, x: Tensor) -> tuple[RunningAttention, Tensor]:
    """What is observed, and the values ``[B, H, T, D]``."""
    batch, length, _ = x.shape
    projected = (x @ block.qkv.T).view(batch, length, 3, block.heads, -1)
    q, k, v = projected.permute(2, 0, 3, 1, 4)
    positions = torch.arange(length, dtype=x.dtype)
    bias = None if block.bias is None else block.bias(positions)
    turned = block.transform.query(q, positions), block.transform.key(k, positions)
    return RunningAttention(*turned, bias, block.scale), v


def _mixed(seen: RunningAttention, values: Tensor) -> Tensor:
    """``[B, T, E]`` before the mixing of the heads."""
    batch, heads, length, width = values.shape
    rows = max(1, TILE_ELEMENTS // (batch * length))
    mixed = values.new_empty(batch, length, heads * width)
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        lags = torch.arange(start, stop)[:, None] - torch.arange(stop)  # no key after the tile
        for head in range(heads):
            logits = seen.scale * seen.queries[:, head, start:stop] @ seen.keys[:, head, :stop].mT
            if seen.bias_by_lag is not None:
                logits += seen.bias_by_lag[head][lags.clamp(min=0)]
            weights = logits.masked_fill_(lags < 0, -torch.inf).softmax(-1)
            place = slice(head * width, (head + 1) * width)
            mixed[:, start:stop, place] = weights @ values[:, head, :stop]
    return mixed
