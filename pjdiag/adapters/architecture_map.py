"""The declarative adapter: a JSON map that names an architecture's tensors and fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from pjdiag.adapters.config_fields import DEFAULT_SOURCE
from pjdiag.adapters.fused import LAYOUTS
from pjdiag.adapters.rope_config import READERS

PREFIXES = (
    "model.",
    "",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "transformer.",
    "text_model.",
)

CHOICES: dict[str, tuple[str, ...]] = {
    "fused_rows": tuple(LAYOUTS),
    "norm_gain": ("weight", "one_plus_weight"),
    "qk_norm_kind": ("rms", "layer"),
    "qk_norm_over": ("head", "projection"),
    "qk_norm_layers": ("all", "rotating"),
    "rope_layout": ("half", "interleaved", ""),
    "rope_reader": READERS,
    "rope_layers": ("all", "listed", "windowed", "windowed_or_all"),
    "window_layers": ("none", "all", "listed"),
    "full_layer": ("last", "first"),
    "unlisted": ("full", "sliding", "chunked"),
}
"""What the fields with a choice may say."""
ALWAYS = "always"
"""In place of a flag, where there is none."""


LAYER = "{layer}"
"""Stands for the layer's number in a map's ``layer``."""


@dataclass(frozen=True)
class ArchitectureMap:
    """What a map file says. Every field but ``name`` and ``model_types`` has a default."""

    name: str
    """Unique among adapters."""
    model_types: tuple[str, ...]
    """``model_type`` of the configurations it reads."""
    description: str = ""
    text_of: tuple[str, ...] = ()
    """``model_type`` of whole models whose class takes this architecture for a text part that
    states none."""
    reader: str = ""
    """``package.module:Class`` that reads these checkpoints, made without arguments; empty: the
    class for ordinary decoders, by the fields below."""
    config_fields: tuple[str, ...] = ()
    """The reader is asked too where the configuration has one of these fields."""
    tensor_parts: tuple[str, ...] = ()
    """The reader is asked too where a tensor's name contains one of these."""
    last_resort: bool = False
    """The reader is asked where no other adapter fits by more than a guess."""
    refused: str = ""
    """Why none of its layers can be read; empty where they can."""
    notes: Mapping[str, str] | None = None
    """What a reader of the figures must know, by the flag that turns it on, or ``always``."""
    notes_in: Mapping[str, str] | None = None
    """As ``notes``, by the ``model_type`` of the whole model that the decoder is part of."""
    prefixes: tuple[str, ...] = PREFIXES
    """What may stand in front of ``layer``; the first that fits is taken."""
    layer: str = "layers.{layer}."
    query: str = "self_attn.q_proj"
    key: str = "self_attn.k_proj"
    fused: str = ""
    """The fused projection, in place of ``query`` and ``key``."""
    fused_rows: str = "blocks"
    """How it holds them: ``blocks``, ``heads``, ``groups`` or ``quarters``."""
    query_gate: bool = False
    """The rows of each head in ``query`` are followed by as many rows of an output gate."""
    transposed: bool = False
    """Weights are ``[in, out]`` (GPT-2's Conv1D)."""
    input_norm: str = "input_layernorm"
    """The norm in front of the attention; empty where there is none."""
    norm_gain: str = "weight"
    """``weight`` or ``one_plus_weight``: the gain of the norms."""
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    """Norms of queries and keys; they apply where their tensors exist. ``{head}`` stands for
    the head where each has tensors of its own."""
    qk_norm_kind: str = "rms"
    """``rms`` or ``layer``."""
    qk_norm_over: str = "head"
    """``head`` or ``projection``: all heads at once."""
    qk_norm_eps: str = "rms_norm_eps"
    """The configuration's field."""
    qk_norm_bare: str = ""
    """The flag that turns on a norm without tensors; ``always`` where there is no flag."""
    qk_norm_layers: str = "all"
    """``all`` or ``rotating``: those with rotary positions."""
    qk_norm_after: bool = False
    """The norm follows the rotation."""
    clip: str = ""
    """The field with the largest size that queries and keys may have."""
    sinks: str = "self_attn.sinks"
    num_layers: tuple[str, ...] = ("num_hidden_layers",)
    """Where none of them is stated, the list of layer types is counted."""
    num_heads: tuple[str, ...] = ("num_attention_heads",)
    num_heads_by_layer: str = ""
    """The field with a list of query heads by layer, in place of ``num_heads``."""
    num_kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)
    hidden_size: tuple[str, ...] = ("hidden_size",)
    train_length_fields: tuple[str, ...] = ()
    """Fields with the longest text trained on, in tokens, before the usual ones."""
    rope_layout: str = "half"
    """``half`` or ``interleaved``; empty where the architecture does not rotate."""
    rope_layers: str = "all"
    """``all``; ``listed``: those that ``no_rope_layers`` marks with 1; ``windowed``: those with
    a window; ``windowed_or_all``: all where the configuration states no window."""
    rope_switch: str = ""
    """The field that must be true or ``rope``; with anything else no layer rotates."""
    rope_backwards: bool = False
    """Later tokens turn by a negative angle."""
    no_rope_interval: str = ""
    """The field with the interval of layers without rotation, where the list is missing."""
    theta_by_layer_type: Mapping[str, float] | None = None
    """Bases of the class where they differ by layer type."""
    theta_fields: tuple[str, ...] = ("rope_theta",)
    theta_fields_by_layer_type: Mapping[str, str] | None = None
    """Fields with the base of each layer type, in place of ``theta_fields``."""
    partial_rotary_factor: float = 1.0
    partial_fields: tuple[str, ...] = ()
    """Fields that set the rotated share; empty where the architecture reads none."""
    rotary_dim_fields: tuple[str, ...] = ()
    """Fields that set the number of rotated channels; empty where the architecture reads none."""
    rope_reader: str = "either"
    """How the class takes its rope settings: ``either``, ``layered`` or ``parameters``."""
    rope_by_layer_type: bool = False
    """The class takes settings keyed by layer type, though no window or rotation is listed."""
    rope_parameters: Mapping[str, Any] | None = None
    """What the class sets where the configuration has no rope settings at all."""
    scaled_layer_types: tuple[str, ...] = ()
    """Layer types that settings without layer types are for; empty: all."""
    reads_mscale_all_dim: bool = False
    scale_field: str = ""
    """The field that sets the factor on the logits; empty: head_dim ** -0.5."""
    scale_power: float = 1.0
    fixed_scale: float = 0.0
    """The factor on the logits where the class sets it; 0: it does not."""
    key_factor: str = ""
    """The field with a factor on the keys."""
    softcap: str = ""
    layer_types: tuple[str, ...] = ("layer_types",)
    """Fields with the kind of each layer."""
    layer_types_needed: bool = False
    """Whether nothing else tells the kinds apart."""
    unlisted: str = "full"
    """Kind of layers where nothing tells: ``full``, ``sliding``, or ``chunked``: those that
    rotate."""
    window: str = "sliding_window"
    window_layers: str = "none"
    """``none``, ``all``, or ``listed``: those that ``layer_types`` marks, else by ``pattern``
    or ``first_sliding``."""
    window_switch: str = ""
    """The flag without which there is no window."""
    pattern: str = ""
    """The field with the period of full layers where ``layer_types`` is missing."""
    period: int = 0
    """That period where the class fixes it, and reads no field; 0: it does not."""
    sliding_before: str = ""
    """The field with the number of first layers that the period is for; the others are full."""
    full_layer: str = "last"
    """``last`` or ``first`` of each period."""
    shared_kv: str = ""
    """The field with the number of last layers that read the keys of an earlier one."""
    first_sliding: str = ""
    """The field with the index of the first layer with a window, where ``layer_types`` is
    missing."""
    bidirectional: str = ""
    """The flag that makes the attention bidirectional."""
    defaults: Mapping[str, Any] | None = None
    """What the configuration class fills in where a field is missing."""
    defaults_source: str = DEFAULT_SOURCE
    """Provenance of ``defaults``."""

    @property
    def keyed_rope(self) -> bool:
        """Whether the class takes rope settings that are keyed by layer type."""
        listed = "listed" in (self.window_layers, self.rope_layers)
        told = self.rope_by_layer_type or listed or self.layer_types_needed
        return told and "layer_types" in self.layer_types

    def at(self, *, rotates: bool) -> ArchitectureMap:
        """This map as it holds for a layer that rotates or does not."""
        if rotates or self.qk_norm_layers == "all":
            return self
        return replace(self, qk_norm_bare="", query_norm="", key_norm="")

    def with_values(self, values: Mapping[str, Any]) -> ArchitectureMap:
        """This map with some fields replaced; ``defaults`` are merged."""
        checked = checked_values(values)
        merged = {**(self.defaults or {}), **(checked.get("defaults") or {})}
        return replace(self, **{**checked, "defaults": merged})


def checked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a map's fields, in their types. Raises ValueError, TypeError."""
    types = _types()
    unknown = sorted(set(values) - set(types))
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(unknown)}")
    checked = {name: _typed(name, value, types[name]) for name, value in values.items()}
    for name, allowed in CHOICES.items():
        if name in checked and checked[name] not in allowed:
            raise ValueError(f"{name} is {checked[name]!r}; expected one of {allowed}")
    layer = checked.get("layer", LAYER)
    if LAYER not in layer or set(layer.replace(LAYER, "")) & set("{}"):
        raise ValueError(f"layer is {layer!r}; expected one {LAYER} where the number stands")
    reader = checked.get("reader", "")
    if reader and not all(part.isidentifier() for part in reader.replace(":", ".").split(".")):
        raise ValueError(f"reader is {reader!r}; expected package.module:Class")
    return checked


@cache
def _types() -> dict[str, str]:
    return {field.name: str(field.type) for field in fields(ArchitectureMap)}


def _typed(name: str, value: Any, annotation: str) -> Any:
    if annotation == "tuple[str, ...]":
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise TypeError(f"{name} is {value!r}; expected a list of strings")
        return tuple(value)
    expected: dict[str, Any] = {"str": str, "bool": bool, "float": int | float, "int": int}
    kind = expected.get(annotation, Mapping | None)
    if not isinstance(value, kind) or (annotation == "int" and isinstance(value, bool)):
        raise TypeError(f"{name} is {value!r}; expected {annotation}")
    return value
