"""Tiny random models of transformers' own classes, with weights that make attention matter."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from pjdiag.models.huggingface.attention import attach, behind_interface
from pjdiag.models.running import RunningAttention

VOCABULARY = 61
LENGTH = 24
WINDOW = 7
PADDED = 5


@dataclass(frozen=True)
class Tiny:
    """How to build one model."""

    config: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    causal: bool = True

    def build(self, seed: int = 0, implementation: str = "eager") -> Any:
        """The model in evaluation mode, float32."""
        settings = {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "attn_implementation": implementation,
        } | self.settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = getattr(transformers, self.config)(**settings)
            model = getattr(transformers, self.model)(config).eval()
            randomise(model)
        return model


@torch.no_grad()
def randomise(model: torch.nn.Module) -> None:
    """Weights large enough that attention is far from uniform, and no bias or gain is idle."""
    for name, parameter in model.named_parameters():
        if "embed" in name and parameter.ndim == 2:
            parameter.normal_(0, 1)
        elif parameter.ndim >= 2:
            parameter.normal_(0, 1.5 / parameter.shape[-1] ** 0.5)
        else:
            parameter.add_(0.3 * torch.randn_like(parameter))


MODELS = {
    "llama": Tiny("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}),
    "mistral": Tiny(
        "MistralConfig",
        "MistralForCausalLM",
        {"num_key_value_heads": 2, "sliding_window": WINDOW},
    ),
    "gemma2": Tiny(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {
            "num_key_value_heads": 2,
            "head_dim": 8,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 2.0,
            "query_pre_attn_scalar": 5,
        },
    ),
    "gemma3": Tiny(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            "num_key_value_heads": 1,
            "head_dim": 8,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "qwen2_moe": Tiny(
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {
            "num_key_value_heads": 2,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "max_window_layers": 1,
            "num_experts": 4,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
    ),
    "qwen3": Tiny("Qwen3Config", "Qwen3ForCausalLM", {"num_key_value_heads": 2, "head_dim": 16}),
    "gpt_oss": Tiny(
        "GptOssConfig",
        "GptOssForCausalLM",
        {
            "num_key_value_heads": 2,
            "head_dim": 8,
            "sliding_window": WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "gpt_neox": Tiny("GPTNeoXConfig", "GPTNeoXForCausalLM", {"rotary_pct": 0.5}),
    "gpt2": Tiny("GPT2Config", "GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt_bigcode": Tiny("GPTBigCodeConfig", "GPTBigCodeForCausalLM", {"n_inner": 48}),
    "opt": Tiny("OPTConfig", "OPTForCausalLM", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "gptj": Tiny("GPTJConfig", "GPTJForCausalLM", {"rotary_dim": 4}),
    "codegen": Tiny("CodeGenConfig", "CodeGenForCausalLM", {"rotary_dim": 4}),
    "deepseek_v3": Tiny(
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 6,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
        },
    ),
    "cohere2": Tiny(
        "Cohere2Config",
        "Cohere2ForCausalLM",
        {
            "num_key_value_heads": 2,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "phi3": Tiny("Phi3Config", "Phi3ForCausalLM", {"num_key_value_heads": 2}),
    "phimoe": Tiny(
        "PhimoeConfig",
        "PhimoeForCausalLM",
        {"num_key_value_heads": 2, "sliding_window": WINDOW, "num_local_experts": 4},
    ),
    "olmo2": Tiny("Olmo2Config", "Olmo2ForCausalLM", {"num_key_value_heads": 2}),
    "smollm3": Tiny(
        "SmolLM3Config", "SmolLM3ForCausalLM", {"num_key_value_heads": 2, "no_rope_layers": [1, 0]}
    ),
    "t5": Tiny(
        "T5Config",
        "T5EncoderModel",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        causal=False,
    ),
    "umt5": Tiny(
        "UMT5Config",
        "UMT5EncoderModel",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        causal=False,
    ),
    "bert": Tiny("BertConfig", "BertModel", causal=False),
    "albert": Tiny("AlbertConfig", "AlbertModel", {"embedding_size": 16}, causal=False),
    "modernbert": Tiny(
        "ModernBertConfig",
        "ModernBertModel",
        {"local_attention": 8, "layer_types": ["full_attention", "sliding_attention"]},
        causal=False,
    ),
    "mpnet": Tiny(
        "MPNetConfig",
        "MPNetModel",
        {"pad_token_id": 1, "max_position_embeddings": 66},
        causal=False,
    ),
    "bloom": Tiny("BloomConfig", "BloomForCausalLM", {"n_layer": 2, "n_head": 4}),
    "mpt": Tiny(
        "MptConfig",
        "MptForCausalLM",
        {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    ),
    "gpt_neo": Tiny(
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        {
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": WINDOW,
        },
    ),
    "falcon": Tiny("FalconConfig", "FalconForCausalLM", {"new_decoder_architecture": False}),
    "falcon_many_heads": Tiny(
        "FalconConfig",
        "FalconForCausalLM",
        {"new_decoder_architecture": False, "multi_query": False},
    ),
    "falcon_groups": Tiny(
        "FalconConfig", "FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}
    ),
    "falcon_alibi": Tiny(
        "FalconConfig", "FalconForCausalLM", {"alibi": True, "multi_query": False}
    ),
    "megatron_bert": Tiny("MegatronBertConfig", "MegatronBertModel", causal=False),
    "rembert": Tiny("RemBertConfig", "RemBertModel", {"input_embedding_size": 16}, causal=False),
    "roformer": Tiny("RoFormerConfig", "RoFormerModel", {"embedding_size": 32}, causal=False),
    "gpt_neox_japanese": Tiny("GPTNeoXJapaneseConfig", "GPTNeoXJapaneseForCausalLM"),
    "openai_gpt": Tiny(
        "OpenAIGPTConfig", "OpenAIGPTLMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4}
    ),
    "xglm": Tiny(
        "XGLMConfig",
        "XGLMForCausalLM",
        {"d_model": 32, "attention_heads": 4, "num_layers": 2, "ffn_dim": 48},
    ),
}
"""By name. Every class that uses transformers' interface, and every one that has a capture."""


def ours(model: Any) -> Any:
    """A copy of ``model``, attached where it can be."""
    made = copy.deepcopy(model)
    return attach(made) if behind_interface(made) else made


def tokens(seed: int = 3, rows: int = 2, length: int = LENGTH) -> Tensor:
    """``[rows, length]`` ids, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)


def padded(tiny: Tiny) -> dict[str, Tensor]:
    """Inputs of which the second row is padded: on the left, for an encoder on the right."""
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, slice(None, PADDED) if tiny.causal else slice(-PADDED, None)] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if tiny.causal and tiny.config not in ("BloomConfig", "MptConfig"):
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return inputs


def output(model: Any, **inputs: Any) -> Tensor:
    """Logits of a language model, states of an encoder; ``[B, T, ...]``."""
    with torch.no_grad():
        made = model(**inputs)
    return made.logits if "logits" in made else made.last_hidden_state


def probabilities(seen: RunningAttention, sinks: Tensor | None = None) -> np.ndarray:
    """``[B, H, T, T]`` in float64, written out from the parts that were observed."""
    q, k = (x.double().numpy() for x in (seen.queries, seen.keys))
    heads, length = q.shape[1:3]
    groups = heads // k.shape[1]
    lag = np.subtract.outer(np.arange(length), np.arange(length))
    logits = np.empty((len(q), heads, length, length))
    for head in range(heads):
        logits[:, head] = seen.scale * q[:, head] @ k[:, head // groups].swapaxes(-1, -2)
    if seen.softcap is not None:
        logits = seen.softcap * np.tanh(logits / seen.softcap)
    if seen.bias_by_lag is not None:
        logits += np.where(lag >= 0, seen.bias_by_lag.double().numpy()[:, np.maximum(lag, 0)], 0)
    if seen.bias_ahead is not None:
        logits += np.where(lag < 0, seen.bias_ahead.double().numpy()[:, np.maximum(-lag, 0)], 0)
    keep = lag >= 0 if seen.causal else np.ones_like(lag, dtype=bool)
    if seen.window is not None:
        keep = keep & (np.abs(lag) < seen.window)
    keep = np.broadcast_to(keep, logits.shape)
    if seen.present is not None:
        keep = keep & seen.present.numpy()[:, None, None]
    logits = np.where(keep, logits, -1e30)
    if sinks is not None:
        column = np.broadcast_to(sinks.double().numpy()[:, None, None], (*logits.shape[:3], 1))
        logits = np.concatenate([logits, column], -1)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights[..., :length]
