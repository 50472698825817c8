"""A small causal language model without parts of its positions; what did not change is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pjdiag.models.ablation import LayerChange
from pjdiag.models.causal_lm import CausalLM
from pjdiag.models.evaluation import HEAD_TOKENS, token_losses
from pjdiag.models.running import Observer, RunningAttention

SLICE_TOKENS = 4096
"""Tokens that run through the layers at once without a part: their states stay in the caches."""


@dataclass(frozen=True)
class _Entered:
    """What a layer starts from in the unchanged model."""

    states: Tensor
    """``[B, T, E]``, what enters the block."""
    projected: tuple[Tensor, Tensor, Tensor]


class AblatedLM:
    """The losses of ``model`` over one batch of windows, whole and without parts.

    Layers before the first changed one are not run again; nor are the projections of that one, if
    it is among ``starts``. Their states take memory: ``[B, T, 4 E]`` for each of ``starts``.
    """

    def __init__(self, model: CausalLM, starts: Collection[int]) -> None:
        self._model = model
        self._starts = frozenset(starts)
        self._entered: dict[int, _Entered] = {}
        self._lines: list[Tensor | None] = []
        self._wanted = torch.empty(0)

    @torch.no_grad()
    def whole(self, tokens: NDArray[np.integer], observe: Observer) -> NDArray[np.float64]:
        """``[B, T]`` nats of windows ``[B, T + 1]``; ``observe`` is told of each layer."""
        windows = torch.from_numpy(np.asarray(tokens, dtype=np.int64))
        read, self._wanted = windows[:, :-1], windows[:, 1:]
        positions = _positions(read)
        self._entered.clear()
        self._lines.clear()
        x = self._model.embedding(read)
        for index, block in enumerate(self._blocks):
            bias = block.attn.pj_bias
            line = None if bias is None else bias(positions)
            self._lines.append(line)
            entered = _Entered(x, block.attn.projected(block.norm1(x), positions))
            if index in self._starts:
                self._entered[index] = entered
            q, k, v = entered.projected
            observe(index, RunningAttention(q, k, line, block.attn.scale))
            x = block.after_attention(x, block.attn.mixed(q, k, v, line))
        return self._losses(x, self._wanted)

    @torch.no_grad()
    def without(self, changes: Mapping[int, LayerChange]) -> NDArray[np.float64]:
        """``[B, T]`` nats of the same windows; ``changes`` are by layer.

        Raises KeyError where the first changed layer is not among ``starts``.
        """
        first = min(changes)
        entered = self._entered[first]
        windows, length, _ = entered.states.shape
        positions = _positions(entered.states)
        lines = [
            change.bias(line) if (change := changes.get(index)) is not None else line
            for index, line in enumerate(self._lines)
        ]
        at_once = max(1, SLICE_TOKENS // length)
        return np.concatenate(
            [
                self._slice(first, slice(start, start + at_once), changes, lines, positions)
                for start in range(0, windows, at_once)
            ]
        )

    def _slice(
        self,
        first: int,
        windows: slice,
        changes: Mapping[int, LayerChange],
        lines: Sequence[Tensor | None],
        positions: Tensor,
    ) -> NDArray[np.float64]:
        """The losses of some windows; ``lines`` is what is left of each layer's bias."""
        x = self._entered[first].states[windows]
        for index in range(first, len(self._blocks)):
            block, change = self._blocks[index], changes.get(index)
            if index == first:
                q, k, v = (part[windows] for part in self._entered[first].projected)
            else:
                q, k, v = block.attn.projected(block.norm1(x), positions)
            if change is not None:
                q, k, v = change.products(q, k, v)
            x = block.after_attention(x, block.attn.mixed(q, k, v, lines[index]))
        return self._losses(x, self._wanted[windows])

    @property
    def _blocks(self) -> Any:
        return self._model.blocks

    def _losses(self, x: Tensor, wanted: Tensor) -> NDArray[np.float64]:
        states = self._model.norm(x)
        at_once = max(1, HEAD_TOKENS // len(states))
        found: NDArray[np.float64] = (
            token_losses(self._model, states, wanted, at_once).double().numpy()
        )
        return found


def _positions(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1], dtype=torch.float32)
