"""Rotary embeddings that remember the inputs they have seen, taken back to their first state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

ORIGINAL = "original_inv_freq"
"""What the name of the frequencies that a module began with ends in; a layer type may precede."""
LONGEST = "max_seq_len_cached"
ORIGINAL_LONGEST = "original_max_seq_len"


@contextmanager
def original_frequencies(model: nn.Module) -> Iterator[None]:
    """Lets rotary embeddings that adapt to their input begin as if ``model`` had read none.

    A dynamic rotary embedding of transformers keeps the frequencies of its longest input, and
    reads shorter ones with them. Every module has its own state back afterwards.

    >>> import torch
    >>> from transformers import LlamaConfig, LlamaModel
    >>> rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    >>> config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
    ...     num_attention_heads=4, vocab_size=8, max_position_embeddings=8, rope_parameters=rope)
    >>> model = LlamaModel(config)
    >>> _ = model(torch.zeros(1, 40, dtype=torch.long))
    >>> with original_frequencies(model):
    ...     print(model.rotary_emb.max_seq_len_cached)
    8
    >>> int(model.rotary_emb.max_seq_len_cached)
    40
    """
    own = [
        (
            module,
            _attributes(module),
            dict(module._buffers),
            set(module._non_persistent_buffers_set),
        )
        for module in model.modules()
        if _adapts(module)
    ]
    try:
        for module, *_ in own:
            _begin(module)
        yield
    finally:
        for module, attributes, buffers, unsaved in own:
            for name in set(_attributes(module)) - set(attributes):
                vars(module).pop(name)
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
            module._non_persistent_buffers_set.clear()
            module._non_persistent_buffers_set.update(unsaved)


def _adapts(module: nn.Module) -> bool:
    """Whether its frequencies depend on the length of what it reads."""
    kinds = getattr(module, "rope_type", None)
    named = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(
        isinstance(kind, str) and ("dynamic" in kind or kind == "longrope") for kind in named
    )


def _begin(module: nn.Module) -> None:
    """The state of a new module. The tensors are copies, for some are written in place."""
    for name in [*vars(module), *module._buffers]:
        value = getattr(module, name)
        if name.endswith(ORIGINAL) and isinstance(value, Tensor):
            running = name.removesuffix(ORIGINAL) + "inv_freq"
            at = getattr(module, running, value).device
            module.register_buffer(running, value.detach().to(at, copy=True), persistent=False)
        elif name.endswith(LONGEST) and hasattr(module, ORIGINAL_LONGEST):
            setattr(module, name, getattr(module, ORIGINAL_LONGEST))


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Its plain attributes, without what torch keeps of it."""
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}
