"""Attention masks as a rule of the lag and of the padding, so that no T x T table is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


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

    def table(self, query_length: int, key_length: int, device: torch.device | str) -> Tensor:
        """Where a query may look, ``[1 or B, 1, T_q, T_k]``."""
        queries = torch.arange(query_length, device=device)[:, None] + self.offset
        lags = queries - torch.arange(key_length, device=device)
        keep = self.keep(lags)
        keep = (torch.ones_like(lags, dtype=torch.bool) if keep is None else keep)[None, None]
        return keep if self.present is None else keep & self.present[:, None, None]

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
    dtype: torch.dtype = torch.float32,
    **others: Any,
) -> Tensor | None:
    """The mask ``[B, 1, T_q, T_k]`` that transformers' models hand on to their attention.

    A ``RuleMask`` for causal or bidirectional attention, windows and padding; for anything else,
    and where the model wants a table, what transformers gives its eager attention, which every
    class can handle. It is never None, since None is read as causal or not by what the module
    says of itself.
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
            dtype=dtype,
            **position,
            **others,
        )
    causal, window = pattern
    first_key = int(kv_offset)
    present = _present(attention_mask, first_key, kv_length)
    rule = MaskRule(causal, window, int(q_offset) - first_key, present)
    return RuleMask.of(rule, (batch_size, 1, q_length, kv_length), device, dtype)


class RuleMask(Tensor):
    """A mask to add to logits, 0 = keep, that is a rule until somebody looks at its entries.

    Models hand it on as it is, and no table is ever built. Where one cuts or joins its mask, the
    table is built then, and what comes out is an ordinary mask.

    >>> made = RuleMask.of(MaskRule(causal=True, window=2), (1, 1, 3, 3))
    >>> made.shape, (made[0, 0] == 0).int().tolist(), type(made[0, 0]).__name__
    (torch.Size([1, 1, 3, 3]), [[1, 0, 0], [1, 1, 0], [0, 1, 1]], 'Tensor')
    """

    rule: MaskRule
    _built: Tensor | None

    @classmethod
    def of(
        cls,
        rule: MaskRule,
        shape: tuple[int, int, int, int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> RuleMask:
        """The mask ``[B, 1, T_q, T_k]`` of ``rule``; its own entries take no memory."""
        made = torch.zeros(1, dtype=dtype, device=device).expand(shape).as_subclass(cls)
        made.rule, made._built = rule, None
        return made

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Shape and type are those of the mask; anything else is asked of the table."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_THE_SHAPE or _takes_all(func, args):
                return args[0] if _takes_all(func, args) else func(*args, **(kwargs or {}))
            return func(*_with_tables(args), **_with_tables(kwargs or {}))

    def table(self) -> Tensor:
        """The mask as a table; it is built once."""
        if self._built is None:
            keep = self.rule.table(self.shape[2], self.shape[3], self.device).expand(self.shape)
            hidden = torch.finfo(self.dtype).min
            self._built = torch.zeros_like(keep, dtype=self.dtype).masked_fill(~keep, hidden)
        return self._built


_OF_THE_SHAPE = {
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.is_floating_point,
    *(
        getattr(Tensor, name).__get__
        for name in ("shape", "ndim", "dtype", "device", "layout", "requires_grad", "is_cuda")
    ),
}
"""What is asked of a mask without looking at its entries."""


def _takes_all(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether this is an index that leaves nothing out, such as ``mask[:, :, :, :T_k]``."""
    if func is not Tensor.__getitem__ or not isinstance(args[0], RuleMask):
        return False
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    shape = args[0].shape
    return len(index) <= len(shape) and all(
        isinstance(part, slice) and part.indices(size) == (0, size, 1)
        for part, size in zip(index, shape, strict=False)
    )


def _with_tables(given: Any) -> Any:
    if isinstance(given, RuleMask):
        return given.table()
    if isinstance(given, tuple | list):
        return type(given)(_with_tables(part) for part in given)
    if isinstance(given, dict):
        return {name: _with_tables(part) for name, part in given.items()}
    return given


def _table(**arguments: Any) -> Tensor | None:
    from transformers.masking_utils import eager_mask

    made: Tensor | None = eager_mask(**arguments)
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
