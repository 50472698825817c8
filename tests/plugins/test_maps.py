"""What the maps fill in, held by the configuration classes; which architectures are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.mapped_adapter import MappedAdapter
from pjdiag.adapters.registry import registrations
from pjdiag.adapters.schedule import ATTENTION, layer_count, layer_kinds
from pjdiag.checkpoint import Checkpoint
from tests.plugins.decoder_cases import DECODERS
from tests.plugins.hybrid_cases import HYBRIDS
from tests.plugins.test_contract_classes import CASES
from tests.plugins.vision_cases import VISION

KNOWN = Path(__file__).parent.parent / "data" / "causal_model_types.json"
NOT_RELATIVE = {"hunyuan_v1_dense", "hunyuan_v1_moe"}
"""Their logits are no function of the lag: tests/plugins/test_map_limits.py."""
WITH_A_CLASS = ("gemma4", "modernbert", "phimoe", "zamba")
BY_MAP = [
    entry.adapter.reader
    for entry in registrations()
    if isinstance(entry.adapter, MappedAdapter)
    and (not entry.adapter.reader_name or entry.name.startswith(WITH_A_CLASS))
    and not entry.adapter.map.refused
]
LENGTH = 512
BROKEN_DEFAULTS = {"gemma4_assistant", "gemma4_unified_assistant"}
"""Their classes refuse their own defaults."""


def checkpoint(config: dict[str, Any]) -> Checkpoint:
    """A checkpoint without tensors."""
    return Checkpoint(Path("none"), "folder", {}, {}, (), config)


def text_classes(adapter: DecoderAdapter) -> list[type]:
    """Configuration classes of the text models that the adapter names."""
    found = [CONFIG_MAPPING[name] for name in adapter.map.model_types if name in CONFIG_MAPPING]
    return [cls for cls in found if not getattr(cls, "sub_configs", {}).get("text_config")]


def read(adapter: DecoderAdapter, config: dict[str, Any]) -> dict[str, Any]:
    """Everything that the adapter takes from a configuration, by name."""
    fields, mapped = adapter.fields(checkpoint(config)), adapter.map
    geometry = adapter.geometry(fields)
    kinds = layer_kinds(mapped, fields, layer_count(mapped, fields))
    made: dict[str, Any] = {
        "kinds": [(kind.layer_type, kind.window.value, kind.rotates.value) for kind in kinds],
        "train_length": adapter.train_length(checkpoint(config)).value,
        "causal": adapter.causal(checkpoint(config), fields).value,
        "eps": fields.number(mapped.qk_norm_eps).value if has_norm(mapped) else None,
        **{
            name: fields.get(getattr(mapped, name)).value
            for name in ("softcap", "clip", "key_factor", "qk_norm_bare", "shared_kv")
            if getattr(mapped, name)
        },
    }
    for index, kind in enumerate(kinds):
        own = adapter.layer_geometry(geometry, fields, kind, index)
        rope = None if kind.other else adapter.rope(fields, own, kind, LENGTH)
        made[f"layer {index}"] = (
            own.num_heads.value,
            own.num_kv_heads.value,
            own.head_dim.value,
            own.hidden_size,
            adapter.scale(fields, own).value,
            rope and (rope.rope_type.value, rope.theta.value, rope.rotary_dim.value),
            rope and (rope.inv_freq.value, rope.attention_factor.value, rope.scale_factor.value),
        )
    return made


def has_norm(mapped: ArchitectureMap) -> bool:
    """Whether the map names a norm of queries and keys."""
    return bool(mapped.query_norm or mapped.qk_norm_bare)


@pytest.mark.parametrize("adapter", BY_MAP, ids=lambda adapter: adapter.name)
def test_an_empty_configuration_reads_as_its_class_fills_it_in(adapter: DecoderAdapter) -> None:
    classes = text_classes(adapter)
    assert classes, "no class of transformers holds this map"
    for cls in classes:
        filled = json.loads(cls().to_json_string())
        # What the class does not fill in, or what the tensors tell.
        told = {} if known_head_dim(filled) else {"head_dim": 128}
        filled |= told
        types = {name: filled[name] for name in adapter.map.layer_types if filled.get(name)}
        hybrid = any(kind not in ATTENTION for kinds in types.values() for kind in kinds)
        if adapter.map.layer_types_needed or hybrid:
            told |= types
        assert read(adapter, {"model_type": cls.model_type, **told}) == read(adapter, filled)


def known_head_dim(config: dict[str, Any]) -> bool:
    """Whether a head's size is stated, or the width a multiple of the heads."""
    if config.get("head_dim"):
        return True
    return config["hidden_size"] % config["num_attention_heads"] == 0


@pytest.mark.parametrize("adapter", BY_MAP, ids=lambda adapter: adapter.name)
def test_every_default_is_the_classes_own(adapter: DecoderAdapter) -> None:
    not_fields = {"rope_theta", adapter.map.pattern, "global_head_dim"}
    for cls in text_classes(adapter):
        known = cls.__dataclass_fields__
        for name, value in (adapter.map.defaults or {}).items():
            if value is not None and name in known:
                assert value == known[name].default, (cls, name)
        unknown = {n for n, v in adapter.map.defaults.items() if v is not None and n not in known}
        assert unknown - not_fields <= inherited(adapter), (cls, unknown)


def inherited(adapter: DecoderAdapter) -> set[str]:
    """Defaults of the maps that this one extends, for fields that it does not read."""
    mapped = adapter.map
    read_fields = {
        *mapped.num_heads,
        *mapped.num_kv_heads,
        *mapped.head_dim,
        *mapped.hidden_size,
        mapped.qk_norm_eps if has_norm(mapped) else "",
        mapped.clip,
        mapped.scale_field,
        mapped.key_factor,
        mapped.softcap,
        mapped.bidirectional,
        mapped.window if mapped.window_layers != "none" else "",
    }
    return set(mapped.defaults or {}) - read_fields


def test_every_map_is_held_by_the_contract() -> None:
    cases = (*DECODERS, *HYBRIDS, *VISION, *CASES.values())
    held = {case.adapter or case.name for case in cases}
    assert {adapter.name for adapter in BY_MAP} - held == NOT_RELATIVE


def test_no_two_adapters_name_the_same_architecture() -> None:
    names = [(name, adapter.name) for adapter in BY_MAP for name in adapter.map.model_types]
    assert len({name for name, _ in names}) == len(names)


def test_a_map_names_what_its_reader_reads() -> None:
    stated = [
        entry.adapter
        for entry in registrations()
        if isinstance(entry.adapter, MappedAdapter) and entry.adapter.reader_name
    ]
    assert len(stated) > 20
    for adapter in stated:
        assert adapter.reader.name == adapter.name
        if hasattr(adapter.reader, "map"):
            assert adapter.reader.map.model_types == adapter.model_types


def causal_model_types() -> dict[str, str]:
    """Model types of transformers' causal language models, and of their text parts."""
    found = {}
    for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        parts = getattr(CONFIG_MAPPING[name], "sub_configs", {})
        text = parts.get("text_config")
        if text is AutoConfig and name not in BROKEN_DEFAULTS:
            text = CONFIG_MAPPING[name]().get_text_config()
        found[name] = getattr(text, "model_type", "") or name
    return found


def test_the_known_architectures_only_grow() -> None:
    adapters = [entry.adapter for entry in registrations() if entry.adapter is not None]
    named = {}
    for name, text in causal_model_types().items():
        asked = checkpoint({"model_type": text})
        matches = [(entry, entry.matches(asked)) for entry in adapters]
        named[name] = [entry.name for entry, match in matches if match and match.score >= 50]
    assert all(len(found) <= 1 for found in named.values()), named
    known = sorted(name for name, found in named.items() if found)
    others = sorted(name for name, found in named.items() if not found)
    print(f"{len(known)} of {len(named)} causal model types are known; not: {' '.join(others)}")
    stored = json.loads(KNOWN.read_text("utf-8"))
    assert set(stored["known"]) <= set(known)


def test_every_field_of_a_map_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8")
    fields = {*ArchitectureMap.__dataclass_fields__, "extends"}
    assert {name for name in fields if f"`{name}`" not in page} == set()
