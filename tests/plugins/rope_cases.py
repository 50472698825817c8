"""Every rope type of transformers, in a class that computes it."""

from __future__ import annotations

from typing import Any

from tests.plugins.tiny_configs import HEADS, WINDOW, case, types

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 128,
}


def longrope(original: int) -> dict[str, Any]:
    """Short factors up to ``original`` tokens, long ones beyond."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
        "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 8.0],
        "original_max_position_embeddings": original,
    }


def by_layer_type(**settings: Any) -> dict[str, Any]:
    """Settings for full layers; those with a window are unscaled."""
    return {
        "full_attention": {"rope_theta": 1000000.0, **settings},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    }


ROPES = [
    case(
        "llama linear",
        "LlamaConfig",
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
    ),
    case(
        "llama dynamic",
        "LlamaConfig",
        max_position_embeddings=200,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    ),
    case("llama yarn", "LlamaConfig", rope_parameters=YARN),
    case("llama llama3", "LlamaConfig", rope_parameters=LLAMA3),
    case(
        "qwen2 yarn attention-factor",
        "Qwen2Config",
        rope_parameters={**YARN, "attention_factor": 1.3, "beta_fast": 16.0, "truncate": False},
    ),
    case(
        "phi3 longrope short",
        "Phi3Config",
        rope_parameters=longrope(700),
        original_max_position_embeddings=700,
    ),
    case(
        "phi3 longrope long",
        "Phi3Config",
        rope_parameters=longrope(256),
        original_max_position_embeddings=256,
    ),
    case(
        "phimoe longrope short",
        "PhimoeConfig",
        rope_parameters={**longrope(700), "short_mscale": 1.1, "long_mscale": 1.3},
    ),
    case(
        "gemma3 linear",
        "Gemma3TextConfig",
        **HEADS,
        **WINDOW,
        **types("SF"),
        rope_parameters=by_layer_type(rope_type="linear", factor=8.0),
    ),
    case(
        "olmo3 yarn",
        "Olmo3Config",
        **WINDOW,
        **types("SF"),
        rope_parameters={
            "full_attention": YARN,
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
        },
    ),
    case(
        "cohere2 llama3",
        "Cohere2Config",
        **HEADS,
        **WINDOW,
        **types("SF"),
        rope_parameters=LLAMA3,
    ),
    case(
        "llama4 llama3",
        "Llama4TextConfig",
        **HEADS,
        no_rope_layers=[1, 0],
        attention_chunk_size=1024,
        rope_parameters=LLAMA3,
    ),
    case(
        "glm4_moe partial yarn",
        "Glm4MoeConfig",
        **HEADS,
        rope_parameters={**YARN, "partial_rotary_factor": 0.5},
    ),
    case("minimax_m2 rotary_dim", "MiniMaxM2Config", **HEADS, rotary_dim=8),
]
