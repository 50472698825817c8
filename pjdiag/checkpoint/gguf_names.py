"""Architectures in GGUF files: their names elsewhere, and what a converter did to the weights."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"blk\.(\d{1,9})\.(\w+)\.(weight|bias)")
_ROOT = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SANDWICH = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_GLM4 = {
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
    "ffn_up": "mlp.gate_up_proj",
}
_STARCODER2 = {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}


@dataclass(frozen=True)
class Family:
    """An architecture whose tensors become those of a Hugging Face model."""

    model_type: str
    """In ``config.json``."""
    permuted: bool = False
    """Whether the converter put the rows of queries and keys into interleaved pairs."""
    gain_plus_one: bool = False
    """Whether it stored the gains of the norms plus one."""
    names: tuple[tuple[str, str], ...] = ()
    """Names in a block that differ from Llama's."""

    def plain_name(self, name: str) -> str:
        """The Hugging Face name of a tensor; its own where it has none there.

        >>> Family("llama").plain_name("blk.3.attn_q.weight")
        'model.layers.3.self_attn.q_proj.weight'
        """
        match = _BLOCK.fullmatch(name)
        if match is None:
            stem, _, kind = name.rpartition(".")
            return f"{_ROOT[stem]}.{kind}" if stem in _ROOT else name
        part = dict(self.names).get(match[2]) or _LLAMA.get(match[2])
        if part == "self_attn.sinks":
            return f"model.layers.{match[1]}.{part}"
        return f"model.layers.{match[1]}.{part}.{match[3]}" if part else name


def _family(model_type: str, names: dict[str, str] | None = None, **facts: bool) -> Family:
    return Family(model_type, names=tuple((names or {}).items()), **facts)


FAMILIES = {
    "llama": _family("llama", permuted=True),
    "arcee": _family("arcee", permuted=True),
    "granite": _family("granite", permuted=True),
    "smollm3": _family("smollm3", permuted=True),
    "olmo": _family("olmo", permuted=True),
    "olmo2": _family("olmo2", _SANDWICH),
    "qwen2": _family("qwen2"),
    "qwen2moe": _family("qwen2_moe"),
    "qwen3": _family("qwen3"),
    "qwen3moe": _family("qwen3_moe"),
    "gemma": _family("gemma", gain_plus_one=True),
    "gemma2": _family("gemma2", _SANDWICH, gain_plus_one=True),
    "gemma3": _family("gemma3_text", _SANDWICH, gain_plus_one=True),
    "phi3": _family("phi3", _FUSED),
    "starcoder2": _family("starcoder2", _STARCODER2),
    "stablelm": _family("stablelm"),
    "command-r": _family("cohere"),
    "cohere2": _family("cohere2"),
    "glm4": _family("glm4", _GLM4),
    "exaone4": _family("exaone4", _SANDWICH),
    "nemotron": _family("nemotron", gain_plus_one=True),
    "gpt-oss": _family(
        "gpt_oss",
        {"attn_sinks": "self_attn.sinks", "post_attention_norm": "post_attention_layernorm"},
    ),
}
"""By ``general.architecture``. Others keep their names, and their queries and keys are not read."""


def family_of(architecture: str) -> Family | None:
    """The family of an architecture; None where its rows' order is not known here."""
    return FAMILIES.get(architecture)
