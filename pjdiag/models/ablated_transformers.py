"""Hugging Face models without parts of their positions: the same weights, other logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pjdiag.errors import AdapterError
from pjdiag.models.ablation import HINT, LayerChange
from pjdiag.models.huggingface.attention import is_attached
from pjdiag.models.huggingface.interface import Ablation, ablations


@contextmanager
def ablated(model: nn.Module, changes: Mapping[int, LayerChange]) -> Iterator[None]:
    """Takes ``changes``, by layer, out of the attention of ``model`` while it runs.

    Behind transformers' attention interface any change; in BLOOM and MPT, which add their ALiBi by
    themselves, that of the whole bias. Raises AdapterError for another model, and, at the end of
    the block, where a changed layer did not attend.
    """
    with ExitStack() as stack:
        ablation = Ablation(changes)
        if is_attached(model):
            _through_the_interface(model, ablation, stack)
        else:
            _by_argument(model, ablation, stack)
        yield
    left = set(changes) - ablation.changed
    if left:
        raise AdapterError(
            f"layer {min(left)} of {type(model).__name__} did not attend; nothing was removed "
            "there",
            HINT,
        )


def require_removable(model: nn.Module) -> None:
    """Raises AdapterError for a model of which no part can be removed while it runs."""
    if not is_attached(model) and not any(_edit(module) for module in model.modules()):
        raise _beside_the_interface(model)


def _beside_the_interface(model: nn.Module) -> AdapterError:
    return AdapterError(
        f"{type(model).__name__} does not attend through transformers' attention interface; "
        "this part cannot be removed from it while it runs",
        HINT,
    )


def _through_the_interface(model: nn.Module, ablation: Ablation, stack: ExitStack) -> None:
    def forget() -> None:
        for module in model.modules():
            ablations.pop(module, None)

    stack.callback(forget)
    stack.callback(model.register_forward_pre_hook(ablation.restart).remove)
    for module in model.modules():
        ablations[module] = ablation


def _by_argument(model: nn.Module, ablation: Ablation, stack: ExitStack) -> None:
    """Changes the table of ALiBi that each attention module is given."""
    found = 0
    for module in model.modules():
        edit = _edit(module)
        if edit is not None:
            hook = _Edited(*edit, found, ablation)
            handle = module.register_forward_pre_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
            found += 1
    refused = [change for change in ablation.changes.values() if not change.whole_bias]
    if not found or refused:
        raise _beside_the_interface(model)


class _Edited:
    """A hook that changes one argument of one module."""

    def __init__(
        self,
        argument: str,
        edit: Callable[[Tensor, LayerChange], Tensor],
        index: int,
        ablation: Ablation,
    ) -> None:
        self._argument, self._edit = argument, edit
        self._index, self._ablation = index, ablation

    def __call__(self, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        """Arguments as the module then gets them."""
        change = self._ablation.changes.get(self._index)
        if change is None:
            return None
        if kwargs.get(self._argument) is None:
            raise AdapterError(f"layer {self._index} is given no {self._argument}", HINT)
        self._ablation.changed.add(self._index)
        edited = self._edit(kwargs[self._argument], change)
        return args, {**kwargs, self._argument: edited}


def _edit(module: nn.Module) -> tuple[str, Callable[[Tensor, LayerChange], Tensor]] | None:
    kind = type(module)
    return _EDITS.get(kind.__name__) if kind.__module__.startswith("transformers.models.") else None


def _bloom(table: Tensor, change: LayerChange) -> Tensor:
    """``[B H, 1, T]``, or ``[B H, T, T]`` for a control."""
    heads = len(change.heads)
    by_window = table.view(-1, heads, 1, table.shape[-1])
    return _left(by_window, change).flatten(0, 1)


def _mpt(table: Tensor, change: LayerChange) -> Tensor:
    """``[H, 1, N]`` for all positions that the model knows, or ``[H, T, T]`` for a control.

    The last T of them are read.
    """
    return _left(table[None], change)[0]


def _left(table: Tensor, change: LayerChange) -> Tensor:
    """What is left of slope times key position, ``[B, H, 1 or T, T]``.

    A control depends on the lag, and needs the square table that these models build anyway.
    """
    heads = change.heads[:, None, None]
    if change.signs is None:
        return table.masked_fill(heads, 0.0)
    length = change.signs.shape[-1]
    table = table[..., -length:]
    lags = torch.arange(length)[:, None] - torch.arange(length)
    slopes = (table[..., -1:] - table[..., -2:-1]) if length > 1 else table[..., -1:]
    bias = -slopes * lags.clamp(min=0).to(table.dtype)  # the table, less what softmax ignores
    left = bias * (1 - change.signs.to(table.dtype)[:, lags.clamp(min=0)])
    return torch.where(heads, left, table)


_EDITS: dict[str, tuple[str, Callable[[Tensor, LayerChange], Tensor]]] = {
    "BloomAttention": ("alibi", _bloom),
    "MptAttention": ("position_bias", _mpt),
}
"""By class: the argument that carries the bias, and how it is changed."""
