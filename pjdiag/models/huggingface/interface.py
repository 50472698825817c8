"""The attention function that transformers' models call, and who is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from pjdiag.errors import AdapterError
from pjdiag.models.ablation import LayerChange
from pjdiag.models.huggingface import masks
from pjdiag.models.huggingface.attend import Terms, attend, default_scale
from pjdiag.models.huggingface.masks import MaskRule
from pjdiag.models.huggingface.structure import HINT, observed_rule, split_by_lag
from pjdiag.models.running import Observer, RunningAttention

BIAS = "pj_bias"
"""Attribute of an attention module: a callable, lags ``[N]`` in tokens to logits ``[H, N]``."""
HARMLESS = frozenset(
    {
        "attention_mask",
        "cache",
        "cache_params",
        "cache_position",
        "cu_seq_lens_k",
        "cu_seq_lens_q",
        "deterministic",
        "hidden_states",
        "labels",
        "logits_to_keep",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_value",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "seq_idx",
        "target_dtype",
        "token_type_ids",
        "use_cache",
    }
)
"""Keywords that reach an attention function and that no eager attention of transformers reads."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Exact attention in the form of transformers' interface: ``[B, T_q, H, E]`` and no weights.

    ``module.pj_bias``, where there is one, is called with the lags 0..N-1 (float32) and its
    logits ``[H, N]`` are added. A mask of None means plain causal attention (bidirectional where
    ``is_causal`` says so) within ``sliding_window``; a mask made by ``masks.mask`` says all there
    is to say. ``s_aux`` are the logits of attention sinks. Raises AdapterError for a keyword that
    could change the result and is not known.
    """
    _refuse_unknown(module, others)
    rule, table = _rule_and_table(module, query, key, attention_mask, is_causal, sliding_window)
    terms = Terms(
        scale=_own_scale(module, query) if scaling is None else float(scaling),
        bias_by_lag=_pj_bias(module, query, rule, table),
        softcap=softcap,
        sinks=s_aux,
        position_bias=position_bias,
        table=table,
        dropout=dropout if module.training else 0.0,
    )
    watch = watches.get(module)
    if watch is not None:
        watch.tell(module, _running(module, query, key, rule, terms))
    ablation = ablations.get(module)
    if ablation is not None:
        query, key, value, terms = ablation.of(module, query, key, value, terms)
    mixed = attend(query, key, value, rule, terms)
    return mixed.transpose(1, 2).contiguous(), None


def _own_scale(module: nn.Module, query: Tensor) -> float:
    """1/sqrt(D), unless the module says otherwise: GPT-2's, before transformers 5 passed it on."""
    scale = default_scale(query) if getattr(module, "scale_attn_weights", True) else 1.0
    if getattr(module, "scale_attn_by_inverse_layer_idx", False):
        scale /= float(module.layer_idx) + 1  # type: ignore[arg-type]
    return scale


def _refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    unknown = [name for name in others if name not in HARMLESS and others[name] is not None]
    if unknown:
        raise AdapterError(
            f"{type(module).__name__} passes {', '.join(sorted(unknown))} to its attention, "
            "which may change the result; this is not known here",
            HINT,
        )


def _rule_and_table(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    is_causal: bool | None,
    sliding_window: int | None,
) -> tuple[MaskRule, Tensor | None]:
    """What may be seen, as a rule; a mask of its own comes as a table with a rule of none."""
    queries, keys = query.shape[2], key.shape[2]
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return MaskRule(bool(causal), sliding_window, keys - queries if causal else 0), None
    if attention_mask.ndim != 4:
        raise AdapterError(
            f"{type(module).__name__} passes a mask of shape {list(attention_mask.shape)} to its "
            "attention; expected [batch, 1, queries, keys]",
            HINT,
        )
    if isinstance(attention_mask, masks.RuleMask) and attention_mask.shape[-1] == keys:
        return attention_mask.rule, None
    return MaskRule(causal=False, offset=keys - queries), attention_mask[..., :keys]


def _pj_bias(
    module: nn.Module, query: Tensor, rule: MaskRule, table: Tensor | None
) -> Tensor | None:
    kernel = getattr(module, BIAS, None)
    if kernel is None:
        return None
    if not rule.causal and table is None:
        raise AdapterError(
            f"{type(module).__name__} is not causal where it is patched; a PJ-bias is a function "
            "of the lag to the past",
            "patch a causal model",
        )
    lags = torch.arange(rule.offset + query.shape[2], dtype=torch.float32, device=query.device)
    by_lag: Tensor = kernel(lags)
    return by_lag


def _running(
    module: nn.Module, query: Tensor, key: Tensor, rule: MaskRule, terms: Terms
) -> RunningAttention:
    name = type(module).__name__
    if query.shape[2] != key.shape[2] or rule.offset:
        raise AdapterError(
            f"{name} reads {query.shape[2]} tokens against {key.shape[2]} keys; attention is "
            "observed over whole windows",
            "run the model without a cache",
        )
    if terms.table is not None:
        rule = observed_rule(terms.table, name)
    behind, ahead = split_by_lag(terms.position_bias, rule, name)
    if terms.bias_by_lag is not None:
        behind = terms.bias_by_lag if behind is None else behind + terms.bias_by_lag
    return RunningAttention(
        queries=query,
        keys=key,
        bias_by_lag=behind,
        scale=terms.scale,
        bias_ahead=ahead,
        causal=rule.causal,
        window=rule.window,
        softcap=terms.softcap,
        present=rule.present,
    )


@dataclass
class Watch:
    """Who is told of the attention of one model's layers."""

    observe: Observer
    told: set[int] = field(default_factory=set)
    """Layers of this pass."""

    def tell(self, module: nn.Module, seen: RunningAttention) -> None:
        """Pass ``seen`` on, under the layer's own index, or counted where it knows none.

        Raises AdapterError for a layer that attends more than once in a pass.
        """
        self.observe(_layer(module, self.told), seen)


def _layer(module: nn.Module, told: set[int]) -> int:
    """The layer's own index, or counted where it knows none; noted in ``told``."""
    own = getattr(module, "layer_idx", getattr(module, "layer_id", None))
    index = own if isinstance(own, int) else len(told)
    if index in told:
        raise AdapterError(
            f"{type(module).__name__} attends more than once in layer {index}; one kernel "
            "does not describe that",
            HINT,
        )
    told.add(index)
    return index


watches: WeakKeyDictionary[nn.Module, Watch] = WeakKeyDictionary()


@dataclass
class Ablation:
    """What the layers of one model lose while it runs."""

    changes: Mapping[int, LayerChange]
    """By layer."""
    told: set[int] = field(default_factory=set)
    """Layers of this pass."""
    changed: set[int] = field(default_factory=set)
    """Layers that have lost something."""

    def restart(self, *_: Any) -> None:
        """A pass begins."""
        self.told.clear()

    def of(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, terms: Terms
    ) -> tuple[Tensor, Tensor, Tensor, Terms]:
        """Queries, keys, values and terms of ``module`` without what its layer loses.

        Raises AdapterError where the layer does not have it.
        """
        index = _layer(module, self.told)
        change = self.changes.get(index)
        if change is None:
            return query, key, value, terms
        self.changed.add(index)
        query, key, value = change.products(query, key, value)
        return query, key, value, replace(terms, bias_by_lag=change.bias(terms.bias_by_lag))


ablations: WeakKeyDictionary[nn.Module, Ablation] = WeakKeyDictionary()
