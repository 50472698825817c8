"""What every ``torch.nn.MultiheadAttention`` does while a model runs, observed by hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pjdiag.errors import AdapterError
from pjdiag.models.huggingface.masks import MaskRule
from pjdiag.models.huggingface.structure import observed_rule, split_by_lag, state_of
from pjdiag.models.running import Observer, RunningAttention

Missed: TypeAlias = Callable[[int, str], None]
"""Told of each module that cannot be described, and why."""
OTHER_SEQUENCE = "its keys are not those of its queries: attention to another sequence"
OWN_FORWARD = "its class {name} has a forward of its own"
EXTRA_KEY = "it adds a key that stands at no position ({option})"
PADDED_LOGITS = "its key_padding_mask adds values of its own to the logits"
HEADS_DIFFER = "its attn_mask hides different keys from different heads"


def multihead_modules(model: nn.Module) -> list[tuple[str, nn.MultiheadAttention]]:
    """Every module of the kind with its name, in the order of the model.

    >>> layer = nn.TransformerDecoderLayer(8, 2)
    >>> [name for name, _ in multihead_modules(layer)]
    ['self_attn', 'multihead_attn']
    """
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.MultiheadAttention)
    ]


@contextmanager
def observed_multihead(model: nn.Module, observe: Observer, missed: Missed) -> Iterator[None]:
    """Calls ``observe`` with each module's number and attention during one pass of ``model``.

    The number is the place in ``multihead_modules``. ``missed`` is told of modules that attend to
    another sequence, or that no rule of the lag describes. torch's fused encoder layers, which
    call no module, are switched off meanwhile. Raises AdapterError, from the model's run, where
    a module is called twice.

    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> with torch.no_grad(), observed_multihead(
    ...     layer, lambda index, seen: print(index, seen.queries.shape, seen.causal), print
    ... ):
    ...     _ = layer(torch.zeros(1, 5, 8))
    0 torch.Size([1, 2, 5, 4]) False
    """
    seen = _Seen(observe, missed)
    with ExitStack() as stack:
        fused = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        for index, (_, module) in enumerate(multihead_modules(model)):
            hook = partial(seen.done, index)
            stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        yield


@dataclass
class _Seen:
    """One pass over a model."""

    observe: Observer
    missed: Missed
    called: set[int] = field(default_factory=set)
    rules: dict[Any, tuple[Any, _Masks]] = field(default_factory=dict)
    """By the heads and the two masks, which are kept alive: layers share theirs."""

    def done(
        self, index: int, module: nn.MultiheadAttention, args: Any, kwargs: Any, _: Any
    ) -> None:
        """One module has run."""
        if index in self.called:
            raise AdapterError(
                f"a {type(module).__name__} (number {index}) attends more than once in a pass; "
                "one kernel does not describe that",
                "let run= call the model once, on whole windows",
            )
        self.called.add(index)
        try:
            self.observe(index, self._running(module, args, kwargs))
        except _NotDescribedError as reason:
            self.missed(index, str(reason))

    def _running(self, module: nn.MultiheadAttention, args: Any, kwargs: Any) -> RunningAttention:
        _require_plain(module)
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        query, key = given["query"], given["key"]
        if key is not query and (key.shape != query.shape or not torch.equal(key, query)):
            raise _NotDescribedError(OTHER_SEQUENCE)
        queries, keys = _projected(module, query)
        masks = self._masks(module, given, queries)
        return RunningAttention(
            queries=queries,
            keys=keys,
            bias_by_lag=masks.behind,
            scale=module.head_dim**-0.5,
            bias_ahead=masks.ahead,
            causal=masks.rule.causal,
            window=masks.rule.window,
            present=masks.rule.present,
        )

    def _masks(self, module: nn.MultiheadAttention, given: Any, queries: Tensor) -> _Masks:
        both = given["attn_mask"], given["key_padding_mask"]
        if given["is_causal"] and both[1] is None and not given["need_weights"]:
            return _Masks(MaskRule(causal=True))  # torch then ignores the mask
        key = queries.shape, state_of(both[0]), state_of(both[1])
        if key not in self.rules:
            try:
                self.rules[key] = both, _masks(*both, queries, type(module).__name__)
            except AdapterError as error:
                raise _NotDescribedError(error.message) from error
        return self.rules[key][1]


@dataclass(frozen=True)
class _Masks:
    """What the masks hide, and what they add."""

    rule: MaskRule
    behind: Tensor | None = None
    """``[H, T]`` in logits."""
    ahead: Tensor | None = None


class _NotDescribedError(Exception):
    """Why one module is left out."""


def _require_plain(module: nn.MultiheadAttention) -> None:
    if type(module).forward is not nn.MultiheadAttention.forward:
        raise _NotDescribedError(OWN_FORWARD.format(name=type(module).__name__))
    if module.bias_k is not None:
        raise _NotDescribedError(EXTRA_KEY.format(option="add_bias_kv"))
    if module.add_zero_attn:
        raise _NotDescribedError(EXTRA_KEY.format(option="add_zero_attn"))


def _projected(module: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys ``[B, H, T, D]`` of ``x``, which both are made of."""
    if x.ndim == 2:
        x = x[None]
    elif not module.batch_first:
        x = x.transpose(0, 1)
    width = module.embed_dim
    packed: Tensor | None = module.in_proj_weight
    bias: Tensor | None = module.in_proj_bias
    weights: Any = (module.q_proj_weight, module.k_proj_weight)
    if packed is not None:
        weights = torch.split(packed, width)
    biases: Any = (None, None) if bias is None else torch.split(bias, width)
    split = (*x.shape[:2], module.num_heads, module.head_dim)
    made = (
        linear(x, weight, part).view(split).transpose(1, 2)
        for weight, part in zip(weights[:2], biases[:2], strict=True)
    )
    queries, keys = made
    return queries, keys


def _masks(mask: Tensor | None, padding: Tensor | None, queries: Tensor, name: str) -> _Masks:
    """Masks in torch's convention: True hides, numbers are added to the logits."""
    batch, heads, length, _ = queries.shape
    present = None if padding is None else _present(padding, batch)
    if mask is None:
        return _Masks(MaskRule(causal=False, present=present))
    table = mask[None, None] if mask.ndim == 2 else mask.view(batch, heads, length, length)
    keep, added = _split(table)
    if not bool((keep == keep[:, :1]).all()):
        raise _NotDescribedError(HEADS_DIFFER)
    keep = keep[:, :1].expand(batch, -1, -1, -1)
    if present is not None:
        keep = keep & present[:, None, None]
    rule = observed_rule(keep, name)
    if added is None:
        return _Masks(rule)
    return _Masks(rule, *split_by_lag(added.expand(-1, heads, -1, -1), rule, name))


def _present(padding: Tensor, batch: int) -> Tensor | None:
    keep, added = _split(padding.view(batch, -1))
    if added is not None:
        raise _NotDescribedError(PADDED_LOGITS)
    return None if bool(keep.all()) else keep


def _split(mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where a mask lets through, and what it adds there; None where it adds nothing."""
    if mask.dtype == torch.bool:
        return ~mask, None
    keep = mask > torch.finfo(mask.dtype).min / 2
    added = mask.masked_fill(~keep, 0.0)
    return keep, added if bool((added != 0).any()) else None
