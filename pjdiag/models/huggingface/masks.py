"""Attention masks as a rule of the lag and of the padding, so that no T x T table is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

RULE = "pjdiag_rule"
"""Attribute of a mask that stands for a rule."""


@dataclass(frozen=True)
class MaskRule:
    """Which keys a query may see."""

    causal: bool
    window: int | None = None
    """Keys seen, the token itself included; without causality as many on either side."""
    offset: int = 0
    """Position of the first query less that of the first key."""
    present: Tensor | None = None
    """``[B, T_k]``, False on padding; None: no padding."""

    def reaches_all(self, query_length: int, key_length: int) -> bool:
        """Whether the window leaves out nothing."""
        if self.window is None:
            return True
        furthest = self.offset + query_length - 1
        if not self.causal:
            furthest = max(furthest, key_length - 1 - self.offset)
        return furthest < self.window

    def keep(self, lags: Tensor) -> Tensor | None:
        """Where ``lags`` may be seen, of their shape; None: everywhere. Padding is not counted."""
        if not self.causal:
            return None if self.window is None else lags.abs() < self.window
        seen = lags >= 0
        return seen if self.window is None else seen & (lags < self.window)


def mask(
    batch_size: int,
    kv_length: int,
    mask_function: Callable[..., Any],
    q_length: int | None = None,
    cache_position: Tensor | None = None,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Tensor | None:
    """The mask that transformers' models hand on to their attention.

    None for plain causal attention without padding. A tensor that stands for its ``MaskRule``
    for causal or bidirectional attention, windows and padding: ``[B, 1, T_q, T_k]``, all False,
    without memory of its own. For anything else transformers' own boolean mask, True = keep.
    """
    if cache_position is not None:  # transformers 4
        q_length, q_offset = len(cache_position), int(cache_position[0])
    if q_length is None:
        raise TypeError("the mask needs q_length or cache_position")
    pattern = _pattern(mask_function)
    if pattern is None or not (allow_is_causal_skip or allow_is_bidirectional_skip):
        position = (
            {"q_length": q_length, "q_offset": q_offset}
            if cache_position is None
            else {"cache_position": cache_position}
        )
        return _table(
            batch_size=batch_size,
            kv_length=kv_length,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            allow_is_bidirectional_skip=False,
            device=device,
            **position,
            **others,
        )
    causal, window = pattern
    first_key = int(kv_offset)
    rule = MaskRule(
        causal, window, int(q_offset) - first_key, _present(attention_mask, first_key, kv_length)
    )
    plain = causal and rule.present is None and rule.reaches_all(q_length, kv_length)
    if plain and rule.offset == kv_length - q_length:
        return None
    return stands_for(rule, (batch_size, 1, q_length, kv_length), device)


def stands_for(rule: MaskRule, shape: tuple[int, ...], device: torch.device | str) -> Tensor:
    """A mask of ``shape`` that stands for ``rule``."""
    made = torch.zeros((1,) * len(shape), dtype=torch.bool, device=device).expand(shape)
    setattr(made, RULE, rule)
    return made


def rule_of(attention_mask: Tensor) -> MaskRule | None:
    """The rule that a mask stands for; None for a table of its own."""
    rule: MaskRule | None = getattr(attention_mask, RULE, None)
    return rule


def _table(**arguments: Any) -> Tensor | None:
    from transformers.masking_utils import sdpa_mask

    made: Tensor | None = sdpa_mask(**arguments)
    return made


def _pattern(function: Callable[..., Any]) -> tuple[bool, int | None] | None:
    """(causal, window) of one of transformers' own patterns; None for any other.

    Patterns with a window are closures. They are known by their code and by what they close over.
    """
    from transformers import masking_utils as known

    bidirectional = getattr(known, "bidirectional_mask_function", None)
    if function is known.causal_mask_function:
        return True, None
    if function is bidirectional:
        return False, None
    parts = _closed_over(function, known.and_masks(known.causal_mask_function))
    if parts is None or len(parts) != 1 or len(parts[0]) != 2:
        return None
    overlay, base = parts[0]
    if base is known.causal_mask_function:
        window = _closed_over(overlay, known.sliding_window_overlay(1))
        return None if window is None else (True, int(window[0]))
    if base is bidirectional and hasattr(known, "sliding_window_bidirectional_overlay"):
        window = _closed_over(overlay, known.sliding_window_bidirectional_overlay(1))
        return None if window is None else (False, int(window[0]) + 1)  # it counts distances
    return None


def _closed_over(function: Any, like: Any) -> list[Any] | None:
    """What ``function`` closes over where its code is that of ``like``."""
    if getattr(function, "__code__", None) is not like.__code__:
        return None
    return [cell.cell_contents for cell in function.__closure__]


def _present(attention_mask: Tensor | None, first: int, length: int) -> Tensor | None:
    """``[B, T_k]`` of the keys at hand, or None where none of them is padding."""
    if attention_mask is None:
        return None
    held = attention_mask[:, first : first + length].bool()
    missing = length - held.shape[-1]
    if missing:
        held = torch.nn.functional.pad(held, (0, missing))
    return None if bool(held.all()) else held
