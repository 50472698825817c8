"""Tiny configurations of real classes: what each architecture does to queries and keys."""

from __future__ import annotations

from typing import Any

import transformers

from tests.plugins.contract import Case

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {
    "num_experts": 2,
    "num_local_experts": 2,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
"""Every architecture takes those that it knows."""
HEADS = {"head_dim": 16}
WINDOW = {"sliding_window": 100}
HYBRID = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 24, "mamba_n_groups": 1, "mamba_d_state": 8}
PER_LAYER = {
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 97,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
}
KINDS = {"F": "full_attention", "S": "sliding_attention", "L": "linear_attention", "C": "conv"}


def config(class_name: str, **changes: Any) -> Any:
    """A small configuration of the class; sizes that it does not know are left out."""
    cls = getattr(transformers, class_name)
    known = {**SIZES, **{k: v for k, v in EXPERTS.items() if k in cls.__dataclass_fields__}}
    known = {k: v for k, v in known.items() if k in cls.__dataclass_fields__ or k in SIZES}
    return cls(**{**known, **changes})


def case(name: str, class_name: str, **changes: Any) -> Case:
    """A case of the adapter ``name``; a suffix after a blank tells cases apart."""
    own = {key: changes.pop(key) for key in list(changes) if key in Case.__dataclass_fields__}
    own.setdefault("adapter", name.split()[0])
    return Case(name, config(class_name, **changes), **own)


def types(letters: str) -> dict[str, Any]:
    """``layer_types`` and their number from one letter a layer."""
    kinds = [KINDS[letter] for letter in letters]
    return {"layer_types": kinds, "num_hidden_layers": len(kinds)}


DECODERS = [
    case("llama", "LlamaConfig", **HEADS, attention_bias=True),
    case("llama odd-heads", "LlamaConfig", hidden_size=64, head_dim=32),
    case(
        "llama grouped",
        "LlamaConfig",
        hidden_size=56,
        num_attention_heads=14,
        num_key_value_heads=2,
    ),
    case("mistral", "MistralConfig", **WINDOW),
    case("mixtral", "MixtralConfig", **EXPERTS, **WINDOW),
    case("ministral", "MinistralConfig", **HEADS, **WINDOW, **types("SF")),
    case("ministral3", "Ministral3Config", **HEADS),
    case(
        "qwen2",
        "Qwen2Config",
        use_sliding_window=True,
        **WINDOW,
        max_window_layers=1,
    ),
    case("qwen2_moe", "Qwen2MoeConfig"),
    case("qwen3", "Qwen3Config", **HEADS, use_sliding_window=True, **WINDOW, max_window_layers=1),
    case("qwen3_moe", "Qwen3MoeConfig", **HEADS, use_sliding_window=True, **WINDOW),
    case("qwen3_next", "Qwen3NextConfig", **HEADS, **HYBRID, **types("LF"), only=(1,)),
    case("qwen3_5", "Qwen3_5TextConfig", **HEADS, **HYBRID, **types("LF"), only=(1,)),
    case("qwen3_5_moe", "Qwen3_5MoeTextConfig", **HEADS, **HYBRID, **types("LF"), only=(1,)),
    case("gemma", "GemmaConfig", **HEADS),
    case("gemma2", "Gemma2Config", **HEADS, query_pre_attn_scalar=24, **WINDOW),
    case("gemma3", "Gemma3TextConfig", **HEADS, query_pre_attn_scalar=24, **WINDOW, **types("SF")),
    case(
        "gemma3n",
        "Gemma3nTextConfig",
        head_dim=8,
        **WINDOW,
        **types("SFSF"),
        num_kv_shared_layers=2,
        **PER_LAYER,
    ),
    case(
        "gemma4",
        "Gemma4TextConfig",
        head_dim=8,
        **WINDOW,
        **types("SFSF"),
        num_kv_shared_layers=2,
        global_head_dim=12,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        **{k: v for k, v in PER_LAYER.items() if "size" in k},
    ),
    case("vaultgemma", "VaultGemmaConfig", **HEADS, query_pre_attn_scalar=24, **WINDOW),
    case("phi", "PhiConfig", qk_layernorm=True, hidden_size=64),
    case("phi3", "Phi3Config", **WINDOW),
    case("phimoe", "PhimoeConfig", attention_bias=True, **WINDOW),
    case("olmo", "OlmoConfig", clip_qkv=0.5),
    case("olmo2", "Olmo2Config"),
    case("olmo3", "Olmo3Config", **WINDOW, **types("SF")),
    case("olmoe", "OlmoeConfig", clip_qkv=1.0),
    case("flex_olmo", "FlexOlmoConfig"),
    case("olmo_hybrid", "OlmoHybridConfig", **HYBRID, **types("LF"), only=(1,)),
    case("granite", "GraniteConfig", attention_multiplier=0.2),
    case("granitemoe", "GraniteMoeConfig", attention_multiplier=0.2),
    case("granitemoeshared", "GraniteMoeSharedConfig", attention_multiplier=0.2),
    case(
        "granitemoehybrid",
        "GraniteMoeHybridConfig",
        attention_multiplier=0.2,
        position_embedding_type="rope",
        **MAMBA,
        **types("LF"),
        only=(1,),
    ),
    case(
        "granitemoehybrid nope",
        "GraniteMoeHybridConfig",
        attention_multiplier=0.2,
        **MAMBA,
        **types("LF"),
        only=(1,),
    ),
    case("starcoder2", "Starcoder2Config", **WINDOW, use_bias=True),
    case("stablelm", "StableLmConfig", qk_layernorm=True, hidden_size=64, use_qkv_bias=True),
    case("smollm3", "SmolLM3Config", no_rope_layers=[1, 0]),
    case("cohere", "CohereConfig", use_qk_norm=True),
    case("cohere2", "Cohere2Config", **HEADS, **WINDOW, **types("SF")),
    case("glm", "GlmConfig", **HEADS),
    case("glm4", "Glm4Config", **HEADS),
    case("glm4_moe", "Glm4MoeConfig", **HEADS, use_qk_norm=True),
    case("gpt_oss", "GptOssConfig", **HEADS, **WINDOW, **types("SF")),
    case("persimmon", "PersimmonConfig", hidden_size=64),
    case("nemotron", "NemotronConfig", hidden_size=64, attention_bias=True),
    case("ernie4_5", "Ernie4_5Config", **HEADS, use_bias=True),
    case("ernie4_5_moe", "Ernie4_5_MoeConfig"),
    case("exaone", "ExaoneConfig", **HEADS),
    case("exaone4", "Exaone4Config", **HEADS, **WINDOW, **types("SF")),
    case("exaone4 no-window", "Exaone4Config", **HEADS, sliding_window=None, **types("FF")),
    case("exaone_moe", "ExaoneMoeConfig", **HEADS, **WINDOW, **types("SF")),
    case("helium", "HeliumConfig", head_dim=12),
    case("llama4", "Llama4TextConfig", **HEADS, no_rope_layers=[1, 0], attention_chunk_size=1024),
    case(
        "minimax",
        "MiniMaxConfig",
        **HEADS,
        **types("LF"),
        only=(1,),
        attention="MiniMaxAttention",
        before_softmax=True,
    ),
    case("minimax_m2", "MiniMaxM2Config", **HEADS),
    case("arcee", "ArceeConfig", **HEADS),
    case("seed_oss", "SeedOssConfig", **HEADS),
    case("hyperclovax", "HyperCLOVAXConfig", **HEADS, attention_multiplier=0.3),
    case("apertus", "ApertusConfig"),
    case("dots1", "Dots1Config", n_shared_experts=1, **HEADS, **WINDOW, **types("SF")),
    case("bitnet", "BitNetConfig"),
    case("diffllama", "DiffLlamaConfig", **HEADS),
    case("lfm2", "Lfm2Config", **types("CF"), only=(1,)),
    case("lfm2_moe", "Lfm2MoeConfig", **types("CF"), only=(1,)),
    case("jamba", "JambaConfig", attn_layer_period=2, attn_layer_offset=1, only=(1,)),
    case("bamba", "BambaConfig", attn_layer_indices=[1], **MAMBA, only=(1,)),
    case("falcon_h1", "FalconH1Config", **HEADS, **MAMBA, key_multiplier=0.7, mamba_d_ssm=96),
    case(
        "nemotron_h",
        "NemotronHConfig",
        **HEADS,
        layers_block_type=["linear_attention", "full_attention"],
        mamba_num_heads=4,
        mamba_head_dim=24,
        n_groups=1,
        only=(1,),
    ),
    case(
        "recurrent_gemma",
        "RecurrentGemmaConfig",
        attention_window_size=100,
        block_types=["recurrent", "attention"],
        hidden_size=64,
        only=(1,),
    ),
    case("afmoe", "AfmoeConfig", **HEADS, **WINDOW, **types("SF")),
    case("aria", "AriaTextConfig", **HEADS),
    case("cwm", "CwmConfig", **HEADS, **WINDOW, **types("FS")),
    case("hy_v3", "HYV3Config", **HEADS),
    case("internlm3", "InternLM3Config", **HEADS),
    case("iquestcoder", "IQuestCoderConfig", **HEADS),
    case("jais2", "Jais2Config", **HEADS),
    case("lara_mini", "LaraMiniConfig", **HEADS, **WINDOW, **HYBRID, **types("LSF"), only=(1, 2)),
    case("lfm3", "Lfm3Config", **HEADS, **WINDOW, **types("CSF"), only=(1, 2)),
    case("mellum", "MellumConfig", **HEADS, **WINDOW, **types("SF")),
    case("nanochat", "NanoChatConfig", hidden_size=64),
    case("solar_open", "SolarOpenConfig", **HEADS),
    case("flint", "FlintConfig", **HEADS, **WINDOW, **types("SF")),
    case("sarvam_moe", "SarvamMoEConfig", **HEADS),
    case("kolibri1", "Kolibri1Config", **HEADS, **WINDOW, **types("SF")),
]
