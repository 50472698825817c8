"""One attention for every model behind transformers' attention interface."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import nn

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface import masks
from pjdiag.models.huggingface.interface import BIAS, Watch, attention, watches
from pjdiag.models.huggingface.outside import has_capture, hooked
from pjdiag.models.running import Observer

__all__ = [
    "BIAS",
    "NAME",
    "attach",
    "attention",
    "behind_interface",
    "detach",
    "is_attached",
    "observed",
    "register",
]

NAME = "pjdiag"
"""Of the attention and of the mask function, as transformers knows them."""
PREVIOUS = "_pjdiag_previous"

ModelT = TypeVar("ModelT", bound=nn.Module)


@contextmanager
def observed(model: nn.Module, observe: Observer) -> Iterator[None]:
    """Calls ``observe`` with each layer's index and attention while ``model`` runs.

    The model must be attached, or have attention modules that are observed by hooks. Windows are
    read whole: no cache, as many keys as queries. Raises AdapterError for any other model, and,
    from the model's run, for a layer whose mask or bias cannot be put into words.

    >>> import torch
    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=2,
    ...     num_attention_heads=4, num_key_value_heads=2, vocab_size=8)
    >>> model = attach(LlamaModel(config))
    >>> with observed(model, lambda index, seen: print(index, seen.keys.shape)):
    ...     _ = model(torch.zeros(1, 5, dtype=torch.long), use_cache=False)
    0 torch.Size([1, 2, 5, 4])
    1 torch.Size([1, 2, 5, 4])
    """
    if not (is_attached(model) or has_capture(model)):
        raise AdapterError(
            f"{type(model).__name__} has no attention that can be observed",
            "attach it, or update transformers; `pjdiag inspect` reads the weights alone",
        )
    watch = Watch(observe)
    modules = list(model.modules())
    with hooked(model, watch.tell) as hooks:

        def restart(*_: Any) -> None:
            watch.told.clear()
            hooks.rules.clear()

        handle = model.register_forward_pre_hook(restart)
        try:
            for module in modules:
                watches[module] = watch
            yield
        finally:
            handle.remove()
            for module in modules:
                watches.pop(module, None)


def register() -> None:
    """Make the attention and its masks known to transformers. Doing it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, masks.mask)


def attach(model: ModelT) -> ModelT:
    """Let ``model`` (one of transformers') attend through ``attention``; returns it.

    Its configuration is copied first, for it may be shared with other models. Raises AdapterError
    for a model outside transformers' attention interface.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
    ...     num_attention_heads=4, vocab_size=8)
    >>> attach(LlamaModel(config)).config._attn_implementation, config._attn_implementation
    ('pjdiag', 'sdpa')
    """
    register()
    if not behind_interface(model):
        raise AdapterError(
            f"{type(model).__name__} does not use transformers' attention interface",
            "observe it by its own hooks, with `observed`",
        )
    if hasattr(model, PREVIOUS):
        return model
    configs = _own_configs(model)
    setattr(model, PREVIOUS, [(config, config._attn_implementation) for config in configs])
    for config in configs:
        config._attn_implementation_internal = NAME
    return model


def detach(model: ModelT) -> ModelT:
    """Give ``model`` back the attention that it had before ``attach``; returns it."""
    for config, name in getattr(model, PREVIOUS, ()):
        config._attn_implementation_internal = name
    if hasattr(model, PREVIOUS):
        delattr(model, PREVIOUS)
    return model


def is_attached(model: nn.Module) -> bool:
    """Whether ``model``'s configuration asks for ``attention``."""
    return getattr(getattr(model, "config", None), "_attn_implementation", None) == NAME


def behind_interface(model: nn.Module) -> bool:
    """Whether ``model`` and the models within it attend through transformers' interface."""
    from transformers import PreTrainedModel

    inner = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    return bool(inner) and all(part._can_set_attn_implementation() for part in inner)


def _own_configs(model: nn.Module) -> list[Any]:
    """Copies of the configurations in ``model``, put in their place; each once."""
    from transformers import PretrainedConfig

    copies: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, PretrainedConfig):
                own = copy.deepcopy(value, copies)
                setattr(module, name, own)
                seen[id(own)] = own
    return list(seen.values())
