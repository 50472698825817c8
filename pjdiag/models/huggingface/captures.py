"""How attention modules outside transformers' interface form queries, keys and bias.

One function a family, given what the module's own projections made in this very run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pjdiag.models.huggingface.masks import MaskRule

CAUSAL, BIDIRECTIONAL = MaskRule(causal=True), MaskRule(causal=False)


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

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the module's own source file."""
        found: Callable[..., Any] = getattr(sys.modules[type(self.module).__module__], name)
        return found

    def keep(self, dropped: bool = False) -> Tensor | None:
        """Where the mask lets a query look, ``[B, 1, T or 1, T]``; ``dropped``: True = hidden."""
        mask: Tensor | None = self.given.get("attention_mask")
        if mask is None:
            return None
        if mask.dtype == torch.bool:
            return ~mask if dropped else mask
        return mask[:, :1] > torch.finfo(mask.dtype).min / 2  # Falcon's has its ALiBi in it


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
    hides_ahead: bool = False
    """Whether the module hides the keys ahead by itself; otherwise its mask does, or nothing."""
    bare: MaskRule = CAUSAL
    """What may be seen where no mask is given."""


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
        turn = call.function("apply_rotary_pos_emb")
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
    return Found(queries, keys, 1.0, call.keep(), window=window, hides_ahead=True)


def mpnet(call: Call) -> Found:
    """An encoder with T5's buckets, one table for all layers."""
    module, bias = call.module, call.given.get("position_bias")
    queries, keys = (call.heads(name, module.num_attention_heads) for name in ("q", "k"))
    scale = 1 / math.sqrt(module.attention_head_size)
    return Found(queries, keys, scale, call.keep(), position_bias=bias, bare=BIDIRECTIONAL)


def bert(call: Call) -> Found:
    """Separate projections, embedded positions."""
    module = call.module
    queries, keys = (call.heads(name, module.num_attention_heads) for name in ("query", "key"))
    bare = MaskRule(causal=module.is_decoder)
    scale = 1 / math.sqrt(module.attention_head_size)
    return Found(queries, keys, scale, call.keep(), bare=bare)


def roformer(call: Call) -> Found:
    """As BERT, with interleaved RoPE."""
    found, angles = bert(call), call.given.get("sinusoidal_pos")
    if angles is None:
        return found
    turn = call.module.apply_rotary_position_embeddings
    queries, keys = turn(angles, found.queries, found.keys)[:2]
    return replace(found, queries=queries, keys=keys)


def gpt_neox_japanese(call: Call) -> Found:
    """Fused rows [head, (q, k, v), d] with RoPE on the first channels."""
    module, fused = call.module, call.made["query_key_value"]
    by_head = fused.view(*fused.shape[:-1], module.num_attention_heads, 3, -1).transpose(1, 2)
    queries, keys = by_head[..., 0, :], by_head[..., 1, :]
    turn, width = call.function("apply_rotary_pos_emb"), module.rotary_ndims
    turned = turn(queries[..., :width], keys[..., :width], *call.given["position_embeddings"])
    queries, keys = (
        torch.cat([front, whole[..., width:]], dim=-1)
        for front, whole in zip(turned, (queries, keys), strict=True)
    )
    return Found(queries, keys, 1 / module.norm_factor, call.keep())


def openai_gpt(call: Call) -> Found:
    """Fused blocks [Q | K | V], a mask of padding only, and causality of its own."""
    module = call.module
    queries, keys = (_heads(part, module.n_head) for part in call.made["c_attn"].chunk(3, -1)[:2])
    scale = 1 / math.sqrt(queries.shape[-1]) if module.scale else 1.0
    return Found(queries, keys, scale, call.keep(), hides_ahead=True)


def xglm(call: Call) -> Found:
    """Separate projections; sinusoids are added to the tokens."""
    module = call.module
    queries, keys = (call.heads(name, module.num_heads) for name in ("q_proj", "k_proj"))
    return Found(queries, keys, module.scaling, call.keep())


CAPTURES: dict[str, tuple[tuple[str, ...], Capture]] = {
    "bloom.BloomAttention": (("query_key_value",), bloom),
    "falcon.FalconAttention": (("query_key_value",), falcon),
    "gpt_neo.GPTNeoSelfAttention": (("q_proj", "k_proj"), gpt_neo),
    "gpt_neox_japanese.GPTNeoXJapaneseAttention": (("query_key_value",), gpt_neox_japanese),
    "megatron_bert.MegatronBertSelfAttention": (("query", "key"), bert),
    "mpnet.MPNetSelfAttention": (("q", "k"), mpnet),
    "mpt.MptAttention": (("Wqkv",), mpt),
    "openai.Attention": (("c_attn",), openai_gpt),
    "rembert.RemBertSelfAttention": (("query", "key"), bert),
    "roformer.RoFormerSelfAttention": (("query", "key"), roformer),
    "xglm.XGLMAttention": (("q_proj", "k_proj"), xglm),
}
"""By transformers' folder and class: the projections to watch, and the capture."""


def capture_of(module: nn.Module) -> tuple[tuple[str, ...], Capture] | None:
    """The entry of ``CAPTURES`` for ``module``; None where there is none."""
    path = type(module).__module__.split(".")
    if path[:2] != ["transformers", "models"]:
        return None
    return CAPTURES.get(f"{path[2]}.{type(module).__name__}")
