"""What ``config.json`` would say, from the metadata of a GGUF file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pjdiag.checkpoint.gguf_file import GgufFile
from pjdiag.checkpoint.gguf_header import Omitted

ARCHITECTURE_FIELDS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "vocab_size": "vocab_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": "sliding_window_pattern",
    "attention.scale": "attention_multiplier",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
}
"""Metadata of the architecture -> field."""
_NORM_EPS = {"starcoder2": "norm_epsilon", "nemotron": "norm_eps"}
SCALING_FIELDS = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""What every published Llama 3.1 to 3.3 states; a GGUF file keeps only what follows from it."""
UNNAMED_FACTORS = "gguf rope_freqs"
_27B = {"gemma2": 46, "gemma3": 62}
"""Layers of the models whose logits are scaled by the hidden size over the heads."""


def gguf_config(file: GgufFile) -> dict[str, Any]:
    """The configuration in the terms of ``config.json``; absent where the file is silent."""
    architecture = file.architecture
    stated = {
        key.removeprefix(f"{architecture}."): value
        for key, value in file.metadata.items()
        if key.startswith(f"{architecture}.") and not isinstance(value, Omitted)
    }
    config: dict[str, Any] = {"model_type": _model_type(file, stated)}
    for key, field in ARCHITECTURE_FIELDS.items():
        if key in stated:
            config[field] = _one(stated[key])
    if architecture in _NORM_EPS and "layer_norm_eps" in config:
        config[_NORM_EPS[architecture]] = config.pop("layer_norm_eps")
    _add_vocabulary(config, file)
    _add_window_pattern(config)
    _add_rotary(config, file, stated)
    config["tie_word_embeddings"] = "output.weight" not in file.headers
    config["attention_bias"] = any(name.endswith(".attn_q.bias") for name in file.headers)
    if stated.get("attention.causal") is False:
        config["is_causal"] = False
    if architecture in _27B and {"num_hidden_layers", "hidden_size"} <= config.keys():
        config["query_pre_attn_scalar"] = _query_scalar(architecture, config)
    return config


def _model_type(file: GgufFile, stated: dict[str, Any]) -> str:
    if file.architecture == "llama" and stated.get("expert_count", 0):
        return "mixtral"
    return file.architecture if file.family is None else file.family.model_type


def _one(value: Any) -> Any:
    """A value that is the same in every layer, once."""
    same = isinstance(value, list) and value and all(item == value[0] for item in value)
    return value[0] if same else value


def _add_vocabulary(config: dict[str, Any], file: GgufFile) -> None:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    length = tokens.length if isinstance(tokens, Omitted) else None
    length = len(tokens) if isinstance(tokens, list) else length
    if "vocab_size" not in config and length:
        config["vocab_size"] = length


def _add_window_pattern(config: dict[str, Any]) -> None:
    """A list says of each layer whether its window slides."""
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, list | bool):
        del config["sliding_window_pattern"]
        count = config.get("num_hidden_layers", 0)
        by_layer = pattern if isinstance(pattern, list) else [pattern] * count
        kinds = {True: "sliding_attention", False: "full_attention"}
        config["layer_types"] = [kinds[bool(slides)] for slides in by_layer]


def _add_rotary(config: dict[str, Any], file: GgufFile, stated: dict[str, Any]) -> None:
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    head_dim = config.get("head_dim")
    if head_dim is None and isinstance(heads, int) and isinstance(hidden, int) and heads:
        head_dim = hidden // heads
    rotated = stated.get("rope.dimension_count")
    if isinstance(rotated, int) and isinstance(head_dim, int) and 0 < rotated < head_dim:
        config["partial_rotary_factor"] = rotated / head_dim
    scaling = _scaling(file, stated)
    if scaling is None:
        scaling = _frequency_factors(file, config, rotated or head_dim)
    if scaling is not None:
        config["rope_scaling"] = scaling


def _scaling(file: GgufFile, stated: dict[str, Any]) -> dict[str, Any] | None:
    """The stated rule for long sequences; None where there is none."""
    short, long = ("rope_factors_short.weight", "rope_factors_long.weight")
    prefix = "rope.scaling."
    scaling = {
        field: stated[prefix + key]
        for key, field in SCALING_FIELDS.items()
        if prefix + key in stated
    }
    kind = stated.get(f"{prefix}type", "none")
    if short in file.headers and long in file.headers:
        scaling["rope_type"] = "longrope"
        scaling["short_factor"] = file.read(short).ravel().tolist()
        scaling["long_factor"] = file.read(long).ravel().tolist()
        if f"{prefix}attn_factor" in stated:
            scaling["attention_factor"] = stated[f"{prefix}attn_factor"]
        return scaling
    if kind == "none" and "rope.scale_linear" in stated:
        return {"rope_type": "linear", "factor": stated["rope.scale_linear"]}
    return {"rope_type": kind, **scaling} if kind != "none" else None


def _frequency_factors(
    file: GgufFile, config: dict[str, Any], rotated: Any
) -> dict[str, Any] | None:
    """The rule that a table of divisors of the frequencies comes from."""
    name = "rope_freqs.weight"
    if name not in file.headers:
        return None
    factors = file.read(name).ravel().astype(np.float64)
    theta = config.get("rope_theta", 10000.0)
    unnamed = {"rope_type": UNNAMED_FACTORS}
    if not isinstance(rotated, int) or factors.shape[0] != rotated // 2 or not factors.size:
        return unnamed
    if not np.isfinite(factors).all():
        return unnamed
    if np.all(factors == 1):
        return None
    largest = round(float(factors.max()), 6)
    expected = llama3_divisors(rotated, theta, largest)
    if not np.allclose(factors, expected, rtol=1e-4):
        return unnamed
    return {"rope_type": "llama3", "factor": largest, **_LLAMA3}


def llama3_divisors(rotary_dim: int, theta: float, factor: float) -> np.ndarray:
    """What Llama 3.1's rule divides each frequency by, ``[rotary_dim/2]``.

    Wavelengths below 8192/4 tokens stay, those above 8192 are divided by ``factor``, between
    them the inverse of the divisor is linear in 8192 over the wavelength.

    >>> llama3_divisors(8, 500000.0, 8.0).round(3).tolist()
    [1.0, 1.0, 2.695, 8.0]
    """
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    inv_freq = theta ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    turns = _LLAMA3["original_max_position_embeddings"] * inv_freq / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    divisors: np.ndarray = 1.0 / ((1 - smooth) / factor + smooth)
    return divisors


def _query_scalar(architecture: str, config: dict[str, Any]) -> Any:
    """Gemma's logits are divided by the root of this; the file does not state it."""
    if config["num_hidden_layers"] == _27B[architecture]:
        return config["hidden_size"] // config["num_attention_heads"]
    return config.get("head_dim")
