"""Decoders inside larger models, on text: their configuration is ``text_config``."""

from __future__ import annotations

from typing import Any

import transformers

from tests.plugins.contract import Case
from tests.plugins.tiny_configs import HEADS, WINDOW, config, types

TOWER = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
QWEN = {
    "depth": 1,
    "hidden_size": 48,
    "embed_dim": 32,
    "num_heads": 2,
    "intermediate_size": 32,
    "out_hidden_size": 48,
}
AUDIO = {
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "output_dim": 48,
}
MLLAMA = {
    "num_global_layers": 1,
    "attention_heads": 2,
    "max_num_tiles": 4,
    "intermediate_layers_indices": [0],
    "vision_output_dim": 64,
}
TOKENS = {"vision_start_token_id": 9, "vision_end_token_id": 10}
THREE_AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}
EMU3 = {
    "base_channels": 32,
    "channel_multiplier": [1],
    "num_res_blocks": 1,
    "codebook_size": 8,
    "embed_dim": 8,
    "latent_channels": 8,
}


def case(name: str, class_name: str, text: Any, **parts: Any) -> Case:
    """A case of the adapter ``name`` inside the class."""
    whole = getattr(transformers, class_name)(text_config=text.to_dict(), **parts)
    auto = transformers.AutoModelForImageTextToText
    return Case(name, whole, auto=auto, adapter=name.split()[0])


VISION = [
    case(
        "qwen2_vl",
        "Qwen2VLConfig",
        config("Qwen2VLTextConfig", rope_parameters=THREE_AXES),
        vision_config=QWEN,
    ),
    case(
        "qwen2_5_vl",
        "Qwen2_5_VLConfig",
        config("Qwen2_5_VLTextConfig", rope_parameters=THREE_AXES),
        vision_config={**QWEN, "hidden_size": 32},
    ),
    case(
        "qwen2_5_omni",
        "Qwen2_5OmniThinkerConfig",
        config("Qwen2_5OmniTextConfig", rope_parameters=THREE_AXES),
        vision_config=QWEN,
        audio_config=AUDIO,
        **TOKENS,
    ),
    case("qwen3_vl", "Qwen3VLConfig", config("Qwen3VLTextConfig", **HEADS), vision_config=QWEN),
    case(
        "qwen3_vl_moe",
        "Qwen3VLMoeConfig",
        config("Qwen3VLMoeTextConfig", **HEADS),
        vision_config=QWEN,
    ),
    case(
        "qwen3_omni_moe",
        "Qwen3OmniMoeThinkerConfig",
        config("Qwen3OmniMoeTextConfig", **HEADS),
        vision_config=QWEN,
        audio_config=AUDIO,
        **TOKENS,
    ),
    case(
        "llama in-llava",
        "LlavaConfig",
        config("LlamaConfig"),
        vision_config={"model_type": "clip_vision_model", **TOWER},
    ),
    case("llama in-smolvlm", "SmolVLMConfig", config("LlamaConfig"), vision_config=TOWER),
    case(
        "gemma in-paligemma",
        "PaliGemmaConfig",
        config("GemmaConfig", **HEADS),
        vision_config={"model_type": "siglip_vision_model", **TOWER},
    ),
    case(
        "gemma3 in-gemma3",
        "Gemma3Config",
        config("Gemma3TextConfig", **HEADS, **WINDOW, **types("SF")),
        vision_config=TOWER,
        mm_tokens_per_image=4,
    ),
    case(
        "mistral in-mistral3",
        "Mistral3Config",
        config("MistralConfig", **WINDOW),
        vision_config={"model_type": "pixtral", **TOWER},
    ),
    case(
        "mllama",
        "MllamaConfig",
        config("MllamaTextConfig", cross_attention_layers=[1]),
        vision_config={**TOWER, **MLLAMA},
    ),
    case(
        "glm4v",
        "Glm4vConfig",
        config("Glm4vTextConfig", rope_parameters=THREE_AXES),
        vision_config={**QWEN, "image_size": 16, "patch_size": 8},
    ),
    case(
        "glm4v_moe",
        "Glm4vMoeConfig",
        config("Glm4vMoeTextConfig", rope_parameters={**THREE_AXES, "mrope_section": [1, 1, 1]}),
        vision_config={**QWEN, "image_size": 16, "patch_size": 8},
    ),
    case(
        "emu3",
        "Emu3Config",
        config("Emu3TextConfig"),
        vocabulary_map={"<image>": 5},
        vq_config=EMU3,
    ),
    Case(
        "phi4_multimodal",
        config(
            "Phi4MultimodalConfig",
            vision_config={**TOWER, "crop_size": 16},
            audio_config={
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_blocks": 1,
                "num_attention_heads": 2,
                "nemo_conv_channels": 32,
                "ext_pw_out_channel": 32,
            },
        ),
        attention="Phi4MultimodalAttention",
    ),
]
