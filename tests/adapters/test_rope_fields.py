"""Rope fields of raw configs, against the classes that run them."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    DeepseekV3Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    Glm4Config,
    GPTNeoXConfig,
    GptOssConfig,
    HunYuanDenseV1Config,
    LlamaConfig,
    MiniMaxM2Config,
    ModernBertConfig,
    Phi3Config,
    PhiConfig,
    PreTrainedConfig,
    Qwen2_5_VLTextConfig,
    Qwen3VLTextConfig,
    StableLmConfig,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RotaryEmbeddingConfigMixin
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3RotaryEmbedding,
    yarn_apply_mscale,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
from transformers.models.glm4.modeling_glm4 import Glm4RotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRotaryEmbedding
from transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense import (
    HunYuanDenseV1RotaryEmbedding,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.minimax_m2.modeling_minimax_m2 import MiniMaxM2RotaryEmbedding
from transformers.models.modernbert.modeling_modernbert import ModernBertRotaryEmbedding
from transformers.models.phi.modeling_phi import PhiRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding
from transformers.models.stablelm.modeling_stablelm import StableLmRotaryEmbedding

from pjdiag.adapters.protocol import Sourced
from pjdiag.adapters.rope_fields import (
    ALIASES,
    NO_FREQUENCIES,
    RopeDefaults,
    RopeFields,
    rope_fields,
    text_config,
    train_length,
)
from pjdiag.adapters.rope_options import RULES
from pjdiag.errors import CheckpointError

SIZES = {"hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": 2048}
"""Four heads of 128."""
LENGTHS = (1, 2048, 2049, 32768)
GEMMA3 = RopeDefaults(theta_by_layer_type={"sliding_attention": 1e4, "full_attention": 1e6})
MODERNBERT = RopeDefaults(
    theta_by_layer_type={"sliding_attention": 1e4, "full_attention": 1.6e5},
    scaled_layer_types=("sliding_attention", "full_attention"),
)
NEOX = RopeDefaults(theta=1e4, partial_rotary_factor=0.25, theta_fields=("rotary_emb_base",))
LLAMA = RopeDefaults(theta=1e4, partial_fields=())
KINDS = ("sliding_attention", "full_attention")
RTOL = 1e-6
"""Their float32 arithmetic."""


def theirs(
    config_class: type[PreTrainedConfig],
    module_class: type[torch.nn.Module],
    raw: dict[str, Any],
    length: int,
    layer_type: str | None = None,
) -> tuple[torch.Tensor, float]:
    """What the class itself turns by, after it has seen ``length`` positions."""
    module = module_class(config_class.from_dict(copy.deepcopy(raw)))
    kind = {} if layer_type is None else {"layer_type": layer_type}
    positions = torch.tensor([[length - 1]])
    if "mrope_section" in str(raw):
        positions = positions.expand(3, 1, -1)
    module(torch.zeros(1), positions, **kind)
    prefix = "" if layer_type is None else f"{layer_type}_"
    scaling = "attention_scaling"
    return getattr(module, f"{prefix}inv_freq"), float(getattr(module, f"{prefix}{scaling}"))


def agrees(found: RopeFields, inv_freq: torch.Tensor, attention_factor: float) -> None:
    assert found.inv_freq.value is not None, found.inv_freq.source
    np.testing.assert_allclose(found.inv_freq.value, inv_freq.double().numpy(), rtol=RTOL, atol=0)
    assert found.attention_factor.value == pytest.approx(attention_factor, rel=1e-12)


def five(raw: dict[str, Any]) -> dict[str, Any]:
    """The same config in the spelling of transformers 5: one object, no field beside it."""
    moved = ("rope_theta", "partial_rotary_factor")
    rest = {name: raw[name] for name in raw if name not in (*moved, "rope_scaling")}
    inside = dict(raw.get("rope_scaling") or {})
    inside["rope_type"] = inside.pop("type", inside.get("rope_type", "default"))
    return rest | {"rope_parameters": inside | {name: raw[name] for name in moved if name in raw}}


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LONGROPE = {
    "short_factor": [1 + index / 64 for index in range(64)],
    "long_factor": [2 + index / 2 for index in range(64)],
}
SCALINGS: dict[str, dict[str, Any] | None] = {
    "null": None,
    "default": {"rope_type": "default"},
    "linear": {"type": "linear", "factor": 4.0},
    "dynamic": {"type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", **LLAMA3},
    "yarn": YARN,
    "yarn, no original length": {"type": "yarn", "factor": 4.0},
    "yarn, a wide base": {"type": "yarn", "factor": 4.0, "beta_fast": 2000.0},
    "yarn, no factor": YARN | {"factor": None},
    "yarn, not truncated": YARN | {"truncate": False},
    "yarn, narrow": YARN | {"beta_fast": 4, "beta_slow": 2},
    "yarn, betas null": YARN | {"beta_fast": None, "beta_slow": None},
    "yarn, mscale": YARN | {"mscale": 0.707, "mscale_all_dim": 1.0},
    "yarn, mscale alone": YARN | {"mscale": 0.707},
    "yarn, mscale_all_dim alone": YARN | {"mscale_all_dim": 1.0},
    "yarn, stated": YARN | {"attention_factor": 1.25, "mscale": 1.0},
    "yarn, shrunk": YARN | {"factor": 0.5},
    "longrope": {"rope_type": "longrope", "factor": 4.0, **LONGROPE}
    | {"original_max_position_embeddings": 512},
    "longrope, no factor": {"rope_type": "longrope", **LONGROPE}
    | {"original_max_position_embeddings": 512},
    "longrope, stated": {"rope_type": "longrope", "attention_factor": 1.5, **LONGROPE}
    | {"original_max_position_embeddings": 512},
    "longrope, no original length": {"rope_type": "longrope", "factor": 4.0, **LONGROPE},
    "proportional": {"rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.25},
    "proportional, whole": {"rope_type": "proportional"},
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("theta", [1e4, 5e6])
@pytest.mark.parametrize("name", SCALINGS)
def test_every_type_in_both_spellings(name: str, theta: float, length: int) -> None:
    raw = SIZES | {"rope_theta": theta, "rope_scaling": SCALINGS[name]}
    for spelled in (raw, five(raw)):
        inv_freq, attention_factor = theirs(LlamaConfig, LlamaRotaryEmbedding, spelled, length)
        found = rope_fields(spelled, 128, eval_length=length)
        agrees(found, inv_freq, attention_factor)
        assert found.theta.value == theta
        assert found.theta.source.startswith("config: rope_")
        assert found.rotary_dim.value == 128
        assert found.scale_factor.value == 1.0


@settings(max_examples=40, deadline=None)
@given(
    theta=st.floats(100.0, 1e7),
    factor=st.floats(1.0, 40.0),
    original=st.integers(64, 4096),
    fast=st.integers(8, 64),
    slow=st.integers(1, 4),
    mscale=st.sampled_from([None, 0.707, 1.0]),
    truncate=st.booleans(),
    half=st.integers(2, 64),
)
def test_yarn_with_any_options(
    theta: float,
    factor: float,
    original: int,
    fast: int,
    slow: int,
    mscale: float | None,
    truncate: bool,
    half: int,
) -> None:
    options = {"rope_type": "yarn", "rope_theta": theta, "factor": factor, "beta_fast": fast}
    options |= {"original_max_position_embeddings": original, "beta_slow": slow}
    options |= {"mscale": mscale, "mscale_all_dim": 1.0, "truncate": truncate}
    raw = SIZES | {"head_dim": 2 * half, "rope_parameters": options}
    inv_freq, attention_factor = theirs(LlamaConfig, LlamaRotaryEmbedding, raw, 8)
    found = rope_fields(raw, 2 * half)
    # Where the blend starts, their float32 leaves an error of the size of the whole wave.
    np.testing.assert_allclose(
        found.inv_freq.value, inv_freq.double().numpy(), rtol=1e-6 * max(4.0, factor)
    )
    assert found.attention_factor.value == pytest.approx(attention_factor, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    theta=st.floats(100.0, 1e7),
    factor=st.floats(1.0, 8.0),
    length=st.integers(1, 40000),
    half=st.integers(2, 64),
)
def test_dynamic_with_any_options(theta: float, factor: float, length: int, half: int) -> None:
    options = {"rope_type": "dynamic", "factor": factor, "rope_theta": theta}
    raw = SIZES | {"head_dim": 2 * half, "rope_parameters": options}
    inv_freq, _ = theirs(LlamaConfig, LlamaRotaryEmbedding, raw, length)
    np.testing.assert_allclose(
        rope_fields(raw, 2 * half, eval_length=length).inv_freq.value,
        inv_freq.double().numpy(),
        rtol=3e-6,
    )


ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any], RopeDefaults, int]] = {
    "gpt_neox": (
        GPTNeoXConfig,
        GPTNeoXRotaryEmbedding,
        SIZES | {"rotary_emb_base": 5e5, "rotary_pct": 0.5},
        NEOX,
        64,
    ),
    "gpt_neox, nothing stated": (GPTNeoXConfig, GPTNeoXRotaryEmbedding, SIZES, NEOX, 32),
    "gpt_neox, another name": (
        GPTNeoXConfig,
        GPTNeoXRotaryEmbedding,
        SIZES | {"rope_theta": 5e5},
        NEOX,
        32,
    ),
    "gpt_neox, linear": (
        GPTNeoXConfig,
        GPTNeoXRotaryEmbedding,
        SIZES | {"rope_scaling": {"type": "linear", "factor": 2.0}, "rotary_pct": 0.25},
        NEOX,
        32,
    ),
    "phi": (
        PhiConfig,
        PhiRotaryEmbedding,
        SIZES | {"partial_rotary_factor": 0.4375, "rope_theta": 1e4},
        RopeDefaults(theta=1e4, partial_rotary_factor=0.5),
        56,
    ),
    "glm4": (
        Glm4Config,
        Glm4RotaryEmbedding,
        SIZES | {"head_dim": 64},
        RopeDefaults(theta=1e4, partial_rotary_factor=0.5),
        32,
    ),
    "stablelm": (
        StableLmConfig,
        StableLmRotaryEmbedding,
        SIZES | {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75}},
        RopeDefaults(theta=1e4, partial_rotary_factor=0.25),
        96,
    ),
    "minimax_m2": (
        MiniMaxM2Config,
        MiniMaxM2RotaryEmbedding,
        SIZES | {"head_dim": 128, "rotary_dim": 64, "rope_theta": 5e6},
        RopeDefaults(theta=5e6),
        64,
    ),
    "llama does not read a share": (
        LlamaConfig,
        LlamaRotaryEmbedding,
        SIZES | {"partial_rotary_factor": 0.5},
        LLAMA,
        128,
    ),
    "phi3, yarn that is longrope": (
        Phi3Config,
        Phi3RotaryEmbedding,
        SIZES
        | {"rope_scaling": {"type": "yarn", **LONGROPE}, "original_max_position_embeddings": 512},
        RopeDefaults(theta=1e4),
        128,
    ),
    "phi3, a share": (
        Phi3Config,
        Phi3RotaryEmbedding,
        SIZES
        | {
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 512,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0] * 48,
                "long_factor": [1 + index / 4 for index in range(48)],
            },
        },
        RopeDefaults(theta=1e4),
        96,
    ),
    "hunyuan, alpha": (
        HunYuanDenseV1Config,
        HunYuanDenseV1RotaryEmbedding,
        SIZES
        | {"head_dim": 128, "rope_theta": 1e4}
        | {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0}},
        RopeDefaults(theta=1e4),
        128,
    ),
    "gpt_oss": (
        GptOssConfig,
        GptOssRotaryEmbedding,
        SIZES
        | {"head_dim": 64, "rope_theta": 150000}
        | {"rope_scaling": YARN | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}},
        RopeDefaults(theta=1.5e5),
        64,
    ),
    "deepseek_v3": (
        DeepseekV3Config,
        DeepseekV3RotaryEmbedding,
        SIZES
        | {"qk_rope_head_dim": 64, "rope_theta": 1e4}
        | {"rope_scaling": YARN | {"factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}},
        RopeDefaults(theta=1e4, reads_mscale_all_dim=True),
        64,
    ),
    "qwen2_5_vl, mrope": (
        Qwen2_5_VLTextConfig,
        Qwen2_5_VLRotaryEmbedding,
        SIZES
        | {"rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        RopeDefaults(theta=1e6),
        128,
    ),
    "qwen3_vl, interleaved mrope": (
        Qwen3VLTextConfig,
        Qwen3VLTextRotaryEmbedding,
        SIZES
        | {"head_dim": 128, "rope_theta": 5e6}
        | {
            "rope_scaling": {
                "mrope_interleaved": True,
                "mrope_section": [24, 20, 20],
                "rope_type": "default",
            }
        },
        RopeDefaults(theta=5e5),
        128,
    ),
}


@pytest.mark.parametrize("length", [64, 8192])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str, length: int) -> None:
    config_class, module_class, raw, defaults, rotary_dim = ARCHITECTURES[name]
    inv_freq, attention_factor = theirs(config_class, module_class, raw, length)
    head_dim = raw.get("qk_rope_head_dim") or raw.get("head_dim") or 128
    found = rope_fields(raw, head_dim, eval_length=length, defaults=defaults)
    agrees(found, inv_freq, attention_factor)
    assert found.rotary_dim.value == rotary_dim == 2 * len(inv_freq)


BY_LAYER_TYPE: dict[str, tuple[Any, Any, dict[str, Any], RopeDefaults]] = {
    "gemma3, 4.x": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES
        | {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
        | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        GEMMA3,
    ),
    "gemma3, 4.x, nothing stated": (Gemma3TextConfig, Gemma3RotaryEmbedding, SIZES, GEMMA3),
    "gemma3, 4.x, one base": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES | {"rope_theta": 5e5},
        GEMMA3,
    ),
    "gemma3, 5.x": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
        GEMMA3,
    ),
    "gemma3, 5.x, half stated": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0},
                "sliding_attention": None,
            },
            "rope_local_base_freq": 2e4,
        },
        GEMMA3,
    ),
    "gemma3, not keyed": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES | {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}},
        GEMMA3,
    ),
    "gemma3, keyed yarn": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "factor": 4.0, "truncate": False}
                | {"original_max_position_embeddings": 512},
                "sliding_attention": {"rope_type": "longrope", "factor": 4.0, **LONGROPE}
                | {"original_max_position_embeddings": 512},
            }
        },
        GEMMA3,
    ),
    "gemma3, a length outside the settings": (
        Gemma3TextConfig,
        Gemma3RotaryEmbedding,
        SIZES
        | {"original_max_position_embeddings": 1024}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "factor": 4.0}
                | {"original_max_position_embeddings": 512},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
        GEMMA3,
    ),
    "modernbert": (
        ModernBertConfig,
        ModernBertRotaryEmbedding,
        SIZES | {"global_rope_theta": 8e4, "local_rope_theta": 2e4},
        MODERNBERT,
    ),
    "modernbert, scaled": (
        ModernBertConfig,
        ModernBertRotaryEmbedding,
        SIZES | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        MODERNBERT,
    ),
    "gemma4": (
        Gemma4TextConfig,
        Gemma4TextRotaryEmbedding,
        SIZES
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "rope_theta": 1e6}
                | {"partial_rotary_factor": 0.25},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
        RopeDefaults(),
    ),
}


@pytest.mark.parametrize("length", [64, 8192])
@pytest.mark.parametrize("layer_type", KINDS)
@pytest.mark.parametrize("name", BY_LAYER_TYPE)
def test_layer_types(name: str, layer_type: str, length: int) -> None:
    config_class, module_class, raw, defaults = BY_LAYER_TYPE[name]
    raw = raw | {"head_dim": 128, "layer_types": list(KINDS), "num_hidden_layers": 2}
    inv_freq, attention_factor = theirs(config_class, module_class, raw, length, layer_type)
    head_dim = 2 * len(inv_freq)
    found = rope_fields(raw, head_dim, layer_type=layer_type, eval_length=length, defaults=defaults)
    agrees(found, inv_freq, attention_factor)
    assert found.layer_type == layer_type


def test_gemma4_fills_in_whole_settings() -> None:
    config = Gemma4TextConfig(**SIZES, head_dim=128, num_hidden_layers=6)
    defaults = RopeDefaults(parameters=copy.deepcopy(config.rope_parameters))
    module = Gemma4TextRotaryEmbedding(config)
    found = rope_fields(SIZES, 512, layer_type="full_attention", defaults=defaults)
    np.testing.assert_allclose(
        found.inv_freq.value, module.full_attention_inv_freq.double().numpy(), rtol=RTOL
    )
    assert found.theta.value == 1e6
    assert found.theta.source == ("transformers default: rope_parameters.full_attention.rope_theta")


# Where a figure comes from


SPELLINGS: dict[str, dict[str, Any]] = {
    "flat": {"rope_parameters": {"rope_theta": 500000, "rope_type": "default"}},
    "keyed": {
        "rope_parameters": {
            "full_attention": {"rope_theta": 500000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 500000.0, "rope_type": "default"},
        }
    },
    "4.x": {"rope_theta": 500000.0, "rope_scaling": None},
    "neox": {"rotary_emb_base": 500000},
    "scaled by nothing": {
        "rope_theta": 500000.0,
        "rope_scaling": {"type": "default", "rope_theta": None},
        "rope_parameters": None,
    },
    "inside": {"rope_scaling": {"rope_type": "default", "rope_theta": 500000.0}},
}


@pytest.mark.parametrize("layer_type", [None, "full_attention"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_one_base(name: str, layer_type: str | None) -> None:
    found = rope_fields(SPELLINGS[name], 64, layer_type=layer_type)
    assert found.theta.value == 500000.0
    assert found.theta.source.startswith("config: ")
    assert found.rope_type.value == "default"
    assert found.inv_freq.value == rope_fields({"rope_theta": 5e5}, 64).inv_freq.value
    assert found.inv_freq.source == f"at any length, default, from {found.theta.source}"
    assert not found.warnings


def test_sources_name_the_field() -> None:
    assert rope_fields(SPELLINGS["flat"], 64).theta.source == "config: rope_parameters.rope_theta"
    keyed = rope_fields(SPELLINGS["keyed"], 64, layer_type="sliding_attention")
    assert keyed.theta.source == "config: rope_parameters.sliding_attention.rope_theta"
    assert rope_fields(SPELLINGS["4.x"], 64).theta.source == "config: rope_theta"
    assert rope_fields(SPELLINGS["neox"], 64).theta.source == "config: rotary_emb_base"
    assert rope_fields(SPELLINGS["inside"], 64).theta.source == "config: rope_scaling.rope_theta"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"rope_theta": None},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": None}},
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        {"theta": 1e4, "max_position_embeddings": 2048},
    ],
)
def test_no_base_is_ever_guessed(config: dict[str, Any]) -> None:
    found = rope_fields(config, 64)
    assert found.theta.value is None
    assert found.theta.source == "unknown"
    assert found.inv_freq.value is None
    assert found.inv_freq.source == "unknown: the config states no base"


def test_the_architectures_base_is_named_as_its() -> None:
    defaults = RopeDefaults(theta=1e6, source="default of Qwen2Config")
    scaling = {"type": "linear", "factor": 2.0}
    found = rope_fields({}, 64, defaults=defaults)
    assert found.theta.value == 1e6
    assert found.theta.source == "default of Qwen2Config"
    assert found.inv_freq.source == "at any length, default, from default of Qwen2Config"
    scaled = rope_fields({"rope_scaling": scaling}, 64, defaults=defaults)
    assert scaled.inv_freq.source == (
        "at any length, linear, from config: rope_scaling, base: default of Qwen2Config"
    )


def test_frequencies_that_go_by_the_length_say_at_which() -> None:
    dynamic = SIZES | {"rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    bases = {}
    for length in (8192, 4096, 2048, 16):
        found = rope_fields(dynamic, 128, eval_length=length)
        assert found.inv_freq.source == f"at {length} tokens, dynamic, from config: rope_scaling"
        bases[length] = found.inv_freq.value[1] ** -64
        assert found.theta.value == 1e4
    expected = {8192: 72195.9, 4096: 30527.7, 2048: 1e4, 16: 1e4}
    assert bases == pytest.approx(expected, abs=0.05)
    untold = rope_fields(dynamic, 128)
    assert untold.inv_freq.source == "at 2048 tokens, dynamic, from config: rope_scaling"
    scaling = {"type": "longrope", **LONGROPE}
    longrope = SIZES | {"rope_theta": 1e4, "rope_scaling": scaling}
    longrope |= {"original_max_position_embeddings": 512}
    assert rope_fields(longrope, 128).inv_freq.source.startswith("at 512 tokens, longrope")
    assert rope_fields(longrope, 128, eval_length=600).inv_freq.source.startswith("at 600 tokens")


def test_a_length_that_is_needed_and_not_stated() -> None:
    config = {"rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    found = rope_fields(config, 64, eval_length=4096)
    assert found.inv_freq.value is None
    assert found.inv_freq.source == "unknown: dynamic needs max_position_embeddings"
    defaults = RopeDefaults(max_position_embeddings=2048)
    assert rope_fields(config, 64, eval_length=4096, defaults=defaults).inv_freq.value is not None


def test_longrope_as_phi35_has_it() -> None:
    config = {
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0] * 48,
            "long_factor": [2.0] * 48,
        },
    }
    for length in (512, 131072):
        found = rope_fields(config, 96, eval_length=length)
        assert found.attention_factor.value == pytest.approx(1.190238, abs=5e-7)
    older = copy.deepcopy(config)
    older["rope_scaling"]["type"] = "su"
    found = rope_fields(older, 96, eval_length=8192)
    assert found.inv_freq.value == rope_fields(config, 96, eval_length=8192).inv_freq.value
    assert found.inv_freq.value[0] == 0.5
    assert found.rope_type.value == "longrope"
    assert found.rope_type.source == "config: rope_scaling.type, su"


def test_hunyuan_alpha_is_a_rule_of_its_own() -> None:
    config = SIZES | {"rope_theta": 1e4, "rope_scaling": {"type": "dynamic", "alpha": 1000.0}}
    found = rope_fields(config, 128, eval_length=65536)
    assert found.rope_type.value == "ntk_alpha"
    assert found.inv_freq.value[1] ** -64 == pytest.approx(1e4 * 1000 ** (128 / 126))
    assert found.inv_freq.source.startswith("at any length, ntk_alpha")
    xdrope = copy.deepcopy(config)
    xdrope["rope_scaling"]["type"] = "xdrope"
    assert rope_fields(xdrope, 128).inv_freq.value == found.inv_freq.value


def yarn40(**options: Any) -> dict[str, Any]:
    stated = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096} | options
    return {"max_position_embeddings": 163840, "rope_theta": 10000, "rope_scaling": stated}


@pytest.mark.parametrize(
    ("options", "attention_factor", "scale_factor"),
    [
        ({}, 1.368888, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.873854),
        ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0, 1.589626),
        ({"mscale": 0.707}, 1.368888, 1.0),
        ({"mscale_all_dim": 0}, 1.368888, 1.0),
        ({"type": "default", "mscale_all_dim": 1.0}, 1.0, 1.0),
        ({"factor": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.0),
        ({"attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 1.0}, 1.5, 1.873854),
    ],
)
def test_yarn_has_two_corrections(
    options: dict[str, float], attention_factor: float, scale_factor: float
) -> None:
    deepseek = RopeDefaults(theta=1e4, reads_mscale_all_dim=True)
    found = rope_fields(yarn40(**options), 64, defaults=deepseek)
    assert found.attention_factor.value == pytest.approx(attention_factor, abs=5e-7)
    assert found.scale_factor.value == pytest.approx(scale_factor, abs=5e-7)
    config = DeepseekV3Config.from_dict(yarn40(**options) | {"qk_rope_head_dim": 64})
    assert found.scale_factor.value == pytest.approx(yarn_apply_mscale(config.rope_parameters, 1.0))
    others = rope_fields(yarn40(**options), 64)
    assert others.attention_factor.value == found.attention_factor.value
    assert others.scale_factor.value == 1.0
    assert others.scale_factor.source == "not used"


def test_gemma3_frequencies() -> None:
    config = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "layer_types": list(KINDS),
    }
    keyed = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    }
    for raw, defaults in ((config, None), (config, GEMMA3), (keyed, None), (keyed, GEMMA3)):
        sliding, full = (
            rope_fields(raw, 256, layer_type=kind, defaults=defaults) for kind in KINDS
        )
        assert (sliding.theta.value, full.theta.value) == (1e4, 1e6)
        assert (sliding.inv_freq.value[0], full.inv_freq.value[0]) == (1.0, 0.125)
        assert (sliding.rope_type.value, full.rope_type.value) == ("default", "linear")
        assert not sliding.warnings + full.warnings


def test_partial_rotation() -> None:
    for config in (
        {"partial_rotary_factor": 0.25},
        {"rotary_pct": 0.25},
        {"rope_pct": 0.25},
        {"rope_parameters": {"partial_rotary_factor": 0.25}},
        {"rotary_dim": 4},
    ):
        found = rope_fields(config | {"rope_theta": 1e4}, 16)
        assert found.rotary_dim.value == 4
        assert found.inv_freq.value == pytest.approx((1.0, 0.01))
        assert found.rotary_dim.source.startswith("config: ")
    whole = rope_fields({"rope_theta": 1e4}, 16)
    assert whole.rotary_dim.value == 16
    assert whole.rotary_dim.source == "not stated: the whole head"


def test_a_share_and_a_count_that_disagree() -> None:
    found = rope_fields({"rope_theta": 1e4, "rotary_dim": 8, "rotary_pct": 0.25}, 16)
    assert found.rotary_dim.value == 4
    assert found.warnings == (
        "config: rotary_pct gives 4 rotated channels and config: rotary_dim 8: the former is used",
    )


def test_mrope_on_text_is_the_default_rope() -> None:
    plain = rope_fields({"rope_theta": 1e6}, 128)
    scaling = {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]}
    found = rope_fields({"rope_theta": 1e6, "rope_scaling": scaling}, 128)
    assert found.inv_freq.value == plain.inv_freq.value
    assert found.rope_type.value == "default"
    assert not found.warnings
    older = rope_fields({"rope_theta": 1e6, "rope_scaling": {"type": "mrope"}}, 128)
    assert older.inv_freq.value == plain.inv_freq.value
    assert older.rope_type.source == "config: rope_scaling.type, mrope"


def test_the_text_part_of_a_config() -> None:
    text = {"rope_theta": 1e6}
    vision = {"rope_theta": 100.0}
    for name in ("text_config", "llm_config", "language_config"):
        assert text_config({"vision_config": vision, name: text}) == text
    assert text_config({"thinker_config": {"text_config": text}}) == text
    assert text_config(text | {"text_config": None, "vision_config": vision})["rope_theta"] == 1e6


def test_layers_without_rotation() -> None:
    config = {"rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 1e4}}}
    found = rope_fields(config, 64, layer_type="full_attention")
    assert found.rope_type.value == "none"
    assert found.inv_freq.value == ()
    assert found.rotary_dim.value == 0
    assert found.inv_freq.source == "config: rope_parameters.full_attention is null"


@pytest.mark.parametrize("layer_type", [None, "chunked_attention"])
def test_a_layer_type_without_settings_is_unknown(layer_type: str | None) -> None:
    config = BY_LAYER_TYPE["gemma3, 5.x"][2]
    found = rope_fields(config, 64, layer_type=layer_type)
    assert found.rope_type.value == "unknown"
    assert found.inv_freq.value is None
    assert found.inv_freq.source.startswith("unknown: config: rope_parameters is for ")


# Rope types


def test_every_rope_type_of_the_library_is_known() -> None:
    computed = set(RULES) | set(ALIASES)
    assert set(ROPE_INIT_FUNCTIONS) <= computed
    validated = {
        name.removeprefix("_validate_").removesuffix("_rope_parameters")
        for name in dir(RotaryEmbeddingConfigMixin)
        if name.startswith("_validate_") and name.endswith("_rope_parameters")
    }
    assert validated <= computed | set(NO_FREQUENCIES)
    assert set(ALIASES.values()) <= set(RULES)


@pytest.mark.parametrize("name", ["ntk", "axial", "", "LINEAR", "a\x1b[31m"])
def test_an_unknown_type_is_reported(name: str) -> None:
    config = {"rope_theta": 5e5, "rope_scaling": {"rope_type": name, "factor": 2.0}}
    found = rope_fields(config, 64)
    assert found.rope_type.value == name
    assert found.theta.value == 5e5
    assert found.inv_freq.value is None
    assert found.inv_freq.source.startswith(f"unknown: rope type {name!r}")
    assert found.attention_factor.source == found.inv_freq.source


# Contradictions are said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            "config: rope_parameters.rope_theta is 500000 and config: rope_theta 10000",
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"factor": 2.0}},
            "config: rope_scaling has a factor and no type",
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "rope_type": "default"}},
            "config: rope_scaling.rope_type is 'default' and config: rope_scaling.type 'linear'",
        ),
        (
            {
                "rope_parameters": {"rope_theta": 5e5},
                "rope_scaling": {"type": "linear", "factor": 2.0},
            },
            "config has both rope_scaling and rope_parameters",
        ),
        (
            SIZES | {"rope_theta": 5e5, "rope_scaling": YARN | {"factor": 8.0}},
            "config: rope_scaling.factor is 8, but the lengths stated (2048 over 512) give 4",
        ),
        (
            {"rope_parameters": {"rope_theta": 5e5, "llama_4_scaling_beta": 0.1}},
            "config: rope_parameters.llama_4_scaling_beta: queries are scaled by their position",
        ),
        (
            SIZES | {"rope_parameters": {"full_attention": YARN | {"truncate": False}}},
            "config: rope_parameters.full_attention.truncate is false",
        ),
    ],
)
def test_contradictions_are_said(config: dict[str, Any], said: str) -> None:
    found = rope_fields({"rope_theta": 5e5} | config, 64, layer_type="full_attention")
    assert [warning[: len(said)] for warning in found.warnings] == [said]


def test_both_containers_together() -> None:
    config = {
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
        "rope_scaling": {"type": "linear", "factor": 2.0},
    }
    found = rope_fields(config, 64)
    assert found.theta.value == 5e5
    assert found.rope_type.value == "linear"
    twice = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}
    assert not rope_fields({"rope_parameters": twice, "rope_scaling": twice}, 64).warnings


# Malformed configs


BAD_NUMBERS = ("8", "", True, -1.0, 0, 0.0, float("nan"), float("inf"), [1.0], {"a": 1}, 10**400)


def refused(config: dict[str, Any], head_dim: int = 128) -> CheckpointError:
    with pytest.raises(CheckpointError) as raised:
        rope_fields(SIZES | {"rope_theta": 1e4} | config, head_dim)
    assert "\n" not in str(raised.value)
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize(
    "name",
    ["rope_theta", "partial_rotary_factor", "rotary_dim"],
)
def test_bad_numbers_outside_the_settings(name: str, value: Any) -> None:
    assert refused({name: value}).message.startswith(f"config: {name} is ")


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("linear", "factor"),
        ("dynamic", "factor"),
        ("yarn", "factor"),
        ("yarn", "attention_factor"),
        ("yarn", "original_max_position_embeddings"),
        ("llama3", "factor"),
        ("llama3", "low_freq_factor"),
        ("llama3", "high_freq_factor"),
        ("llama3", "original_max_position_embeddings"),
        ("proportional", "factor"),
        ("longrope", "factor"),
        ("longrope", "attention_factor"),
        ("linear", "rope_theta"),
    ],
)
def test_bad_numbers_in_the_settings(kind: str, name: str, value: Any) -> None:
    scaling = dict(SCALINGS[kind] or {}) | {name: value}
    error = refused({"rope_scaling": scaling})
    assert error.message.startswith(f"config: rope_scaling.{name} is ")
    assert "; expected a positive number" in error.message


@pytest.mark.parametrize("value", ["8", True, -1.0, float("nan"), [1.0]])
@pytest.mark.parametrize("name", ["mscale", "mscale_all_dim", "beta_fast", "beta_slow"])
def test_bad_numbers_that_may_be_zero(name: str, value: Any) -> None:
    error = refused({"rope_scaling": YARN | {name: value}})
    assert error.message.startswith(f"config: rope_scaling.{name} is ")
    agreed = rope_fields(SIZES | {"rope_theta": 1e4, "rope_scaling": YARN | {name: 0}}, 128)
    usual = rope_fields(SIZES | {"rope_theta": 1e4, "rope_scaling": YARN}, 128)
    assert agreed.inv_freq.value == usual.inv_freq.value


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"rope_scaling": "linear"}, "config: rope_scaling is the text 'linear'; expected an"),
        ({"rope_parameters": [1]}, "config: rope_parameters is [1]; expected an object"),
        ({"rope_scaling": {"type": 5}}, "config: rope_scaling.type is 5; expected the name"),
        ({"rope_scaling": {"type": "linear"}}, "config: rope_scaling has no factor; expected"),
        (
            {"rope_scaling": LLAMA3 | {"rope_type": "llama3", "low_freq_factor": None}},
            "config: rope_scaling has no low_freq_factor; expected a positive number",
        ),
        (
            {"rope_scaling": LLAMA3 | {"rope_type": "llama3", "low_freq_factor": 5.0}},
            "config: rope_scaling.high_freq_factor is 4.0; expected at least low_freq_factor, 5",
        ),
        (
            {"rope_scaling": {"type": "su", **LONGROPE, "long_factor": [1.0]}},
            "config: rope_scaling.long_factor has 1 numbers; expected 64, one for each",
        ),
        (
            {"rope_scaling": {"type": "su", "short_factor": LONGROPE["short_factor"]}},
            "config: rope_scaling.long_factor is None; expected a list of 64 positive numbers",
        ),
        (
            {"rope_scaling": {"type": "su", **LONGROPE, "short_factor": [1.0] * 63 + [0]}},
            "config: rope_scaling.short_factor[63] is 0; expected a positive number",
        ),
        (
            {"rope_scaling": YARN | {"truncate": "no"}},
            "config: rope_scaling.truncate is the text 'no'; expected true or false",
        ),
        ({"partial_rotary_factor": 1.5}, "config: partial_rotary_factor is 1.5; expected"),
        (
            {"partial_rotary_factor": 39 / 128},
            "config: partial_rotary_factor: 39 channels of a head of 128 rotate; expected an even",
        ),
        ({"rotary_dim": 130}, "config: rotary_dim: 130 channels of a head of 128 rotate"),
        ({"rotary_dim": 2.5}, "config: rotary_dim is 2.5; expected a positive whole number"),
        ({"rope_theta": 1, "rope_scaling": YARN}, "config: no frequencies of rope type yarn"),
        (
            {"rope_theta": 1e308, "rope_scaling": {"type": "dynamic", "alpha": 1e300}},
            "config: no frequencies of rope type ntk_alpha with base 1e+308",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 5e-324}},
            "config: no frequencies of rope type linear with base 10000: they are not finite",
        ),
    ],
)
def test_malformed_configs_are_refused(config: dict[str, Any], said: str) -> None:
    assert refused(config).message.startswith(said)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
rope_names = st.sampled_from(
    [
        "type",
        "rope_type",
        "rope_theta",
        "factor",
        "alpha",
        "truncate",
        "short_factor",
        "long_factor",
        "attention_factor",
        "beta_fast",
        "mscale",
        "partial_rotary_factor",
    ]
)
rope_objects = st.dictionaries(
    rope_names,
    st.sampled_from(sorted(RULES)) | json_values | st.floats(0.5, 8.0),
    max_size=6,
)


@given(
    settings=rope_objects | st.dictionaries(st.sampled_from(KINDS), rope_objects | st.none()),
    name=st.sampled_from(["rope_scaling", "rope_parameters"]),
    theta=st.none() | st.floats(2.0, 1e6),
    layer_type=st.sampled_from([None, *KINDS]),
)
def test_any_settings_are_read_or_refused(
    settings: Any, name: str, theta: float | None, layer_type: str | None
) -> None:
    config = {"rope_theta": theta, name: settings, "max_position_embeddings": 2048}
    try:
        found = rope_fields(config, 8, layer_type=layer_type, eval_length=4096)
    except CheckpointError:
        return
    if found.inv_freq.value is None:
        assert found.inv_freq.source.startswith("unknown: ")
    else:
        assert len(found.inv_freq.value) == found.rotary_dim.value // 2
        assert np.isfinite(found.inv_freq.value).all()
        assert found.theta.value is not None or found.rope_type.value == "none"


# Training length


@pytest.mark.parametrize(
    ("config", "length", "source"),
    [
        ({"max_position_embeddings": 2048}, 2048, "config: max_position_embeddings"),
        ({"n_positions": 1024}, 1024, "config: n_positions"),
        ({"n_positions": 8, "max_position_embeddings": 16}, 16, "config: max_position_embeddings"),
        ({"seq_length": 8, "n_positions": 16}, 16, "config: n_positions"),
        ({"seq_length": 512}, 512, "config: seq_length"),
        ({"max_seq_len": 512.0}, 512, "config: max_seq_len"),
        ({"max_position_embeddings": None, "n_positions": 64}, 64, "config: n_positions"),
        (
            {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096},
            4096,
            "config: original_max_position_embeddings",
        ),
        (
            {"max_position_embeddings": 131072}
            | {"rope_scaling": {"original_max_position_embeddings": 8192}},
            8192,
            "config: rope_scaling.original_max_position_embeddings",
        ),
        (
            {"max_position_embeddings": 131072}
            | {"rope_parameters": {"original_max_position_embeddings": 8192}},
            8192,
            "config: rope_parameters.original_max_position_embeddings",
        ),
        (
            {
                "rope_parameters": {
                    "sliding_attention": {"original_max_position_embeddings": 512},
                    "full_attention": {"original_max_position_embeddings": 4096},
                }
            },
            4096,
            "config: rope_parameters.full_attention.original_max_position_embeddings",
        ),
        ({"hidden_size": 64}, None, "unknown"),
    ],
)
def test_train_length(config: dict[str, Any], length: int | None, source: str) -> None:
    found = train_length(config)
    assert (found.value, found.source) == (length, source)


def test_train_length_from_the_architecture() -> None:
    defaults = RopeDefaults(max_position_embeddings=8192)
    assert train_length({}, defaults).value == 8192
    assert train_length({}, defaults).source == "transformers default"
    assert train_length({"n_positions": 64}, defaults).value == 64


@pytest.mark.parametrize("value", ["4096", True, -1, 0, 1.5, float("nan"), 10**400])
def test_train_length_refuses(value: Any) -> None:
    with pytest.raises(CheckpointError, match="expected a positive"):
        train_length({"max_position_embeddings": value})


def test_a_stated_base_goes_into_settings_that_the_class_fills_in() -> None:
    """gpt-oss brings YaRN of its own, without a base; Ministral 3 brings its base too."""
    yarn = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
    config = {"rope_theta": 500.0, "max_position_embeddings": 131072}
    oss = RopeDefaults(theta=150000.0, parameters=yarn, reader="either", class_name="gpt_oss")
    found = rope_fields(config, 16, defaults=oss)
    assert found.theta == Sourced(500.0, "config: rope_theta")
    assert found.rope_type.value == "yarn"
    assert found.warnings == ()
    ministral = replace(oss, parameters={**yarn, "rope_theta": 1e6})
    found = rope_fields(config, 16, defaults=ministral)
    assert found.theta.value == 1e6
    assert found.warnings == (
        "transformers default: rope_parameters.rope_theta is 1e+06 and config: rope_theta 500: "
        "the former is used; another version of the library may use the latter",
    )


def test_longrope_takes_the_classes_length_where_none_is_stated():
    """Phi-3's class has 4096: the factor on cos and sin follows from it."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = {"rope_theta": 1e4, "rope_scaling": {"type": "longrope", **factors}}
    config["max_position_embeddings"] = 8192
    found = rope_fields(config, 16, eval_length=512, defaults=RopeDefaults(original_length=4096))
    assert found.attention_factor.value == pytest.approx((1 + math.log(2) / math.log(4096)) ** 0.5)


LAYERED = {"full_attention": "rope_theta"}
OLMO3 = RopeDefaults(
    theta=5e5, reader="layered", theta_fields_by_layer_type=LAYERED, class_name="olmo3"
)
EITHER = RopeDefaults(theta=1e4, reader="either", partial_fields=(), class_name="llama")
LINEAR = {"rope_type": "linear", "factor": 2.0}


def test_a_base_that_olmo3_drops_in_layers_with_a_window() -> None:
    full, sliding = (
        rope_fields({"rope_theta": 1e6}, 16, layer_type=kind, defaults=OLMO3)
        for kind in ("full_attention", "sliding_attention")
    )
    assert full.theta == Sourced(1e6, "config: rope_theta")
    assert full.warnings == ()
    assert sliding.theta == Sourced(5e5, "transformers default")
    assert sliding.warnings == (
        "config: rope_theta is 1000000.0; olmo3 does not read it in layers of type "
        "sliding_attention: the base 500000 is used",
    )
    usual = rope_fields({"rope_theta": 5e5}, 16, layer_type="sliding_attention", defaults=OLMO3)
    assert usual.warnings == ()


def test_rope_scaling_goes_before_rope_parameters_whole() -> None:
    config = {
        "rope_scaling": LINEAR,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    }
    found = rope_fields(config, 16, defaults=EITHER)
    assert (found.rope_type.value, found.theta.value) == ("linear", 1e4)
    assert found.warnings == (
        "config: rope_parameters is dropped: llama takes rope_scaling where both are stated",
    )
    same = {"rope_scaling": LINEAR, "rope_parameters": LINEAR}
    assert rope_fields(same, 16, defaults=EITHER).warnings == ()


def test_rope_scaling_is_laid_over_full_layers_by_its_rope_type_alone() -> None:
    for name, kind in (("rope_type", "linear"), ("type", "default")):
        config = {"rope_theta": 1e6, "rope_scaling": {name: "linear", "factor": 2.0}}
        full = rope_fields(config, 16, layer_type="full_attention", defaults=OLMO3)
        assert full.rope_type.value == kind
    assert any("rope_scaling.type is not read" in text for text in full.warnings)


@pytest.mark.parametrize(
    "config",
    [{"rotary_pct": 0.5}, {"rope_pct": 0.5}, {"partial_rotary_factor": 0.5}, {"rotary_dim": 8}],
)
def test_a_share_that_the_class_does_not_read_is_said(config: dict[str, Any]) -> None:
    found = rope_fields(config, 16, defaults=replace(EITHER, rotary_dim_fields=()))
    assert found.rotary_dim.value == 16
    (name,) = config
    (said,) = found.warnings
    assert f"config: {name} is {config[name]}; llama does not read it: 16 channels" in said


def test_gpt_neox_reads_its_own_names_alone() -> None:
    neox = RopeDefaults(
        theta=1e4,
        partial_rotary_factor=0.25,
        theta_fields=("rotary_emb_base",),
        partial_fields=("rotary_pct",),
        reader="either",
        class_name="gpt_neox",
    )
    config = {"rope_theta": 5e5, "rotary_emb_base": 2e4, "rotary_pct": 0.5, "rope_pct": 1.0}
    found = rope_fields(config, 16, defaults=neox)
    assert (found.theta.value, found.rotary_dim.value) == (2e4, 8)
    assert [text.split(";")[0] for text in found.warnings] == [
        "config: rope_theta is 500000.0",
        "config: rope_pct is 1.0",
    ]
    inside = {"rope_parameters": {"rope_theta": 3e4, "partial_rotary_factor": 1.0}}
    found = rope_fields(inside, 16, defaults=neox)
    assert (found.theta.value, found.rotary_dim.value) == (3e4, 16)


def test_settings_by_layer_type_for_a_class_with_one_rope() -> None:
    config = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}
    found = rope_fields(
        config, 16, layer_type="full_attention", defaults=replace(EITHER, keyed=False)
    )
    assert found.theta == Sourced(1e4, "transformers default")
    assert "llama has one rope for all layers" in found.warnings[0]


def test_a_class_that_reads_no_field_beside_its_settings() -> None:
    parameters = {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}
    laguna = RopeDefaults(parameters=parameters, reader="parameters", class_name="laguna")
    found = rope_fields({"rope_theta": 1e6}, 16, layer_type="full_attention", defaults=laguna)
    assert found.theta.value == 5e5
    assert "config: rope_theta is 1000000.0; laguna does not read it" in found.warnings[0]


@pytest.mark.parametrize("head_dim", [1, 15])
def test_a_head_of_an_odd_size_is_what_is_said(head_dim: int) -> None:
    with pytest.raises(CheckpointError) as raised:
        rope_fields({"rope_theta": 1e4}, head_dim)
    assert raised.value.message == (
        f"a head has {head_dim} channels, an odd number; RoPE turns them in pairs"
    )
