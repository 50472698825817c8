"""Every registered adapter against the attention of the real class."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
)

from tests.plugins.contract import TOLERANCE, Case, errors

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
DECODERS = [
    Case("llama", LlamaConfig(**SIZES, head_dim=16, attention_bias=True)),
    Case("mistral", MistralConfig(**SIZES, sliding_window=100)),
    Case(
        "qwen3",
        Qwen3Config(
            **SIZES, head_dim=16, use_sliding_window=True, sliding_window=100, max_window_layers=1
        ),
    ),
    Case(
        "gemma2", Gemma2Config(**SIZES, head_dim=16, query_pre_attn_scalar=24, sliding_window=100)
    ),
    Case(
        "gemma3",
        Gemma3TextConfig(**SIZES, head_dim=16, query_pre_attn_scalar=24, sliding_window=100),
    ),
]


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_reading_reconstructs_the_models_own_attention(case: Case, tmp_path: Path) -> None:
    found = errors(case, tmp_path)
    assert max(found) < TOLERANCE, found
