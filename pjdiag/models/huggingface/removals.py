"""How attention modules outside transformers' interface lose a part of their logits.

One entry a class: how its bias goes, by the arguments that it is given, and how channels go, by
what it makes of its input. Channels are taken out before the rotation: it turns the two channels
of a pair into each other alone, so a removal of whole pairs is the same after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pjdiag.errors import AdapterError
from pjdiag.models.ablation import HINT, LayerChange

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Removal:
    """What the modules of one class can lose."""

    bias: Callable[[Any, Arguments, LayerChange], Arguments] | None = None
    """Arguments of one call to those that leave the bias out."""
    channels: Callable[[Any, LayerChange, ExitStack], None] | None = None
    """Changes a module until the stack closes."""

    def covers(self, change: LayerChange) -> bool:
        """Whether all of ``change`` can go."""
        bias = self.bias is not None or not change.whole_bias
        channels = self.channels is not None or change.channels is None
        return bias and channels and change.line is None


def removal_of(module: nn.Module) -> Removal | None:
    """The entry of ``module``'s class; None where there is none."""
    kind = type(module)
    return (
        REMOVALS.get(kind.__name__) if kind.__module__.startswith("transformers.models.") else None
    )


def _given(arguments: Arguments, name: str) -> Tensor:
    table = arguments.get(name)
    if table is None:
        raise AdapterError(f"a layer that is to lose its bias is given no {name}", HINT)
    found: Tensor = table
    return found


def _bloom(_: Any, arguments: Arguments, change: LayerChange) -> Arguments:
    """``[B H, 1, T]``, or ``[B H, T, T]`` for a control."""
    table = _given(arguments, "alibi")
    by_window = table.view(-1, len(change.heads), 1, table.shape[-1])
    return {"alibi": _left(by_window, change).flatten(0, 1)}


def _mpt(_: Any, arguments: Arguments, change: LayerChange) -> Arguments:
    """``[H, 1, N]`` for all positions that the model knows, or ``[H, T, T]`` for a control.

    The last T of them are read.
    """
    return {"position_bias": _left(_given(arguments, "position_bias")[None], change)[0]}


def _left(table: Tensor, change: LayerChange) -> Tensor:
    """What is left of slope times key position, ``[B, H, 1 or T, T]``.

    A control depends on the lag, and needs the square table that these models build anyway.
    """
    heads = change.heads[:, None, None]
    if change.signs is None:
        return table.masked_fill(heads, 0.0)
    length = change.signs.shape[-1]
    table = table[..., -length:]
    slopes = (table[..., -1:] - table[..., -2:-1]) if length > 1 else table[..., -1:]
    lags = _lags(length)
    bias = -slopes * lags.to(table.dtype)  # the table, less what softmax ignores
    left = bias * (1 - change.signs.to(table.dtype)[:, lags])
    return torch.where(heads, left, table)


def _lags(length: int) -> Tensor:
    """``[T, T]``: i - j, 0 for keys ahead."""
    return (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)


def _falcon(module: Any, arguments: Arguments, change: LayerChange) -> Arguments:
    """The bias of a key is in the mask, ``[B, H, T, T]``, divided by sqrt(head_dim).

    Outside of sdpa, transformers 5 adds the table ``[B, H, 1, T]`` once more by itself. What is
    left is written into the mask, and the changed heads of the table become 0.
    """
    table, mask = _given(arguments, "alibi"), _given(arguments, "attention_mask")
    count, length = len(change.heads), table.shape[-1]
    if mask.ndim != 4 or mask.shape[1:] != (count, length, length):
        raise AdapterError(
            f"a layer that is to lose its bias is given a mask of shape {list(mask.shape)}; "
            f"expected [batch, {count}, {length}, {length}], with the bias in it",
            HINT,
        )
    sdpa = module.config._attn_implementation == "sdpa" and not arguments.get("output_attentions")
    heads = change.heads[:, None, None]
    by_key = table.view(-1, count, 1, length)
    left = torch.zeros_like(mask)
    if change.signs is not None:
        scale = (1 if sdpa else 2) / math.sqrt(module.head_dim)
        bias = scale * (by_key - by_key.mT)  # softmax ignores what all keys of a query have
        left = bias * (1 - change.signs.to(bias.dtype)[:, _lags(length)])
    seen = mask > torch.finfo(mask.dtype).min / 2
    return {
        "alibi": by_key.masked_fill(heads, 0.0).view_as(table),
        "attention_mask": torch.where(heads & seen, left.to(mask.dtype), mask),
    }


def _falcon_channels(module: Any, change: LayerChange, stack: ExitStack) -> None:
    """Where the fused projection is split. A control gives each head keys of its own."""
    original = module._split_heads

    def split(fused: Tensor) -> tuple[Tensor, ...]:
        parts = (part.transpose(1, 2) for part in original(fused))
        return tuple(part.transpose(1, 2) for part in change.products(*parts))

    _held(module, "_split_heads", split, stack)
    if change.signs is not None and not module.new_decoder_architecture:
        _held(module, "num_kv_heads", module.num_heads, stack)  # of the split keys and values


def _held(module: Any, name: str, value: Any, stack: ExitStack) -> None:
    """Gives ``module`` an attribute until ``stack`` closes."""
    own = vars(module)
    if name in own:
        stack.callback(setattr, module, name, own[name])
    else:
        stack.callback(delattr, module, name)
    setattr(module, name, value)


def _fused_channels(module: Any, change: LayerChange, stack: ExitStack) -> None:
    """GPT-NeoX Japanese: fused rows [head, (q, k, v), d]."""

    def edited(_: nn.Module, __: Any, fused: Tensor) -> Tensor:
        shape = (*fused.shape[:-1], module.num_attention_heads, -1)
        by_head = fused.reshape(shape).transpose(1, 2)
        parts = change.products(*by_head.chunk(3, dim=-1))
        return torch.cat(parts, dim=-1).transpose(1, 2).flatten(2)

    stack.callback(module.query_key_value.register_forward_hook(edited).remove)


REMOVALS: dict[str, Removal] = {
    "BloomAttention": Removal(bias=_bloom),
    "FalconAttention": Removal(bias=_falcon, channels=_falcon_channels),
    "GPTNeoXJapaneseAttention": Removal(channels=_fused_channels),
    "MptAttention": Removal(bias=_mpt),
}
"""By class."""
