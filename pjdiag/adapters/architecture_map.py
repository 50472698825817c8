"""The declarative adapter: a JSON map that names an architecture's tensors and fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from types import ModuleType
from typing import Any

from pjdiag.adapters.fused import LAYOUTS
from pjdiag.errors import AdapterError

PREFIXES = (
    "model.",
    "",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "transformer.",
    "text_model.",
)

ALWAYS = "always"
"""In place of a flag, where there is none."""


@dataclass(frozen=True)
class ArchitectureMap:
    """What a map file says. Every field but ``name`` and ``model_types`` has a default."""

    name: str
    """Unique among adapters."""
    model_types: tuple[str, ...]
    """``model_type`` of the configurations it reads."""
    description: str = ""
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
    num_kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)
    hidden_size: tuple[str, ...] = ("hidden_size",)
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
    partial_rotary_factor: float = 1.0
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

    def at(self, *, rotates: bool) -> ArchitectureMap:
        """This map as it holds for a layer that rotates or does not."""
        if rotates or self.qk_norm_layers == "all":
            return self
        return replace(self, qk_norm_bare="", query_norm="", key_norm="")

    def with_values(self, values: Mapping[str, Any]) -> ArchitectureMap:
        """This map with some fields replaced; ``defaults`` are merged."""
        merged = {**(self.defaults or {}), **values.get("defaults", {})}
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return _made({**own, **values, "defaults": merged})


def load_maps(module: ModuleType) -> list[ArchitectureMap]:
    """Every ``*.json`` beside a package's ``__init__.py``, in the order of their names.

    Raises AdapterError for a map that cannot be used, saying which and why.
    """
    resources = sorted(files(module).iterdir(), key=lambda entry: entry.name)
    texts = {
        entry.name: entry.read_text("utf-8") for entry in resources if entry.name.endswith(".json")
    }
    return parse_maps(texts)


def parse_maps(texts: Mapping[str, str]) -> list[ArchitectureMap]:
    """Maps by file name. ``extends`` names another map of the same files.

    >>> maps = parse_maps({
    ...     "a.json": '{"name": "a", "model_types": ["a"], "softcap": "cap"}',
    ...     "b.json": '{"name": "b", "extends": "a", "model_types": ["b"]}',
    ... })
    >>> maps[1].softcap
    'cap'
    """
    stated = {}
    for file, text in texts.items():
        values = _parsed(file, text)
        if values["name"] in stated:
            raise _unusable(file, f"its name {values['name']!r} is taken by another map")
        stated[values["name"]] = (file, values)
    made: dict[str, ArchitectureMap] = {}
    for name in stated:
        _resolve(name, stated, made, ())
    return [made[name] for name in stated]


def _resolve(
    name: str,
    stated: Mapping[str, tuple[str, dict[str, Any]]],
    made: dict[str, ArchitectureMap],
    above: tuple[str, ...],
) -> ArchitectureMap:
    if name in made:
        return made[name]
    file, values = stated[name]
    own = {key: value for key, value in values.items() if key != "extends"}
    base = values.get("extends")
    try:
        if base is None:
            made[name] = _made(own)
        elif base in above or base not in stated:
            raise _unusable(file, f"it extends {base!r}, which is {_why(base, above)}")
        else:
            parent = _resolve(base, stated, made, (*above, name))
            made[name] = parent.with_values({"description": "", **own})
    except (TypeError, ValueError) as error:
        raise _unusable(file, str(error)) from error
    return made[name]


def _why(base: str, above: Iterable[str]) -> str:
    return "an extension of it" if base in above else "no map beside it"


def _parsed(file: str, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(file, f"it is not JSON: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise _unusable(file, "it is not an object with a name")
    if not isinstance(values.get("extends", ""), str):
        raise _unusable(file, f"extends is {values['extends']!r}; expected the name of a map")
    return values


def _made(values: Mapping[str, Any]) -> ArchitectureMap:
    types = {field.name: str(field.type) for field in fields(ArchitectureMap)}
    unknown = sorted(set(values) - set(types))
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(unknown)}")
    if not values.get("model_types"):
        raise ValueError("it names no model_types")
    checked = {name: _typed(name, value, types[name]) for name, value in values.items()}
    made = ArchitectureMap(**checked)
    for name, allowed in (
        ("fused_rows", tuple(LAYOUTS)),
        ("norm_gain", ("weight", "one_plus_weight")),
        ("qk_norm_kind", ("rms", "layer")),
        ("qk_norm_over", ("head", "projection")),
        ("rope_layout", ("half", "interleaved", "")),
        ("qk_norm_layers", ("all", "rotating")),
        ("rope_layers", ("all", "listed", "windowed", "windowed_or_all")),
        ("full_layer", ("last", "first")),
        ("unlisted", ("full", "sliding", "chunked")),
        ("window_layers", ("none", "all", "listed")),
    ):
        if getattr(made, name) not in allowed:
            raise ValueError(f"{name} is {getattr(made, name)!r}; expected one of {allowed}")
    return made


def _typed(name: str, value: Any, annotation: str) -> Any:
    if annotation == "tuple[str, ...]":
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise TypeError(f"{name} is {value!r}; expected a list of strings")
        return tuple(value)
    expected: dict[str, Any] = {"str": str, "bool": bool, "float": int | float}
    kind = expected.get(annotation, Mapping | None)
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}; expected {annotation}")
    return value


def _unusable(file: str, why: str) -> AdapterError:
    return AdapterError(f"the architecture map {file} cannot be used: {why}", "correct the map")
