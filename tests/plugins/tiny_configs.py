"""Tiny configurations of real classes."""

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
ZAMBA2 = {
    "num_hidden_layers": 4,
    "layers_block_type": ["hybrid", "linear_attention", "hybrid", "hybrid"],
    "n_mamba_heads": 4,
    "mamba_d_state": 8,
    "mamba_ngroups": 1,
    "num_mem_blocks": 2,
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
