"""Every spelling of a rotation, one at a time, by what a class of transformers makes of it."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.schedule import layer_count, layer_kinds
from pjdiag.checkpoint import Checkpoint

ROPE_FIELDS = (
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rope_local_base_freq",
    "global_rope_theta",
    "local_rope_theta",
    "partial_rotary_factor",
    "rotary_pct",
    "rope_pct",
    "rotary_emb_base",
    "rotary_dim",
    "original_max_position_embeddings",
)
NO_TEXT = ("Vision", "Vit", "Audio", "2D", "Image", "Scaled")
"""In the names of what does not turn queries and keys of text."""
FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR = {"type": "linear", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
DYNAMIC = {"type": "dynamic", "factor": 3.0}
SPELLINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "theta": {"rope_theta": 1234.0},
    "theta-null": {"rope_theta": None},
    "older-theta": {"rotary_emb_base": 1234.0},
    "two-thetas": {"rope_theta": 777.0, "rotary_emb_base": 1234.0},
    "local-theta": {"rope_local_base_freq": 1234.0},
    "local-and-theta": {"rope_theta": 777.0, "rope_local_base_freq": 1234.0},
    "local-and-global": {"global_rope_theta": 777.0, "local_rope_theta": 1234.0},
    "scaling": {"rope_scaling": LINEAR},
    "scaling-theta": {"rope_scaling": LINEAR, "rope_theta": 1234.0},
    "scaling-own-theta": {"rope_scaling": {**LINEAR, "rope_theta": 1234.0}},
    "scaling-two-thetas": {"rope_scaling": {**LINEAR, "rope_theta": 1234.0}, "rope_theta": 777.0},
    "scaling-local": {"rope_scaling": LINEAR, "rope_local_base_freq": 1234.0},
    "scaling-null": {"rope_scaling": None, "rope_theta": 1234.0},
    "scaling-default": {"rope_scaling": {"type": "default"}, "rope_theta": 1234.0},
    "scaling-keyed": {
        "rope_scaling": {
            FULL: {**LINEAR, "rope_theta": 777.0},
            SLIDING: {"rope_type": "default", "rope_theta": 1234.0},
        }
    },
    "two-types": {"rope_scaling": {"type": "default", "rope_type": "linear", "factor": 2.0}},
    "flat": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1234.0}},
    "flat-type": {"rope_parameters": {**LINEAR, "rope_theta": 1234.0}},
    "flat-no-theta": {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    "flat-theta-outside": {
        "rope_parameters": {"rope_type": "linear", "factor": 2.0},
        "rope_theta": 1234.0,
    },
    "flat-two-thetas": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1234.0},
        "rope_theta": 777.0,
    },
    "keyed": {
        "rope_parameters": {
            FULL: {"rope_type": "linear", "factor": 2.0, "rope_theta": 777.0},
            SLIDING: {"rope_type": "default", "rope_theta": 1234.0},
        }
    },
    "keyed-no-theta": {
        "rope_parameters": {FULL: {"rope_type": "default"}, SLIDING: {"rope_type": "default"}}
    },
    "keyed-theta-outside": {
        "rope_parameters": {FULL: {"rope_type": "default"}, SLIDING: {"rope_type": "default"}},
        "rope_theta": 1234.0,
    },
    "keyed-full": {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1234.0}}},
    "keyed-sliding": {"rope_parameters": {SLIDING: {"rope_type": "default", "rope_theta": 1234.0}}},
    "keyed-null": {
        "rope_parameters": {FULL: None, SLIDING: {"rope_type": "default", "rope_theta": 1234.0}}
    },
    "both": {
        "rope_scaling": LINEAR,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1234.0},
    },
    "both-theta": {
        "rope_scaling": LINEAR,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1234.0},
        "rope_theta": 777.0,
    },
    "both-share": {
        "rope_scaling": LINEAR,
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5},
    },
    "both-keyed": {
        "rope_scaling": LINEAR,
        "rope_parameters": {
            FULL: {"rope_type": "default", "rope_theta": 777.0},
            SLIDING: {"rope_type": "default", "rope_theta": 1234.0},
        },
    },
    "share": {"partial_rotary_factor": 0.5},
    "share-theta": {"partial_rotary_factor": 0.5, "rope_theta": 1234.0},
    "share-neox": {"rotary_pct": 0.5},
    "share-stablelm": {"rope_pct": 0.5},
    "share-in-scaling": {"rope_scaling": {**LINEAR, "partial_rotary_factor": 0.5}},
    "share-in-flat": {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    "share-twice": {
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5},
        "partial_rotary_factor": 0.25,
    },
    "share-count": {"rotary_dim": 8},
    "yarn": {"rope_scaling": YARN},
    "yarn-original": {"rope_scaling": {**YARN, "original_max_position_embeddings": 128}},
    "yarn-outside": {"rope_scaling": YARN, "original_max_position_embeddings": 128},
    "yarn-two-originals": {
        "rope_scaling": {**YARN, "original_max_position_embeddings": 128},
        "original_max_position_embeddings": 64,
    },
    "llama3": {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}},
    "llama3-no-original": {"rope_scaling": LLAMA3, "rope_theta": 500.0},
    "llama3-equal": {
        "rope_scaling": {**LLAMA3, "low_freq_factor": 4.0, "original_max_position_embeddings": 64}
    },
    "dynamic": {"rope_scaling": DYNAMIC},
    "keyed-yarn": {
        "rope_parameters": {
            FULL: {**YARN, "rope_theta": 777.0, "original_max_position_embeddings": 128},
            SLIDING: {"rope_type": "default", "rope_theta": 1234.0},
        }
    },
    "keyed-yarn-outside": {
        "rope_parameters": {
            FULL: {**YARN, "rope_theta": 777.0},
            SLIDING: {"rope_type": "default", "rope_theta": 1234.0},
        },
        "original_max_position_embeddings": 128,
    },
}
"""What a configuration may say of its rotation, and nothing else of it."""


@dataclass(frozen=True)
class Spectrum:
    """Frequencies of one layer, the factor on cos and sin, and what was said of them."""

    inv_freq: tuple[float, ...] | None
    """None: not known; empty: nothing rotates."""
    factor: float
    told: tuple[str, ...] = ()


def bare(config: Any) -> dict[str, Any]:
    """The configuration of a case without a word of its rotation."""
    values: dict[str, Any] = config.to_dict()
    inner = inner_config(values)
    for name in ROPE_FIELDS:
        inner.pop(name, None)
    return values


def inner_config(values: dict[str, Any]) -> dict[str, Any]:
    """The text model's part."""
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        if isinstance(values.get(name), dict):
            return inner_config(values[name])
    return values


def spelled(values: dict[str, Any], spelling: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what a spelling says."""
    made = copy.deepcopy(values)
    inner_config(made).update(copy.deepcopy(spelling))
    return made


def words(spelling: dict[str, Any]) -> set[str]:
    """The fields that a spelling states, inside objects too."""
    inside = [value for value in spelling.values() if isinstance(value, dict)]
    return {*spelling, *(name for value in inside for name in value)}


def theirs(config_class: Any, values: dict[str, Any]) -> list[Spectrum]:
    """What the class makes of a configuration, by layer. Raises whatever it raises."""
    config = config_class.from_dict(copy.deepcopy(values)).get_text_config(decoder=True)
    rotary = rotary_class(type(config))(config=config)
    kinds = getattr(config, "layer_types", None) or [FULL] * config.num_hidden_layers
    return [_by_kind(rotary, kind) for kind in kinds]


def rotary_class(config_class: Any) -> Any:
    """The module of the text model that holds its frequencies; None where it has none."""
    model = MODEL_FOR_CAUSAL_LM_MAPPING.get(config_class, None)
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    module = importlib.import_module(name if model is None else model.__module__)
    found = {
        key: value
        for key, value in vars(module).items()
        if key.endswith("RotaryEmbedding") and not any(part in key for part in NO_TEXT)
    }
    own = found.get(config_class.__name__.removesuffix("Config") + "RotaryEmbedding")
    return own or next(reversed(found.values()), None)


def _by_kind(rotary: torch.nn.Module, kind: str) -> Spectrum:
    buffers = dict(rotary.named_buffers())
    found = buffers.get(f"{kind}_inv_freq", buffers.get("inv_freq"))
    if found is None:
        return Spectrum((), 1.0)
    shared = getattr(rotary, "attention_scaling", 1.0)
    factor = getattr(rotary, f"{kind}_attention_scaling", shared)
    return Spectrum(tuple(found.double().tolist()), float(factor))


def ours(adapter: DecoderAdapter, values: dict[str, Any]) -> list[Spectrum | None]:
    """What the adapter makes of it, by layer; None for a layer without attention."""
    checkpoint = Checkpoint(Path("none"), "folder", {}, {}, (), values)
    fields = adapter.fields(checkpoint)
    geometry = adapter.geometry(fields)
    made: list[Spectrum | None] = []
    kinds = layer_kinds(adapter.map, fields, layer_count(adapter.map, fields))
    for index, kind in enumerate(kinds):
        own = adapter.layer_geometry(geometry, fields, kind, index)
        rope = None if kind.other else adapter.rope(fields, own, kind, None)
        if rope is None:
            made.append(None)
            continue
        told = (*rope.warnings, *adapter.notes(checkpoint, fields, kind))
        made.append(Spectrum(rope.inv_freq.value, rope.attention_factor.value, told))
    return made
