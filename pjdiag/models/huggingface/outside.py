"""Attention modules that do not use transformers' interface, observed by hooks of their own.

Each capture forms queries and keys as the module does, from what its projections gave in this
very run, and states the bias by lag.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pjdiag.models.huggingface.masks import MaskRule
from pjdiag.models.huggingface.structure import observed_rule, split_by_lag
from pjdiag.models.running import RunningAttention


@dataclass(frozen=True)
class Call:
    """One run of an attention module."""

    module: Any
    given: dict[str, Any]
    """Arguments by name."""
    made: dict[str, Tensor]
    """What its projections gave, by name."""

    def heads(self, name: str, count: int) -> Tensor:
        """``[B, H, T, D]`` of a projection with head-major rows."""
        return _heads(self.made[name], count)

    def slopes(self) -> Tensor:
        """ALiBi's, ``[H]``, from the table ``[B H, 1, T]`` of slope times position.

        The smallest entry above 0 is that of position 1, whatever the padding and the rounding.
        """
        table = self.given["alibi"].detach().float()
        by_head = table.view(len(self.given["hidden_states"]), -1, table.shape[-1])
        slopes: Tensor = by_head.masked_fill(by_head <= 0, torch.inf).amin(dim=(0, -1))
        return slopes.masked_fill(slopes.isinf(), 0.0)

    def keep(self, dropped: bool = False) -> Tensor | None:
        """Where the mask lets a query look, ``[B, 1, T or 1, T]``; ``dropped``: True = hidden."""
        mask: Tensor | None = self.given.get("attention_mask")
        if mask is None:
            return None
        if mask.dtype == torch.bool:
            return ~mask if dropped else mask
        return mask[:, :1] > torch.finfo(mask.dtype).min / 2


@dataclass(frozen=True)
class Found:
    """What a capture read; the rest follows from the mask."""

    queries: Tensor
    keys: Tensor
    scale: float
    keep: Tensor | None
    slopes: Tensor | None = None
    """Bias -slope d, ``[H]`` in logits a token."""
    position_bias: Tensor | None = None
    window: int | None = None
    causal: bool = True
    """Of a module without a mask."""


def _heads(x: Tensor, count: int) -> Tensor:
    return x.view(*x.shape[:-1], count, -1).transpose(1, 2)


Capture = Callable[[Call], Found]


def bloom(call: Call) -> Found:
    """Fused rows [head, (q, k, v), d]; ALiBi by key position."""
    queries, keys, _ = call.module._reshape(call.made["query_key_value"])
    scale = call.module.inv_norm_factor
    return Found(queries, keys, scale, call.keep(), slopes=call.module.beta * call.slopes())


def falcon(call: Call) -> Found:
    """Three fused layouts; RoPE, or ALiBi divided by sqrt(head_dim).

    Outside of sdpa, transformers 5 adds the ALiBi table twice: with the mask, and by itself.
    """
    module, alibi = call.module, call.given.get("alibi")
    parts = module._split_heads(call.made["query_key_value"])
    queries, keys = (part.transpose(1, 2) for part in parts[:2])
    scale = 1 / math.sqrt(module.head_dim)
    if alibi is None:
        turn = sys.modules[type(module).__module__].apply_rotary_pos_emb
        queries, keys = turn(queries, keys, *call.given["position_embeddings"])
        return Found(queries, keys, scale, call.keep())
    fused = module.config._attn_implementation == "sdpa" and not call.given.get("output_attentions")
    mask = call.given.get("attention_mask")
    with_mask = mask is not None and mask.shape[1] == queries.shape[1]
    times = int(with_mask) + int(not fused)
    return Found(queries, keys, scale, call.keep(), slopes=times * scale * call.slopes())


def mpt(call: Call) -> Found:
    """Fused blocks [Q | K | V]; ALiBi as a bias by key position, counted from the last."""
    module, fused = call.module, call.made["Wqkv"]
    if module.clip_qkv:
        fused = fused.clamp(min=-module.clip_qkv, max=module.clip_qkv)
    queries, keys = (_heads(part, module.n_heads) for part in fused.chunk(3, -1)[:2])
    bias = call.given.get("position_bias")
    slopes = None
    if bias is not None:
        slopes = bias[:, 0, -1] - bias[:, 0, -2]
    keep = call.keep(dropped=True)
    return Found(queries, keys, module.softmax_scale, keep, slopes=slopes)


def gpt_neo(call: Call) -> Found:
    """Separate projections, no scale; the windows of local layers are in the causal buffer."""
    module = call.module
    last_row = module.bias[0, 0, -1]
    seen = int(last_row.sum())
    window = seen if seen < len(last_row) else None
    queries, keys = (call.heads(name, module.num_heads) for name in ("q_proj", "k_proj"))
    return Found(queries, keys, 1.0, call.keep(), window=window)


def mpnet(call: Call) -> Found:
    """An encoder with T5's buckets, one table for all layers."""
    module, bias = call.module, call.given.get("position_bias")
    queries, keys = (call.heads(name, module.num_attention_heads) for name in ("q", "k"))
    scale = 1 / math.sqrt(module.attention_head_size)
    return Found(queries, keys, scale, call.keep(), position_bias=bias, causal=False)


CAPTURES: dict[str, tuple[tuple[str, ...], Capture]] = {
    "BloomAttention": (("query_key_value",), bloom),
    "FalconAttention": (("query_key_value",), falcon),
    "GPTNeoSelfAttention": (("q_proj", "k_proj"), gpt_neo),
    "MPNetSelfAttention": (("q", "k"), mpnet),
    "MptAttention": (("Wqkv",), mpt),
}
"""By class: the projections to watch, and the capture."""


@dataclass
class HookedModules:
    """Hooks on the attention modules of one model."""

    tell: Callable[[nn.Module, RunningAttention], None]
    rules: dict[int, tuple[Tensor, MaskRule]] = field(default_factory=dict)
    """By mask: layers share theirs."""

    def watch(self, module: nn.Module, stack: ExitStack) -> None:
        """Hook ``module`` until ``stack`` closes."""
        names, capture = CAPTURES[type(module).__name__]
        arguments = inspect.signature(module.forward)
        made: dict[str, Tensor] = {}

        def keep(name: str, _: nn.Module, __: Any, output: Tensor) -> None:
            made[name] = output

        def done(_: nn.Module, args: Any, kwargs: Any, __: Any) -> None:
            given = arguments.bind(*args, **kwargs).arguments
            found = capture(Call(module, given, made))
            rule = self._rule(found, given.get("attention_mask"), type(module).__name__)
            self.tell(module, _running(found, rule, type(module).__name__))
            made.clear()

        for name in names:
            hook = module.get_submodule(name).register_forward_hook(partial(keep, name))
            stack.callback(hook.remove)
        stack.callback(module.register_forward_hook(done, with_kwargs=True).remove)

    def _rule(self, found: Found, mask: Tensor | None, name: str) -> MaskRule:
        if mask is None or found.keep is None:
            return MaskRule(found.causal)
        known = self.rules.get(id(mask))
        if known is None:
            length = found.queries.shape[2]
            table = found.keep.expand(-1, -1, length, -1)
            known = self.rules[id(mask)] = mask, observed_rule(table, name)
        return known[1]


def _running(found: Found, rule: MaskRule, name: str) -> RunningAttention:
    behind, ahead = split_by_lag(found.position_bias, rule, name)
    if found.slopes is not None:
        lags = torch.arange(found.queries.shape[2], device=found.slopes.device)
        behind = -found.slopes[:, None] * lags
    return RunningAttention(
        queries=found.queries,
        keys=found.keys,
        bias_by_lag=behind,
        scale=found.scale,
        bias_ahead=ahead,
        causal=rule.causal,
        window=found.window,
        present=rule.present,
    )


@contextmanager
def hooked(
    model: nn.Module, tell: Callable[[nn.Module, RunningAttention], None]
) -> Iterator[HookedModules]:
    """Calls ``tell`` with each attention module that has a capture, as soon as it has run."""
    hooks = HookedModules(tell)
    with ExitStack() as stack:
        for module in model.modules():
            if type(module).__name__ in CAPTURES:
                hooks.watch(module, stack)
        yield hooks


def has_capture(model: nn.Module) -> bool:
    """Whether ``model`` has attention modules that are observed by hooks."""
    return any(type(module).__name__ in CAPTURES for module in model.modules())
