"""Hugging Face models without parts of their positions: the same weights, other logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from pjdiag.errors import AdapterError
from pjdiag.models.ablation import HINT, LayerChange
from pjdiag.models.huggingface.attention import is_attached
from pjdiag.models.huggingface.interface import Ablation, ablations
from pjdiag.models.huggingface.removals import Removal, removal_of


@contextmanager
def ablated(model: nn.Module, changes: Mapping[int, LayerChange]) -> Iterator[None]:
    """Takes ``changes``, by layer, out of the attention of ``model`` while it runs.

    Behind transformers' attention interface any change; in modules that attend by themselves, what
    ``huggingface.removals`` knows of them: the ALiBi of BLOOM, MPT and Falcon, the channels of
    Falcon and GPT-NeoX Japanese. Raises AdapterError for another model, and, at the end
    of the block, where a changed layer did not attend.
    """
    with ExitStack() as stack:
        ablation = Ablation(changes)
        if is_attached(model):
            _through_the_interface(model, ablation, stack)
        else:
            _by_module(model, ablation, stack)
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
    if not is_attached(model) and not _removable(model):
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


def _by_module(model: nn.Module, ablation: Ablation, stack: ExitStack) -> None:
    """Changes what each attention module is given, or what it makes of that."""
    removable = _removable(model)
    for index, (module, removal) in enumerate(removable):
        change = ablation.changes.get(index)
        if change is None:
            continue
        if not removal.covers(change):
            raise _beside_the_interface(model)
        hook = _Edited(removal, change, index, ablation)
        stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        if change.channels is not None and removal.channels is not None:
            removal.channels(module, change, stack)
    if not removable:
        raise _beside_the_interface(model)


def _removable(model: nn.Module) -> list[tuple[nn.Module, Removal]]:
    """Attention modules in the order of their layers."""
    entries = ((module, removal_of(module)) for module in model.modules())
    return [(module, removal) for module, removal in entries if removal is not None]


class _Edited:
    """A hook that notes that a layer attends, and leaves its bias out where it is to go."""

    def __init__(
        self, removal: Removal, change: LayerChange, index: int, ablation: Ablation
    ) -> None:
        self._removal, self._change = removal, change
        self._index, self._ablation = index, ablation

    def __call__(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        """Arguments as the module then gets them."""
        self._ablation.changed.add(self._index)
        if not self._change.whole_bias or self._removal.bias is None:
            return None
        return args, {**kwargs, **self._removal.bias(module, kwargs, self._change)}
