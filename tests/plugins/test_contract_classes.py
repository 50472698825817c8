"""Architectures that are no ordinary decoders, against the attention of the real class."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForTextEncoding,
    BertConfig,
    BloomConfig,
    CodeGenConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    DistilBertConfig,
    ElectraConfig,
    EsmConfig,
    FalconConfig,
    Glm4MoeLiteConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTJConfig,
    GPTNeoConfig,
    GPTNeoXConfig,
    MiniCPM3Config,
    Mistral4Config,
    MPNetConfig,
    MptConfig,
    MT5Config,
    OPTConfig,
    RobertaConfig,
    T5Config,
    UMT5Config,
    YoutuConfig,
)

from tests.plugins.contract import TOLERANCE, Case, errors

VOCABULARY = 97
GPT = {"vocab_size": VOCABULARY, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 1024}
PLAIN = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 1024,
}
SHORT = 160
"""Tokens of the cases that vary another one."""
ENCODER = {"auto": AutoModel, "attention": "SelfAttention", "length": SHORT}
NEO = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_layers": 2,
    "num_heads": 4,
    "max_position_embeddings": 1024,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 100,
}


def falcon(**fields: object) -> FalconConfig:
    """A small Falcon."""
    return FalconConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            **fields,
        }
    )


def bloom(heads: int, length: int = SHORT) -> Case:
    """A BLOOM of so many heads of 8 channels."""
    config = BloomConfig(vocab_size=VOCABULARY, hidden_size=8 * heads, n_layer=2, n_head=heads)
    return Case("bloom", config, before_softmax=True, length=length)


def mpt(heads: int, length: int = SHORT, **attention: object) -> Case:
    """An MPT of so many heads of 8 channels."""
    config = MptConfig(
        vocab_size=VOCABULARY,
        d_model=8 * heads,
        n_layers=2,
        n_heads=heads,
        max_seq_len=1024,
        attn_config=attention,
    )
    return Case("mpt", config, before_softmax=True, length=length)


LATENT = {
    **PLAIN,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
}
EXPERTS = {"first_k_dense_replace": 2, "n_routed_experts": 4, "num_experts_per_tok": 2}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 40.0,
    "original_max_position_embeddings": 64,
    "mscale": 1.0,
    "mscale_all_dim": 0.707,
}


def t5(config: type, length: int = SHORT, **fields: object) -> Case:
    """An encoder and a decoder, each with a padded sequence."""
    padding = 37
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, :padding] = 0
    tokens = torch.randint(3, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(8))
    sizes = {"d_model": 48, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    return Case(
        "t5",
        config(vocab_size=VOCABULARY, **{**sizes, **fields}),
        auto=AutoModelForSeq2SeqLM,
        within="SelfAttention",
        length=length,
        extra={"decoder_input_ids": tokens, "decoder_attention_mask": mask},
        spread=0.2,
    )


CASES = {
    "bloom": bloom(8, length=512),
    "bloom-12-heads": bloom(12),
    "bloom-6-heads": bloom(6),
    "mpt": mpt(4, length=512),
    "mpt-12-heads": mpt(12),
    "mpt-6-heads": mpt(6),
    "mpt-clipped": mpt(4, clip_qkv=0.5, softmax_scale=0.4),
    "falcon-groups": Case(
        "falcon", falcon(num_attention_heads=6, num_kv_heads=2, new_decoder_architecture=True)
    ),
    "falcon-multi-query": Case("falcon", falcon(bias=True), length=SHORT),
    "falcon-heads": Case("falcon", falcon(multi_query=False, parallel_attn=False), length=SHORT),
    "gpt_neox": Case("gpt_neox", GPTNeoXConfig(**PLAIN, rotary_pct=0.5)),
    "gptj": Case("gptj", GPTJConfig(**GPT, rotary_dim=6)),
    "codegen": Case("codegen", CodeGenConfig(**GPT, rotary_dim=6)),
    "gpt2": Case("gpt2", GPT2Config(**GPT, scale_attn_by_inverse_layer_idx=True)),
    "gpt2-unscaled": Case("gpt2", GPT2Config(**GPT, scale_attn_weights=False), length=SHORT),
    "gpt_bigcode": Case("gpt_bigcode", GPTBigCodeConfig(**GPT)),
    "gpt_bigcode-heads": Case(
        "gpt_bigcode", GPTBigCodeConfig(**GPT, multi_query=False), length=SHORT
    ),
    "opt": Case(
        "opt",
        OPTConfig(
            vocab_size=VOCABULARY,
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
        ),
    ),
    "gpt_neo": Case("gpt_neo", GPTNeoConfig(**NEO), attention="GPTNeoSelfAttention"),
    "bert": Case("bert", BertConfig(**PLAIN), **{**ENCODER, "length": 512}),
    "bert-decoder": Case("bert", BertConfig(**PLAIN, is_decoder=True), **ENCODER),
    "roberta": Case("roberta", RobertaConfig(**PLAIN), adapter="bert", **ENCODER),
    "electra": Case("electra", ElectraConfig(**PLAIN), adapter="bert", **ENCODER),
    "distilbert": Case(
        "distilbert",
        DistilBertConfig(vocab_size=VOCABULARY, dim=48, n_layers=2, n_heads=4, hidden_dim=64),
        **ENCODER,
    ),
    "esm": Case("esm", EsmConfig(**PLAIN, pad_token_id=1, mask_token_id=2), **ENCODER),
    "esm-rotary": Case(
        "esm",
        EsmConfig(**PLAIN, pad_token_id=1, mask_token_id=2, position_embedding_type="rotary"),
        **ENCODER,
    ),
    "albert": Case(
        "albert",
        AlbertConfig(**{**PLAIN, "num_hidden_layers": 3}, embedding_size=16),
        **{**ENCODER, "attention": "AlbertAttention"},
    ),
    "albert-groups": Case(
        "albert",
        AlbertConfig(
            **{**PLAIN, "num_hidden_layers": 3},
            embedding_size=16,
            num_hidden_groups=2,
            inner_group_num=2,
        ),
        **{**ENCODER, "attention": "AlbertAttention", "length": SHORT},
    ),
    "mpnet": Case("mpnet", MPNetConfig(**PLAIN), **{**ENCODER, "length": 512}),
    "t5": t5(T5Config, length=320, num_decoder_layers=3),
    "t5-other-buckets": t5(
        T5Config, relative_attention_num_buckets=20, relative_attention_max_distance=100
    ),
    "mt5": t5(MT5Config),
    "umt5": t5(UMT5Config),
    "t5-encoder": Case(
        "t5",
        T5Config(vocab_size=VOCABULARY, d_model=48, d_kv=16, d_ff=64, num_layers=2, num_heads=4),
        auto=AutoModelForTextEncoding,
        attention="T5Attention",
        length=512,
        spread=0.2,
    ),
    "deepseek_v2": Case("mla", DeepseekV2Config(**LATENT, **EXPERTS), length=SHORT),
    "deepseek_v2-yarn": Case("mla", DeepseekV2Config(**LATENT, **EXPERTS, rope_parameters=YARN)),
    "deepseek_v2-lite": Case(
        "mla", DeepseekV2Config(**{**LATENT, "q_lora_rank": None}, **EXPERTS, attention_bias=True)
    ),
    "deepseek_v3": Case("mla", DeepseekV3Config(**LATENT, **EXPERTS), length=SHORT),
    "deepseek_v3-yarn": Case("mla", DeepseekV3Config(**LATENT, **EXPERTS, rope_parameters=YARN)),
    "deepseek_v3-halves": Case(
        "mla", DeepseekV3Config(**LATENT, **EXPERTS, rope_interleave=False), length=SHORT
    ),
    "glm4_moe_lite": Case(
        "mla",
        Glm4MoeLiteConfig(**LATENT, n_routed_experts=4, mlp_layer_types=["dense", "dense"]),
        length=SHORT,
    ),
    "minicpm3": Case("mla", MiniCPM3Config(**LATENT), length=SHORT),
    "youtu": Case("mla", YoutuConfig(**LATENT), length=SHORT),
    "mistral4": Case("mla", Mistral4Config(**LATENT, **EXPERTS), auto=AutoModel),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reading_reconstructs_the_models_own_attention(case: Case, tmp_path: Path) -> None:
    found = errors(case, tmp_path)
    assert max(found) < TOLERANCE, found
