"""Which layers rotate, which see a window, and which read another layer's keys."""

from __future__ import annotations

from typing import Any

import pytest

from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.adapters.registry import registrations
from pjdiag.adapters.schedule import LayerKind, layer_count, layer_kinds, shared_keys
from pjdiag.errors import CheckpointError

CHUNKS = ["chunked_attention"] * 4


def kinds(name: str, config: dict[str, Any], layers: int) -> list[LayerKind]:
    """The kinds of a registered map's layers."""
    (adapter,) = [entry.adapter for entry in registrations() if entry.name == name]
    mapped = adapter.map
    return layer_kinds(mapped, ConfigFields(config, mapped.defaults), layers)


def windows(found: list[LayerKind]) -> list[int | None]:
    return [kind.window.value for kind in found]


def rotating(found: list[LayerKind]) -> list[int]:
    return [index for index, kind in enumerate(found) if kind.rotates.value]


def test_a_listed_one_is_a_layer_that_rotates() -> None:
    found = kinds("smollm3", {"no_rope_layers": [1, 1, 0, 1]}, 4)
    assert rotating(found) == [0, 1, 3]
    assert found[0].rotates.source == "config: no_rope_layers"


@pytest.mark.parametrize("name", ["smollm3", "llama4"])
def test_by_default_every_fourth_layer_does_not_rotate(name: str) -> None:
    found = kinds(name, {"no_rope_layers": None}, 9)
    assert rotating(found) == [0, 1, 2, 4, 5, 6, 8]


def test_a_window_alone_leaves_qwen3_full() -> None:
    assert windows(kinds("qwen3", {"sliding_window": 64}, 5)) == [None] * 5


def test_qwen3_slides_from_max_window_layers_on() -> None:
    config = {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2}
    found = kinds("qwen3", config, 5)
    assert windows(found) == [None, None, 64, 64, 64]
    assert found[2].window.source == "config: sliding_window"
    assert windows(kinds("qwen3", {**config, "max_window_layers": 0}, 2)) == [64, 64]


def test_stated_layer_types_count_before_any_rule() -> None:
    stated = ["full_attention", "sliding_attention", "sliding_attention"]
    config = {"sliding_window": 8, "layer_types": stated, "sliding_window_pattern": 2}
    found = kinds("gemma2", config, 3)
    assert windows(found) == [None, 8, 8]
    assert found[0].window.source == "no window: full_attention (config: layer_types)"


def test_each_architecture_has_its_own_period() -> None:
    assert windows(kinds("gemma2", {"sliding_window": 8}, 4)) == [8, None, 8, None]
    assert windows(kinds("cwm", {"sliding_window": 8}, 5)) == [None, 8, 8, 8, None]


def test_null_turns_the_window_off() -> None:
    found = kinds("mistral", {"sliding_window": None}, 2)
    assert windows(found) == [None, None]
    assert found[0].window.source == "no sliding_window in config"


def test_cohere2_rotates_where_it_has_a_window() -> None:
    assert rotating(kinds("cohere2", {"sliding_window": 8}, 8)) == [0, 1, 2, 4, 5, 6]
    assert rotating(kinds("cohere2", {"sliding_window": None}, 4)) == []


def test_exaone4_rotates_everywhere_where_no_window_is_stated() -> None:
    full = {"layer_types": ["full_attention"] * 3}
    assert rotating(kinds("exaone4", {**full, "sliding_window": None}, 3)) == [0, 1, 2]
    assert rotating(kinds("exaone4", {**full, "sliding_window": 8}, 3)) == []


def test_granite_hybrid_rotates_only_where_it_says_rope() -> None:
    assert rotating(kinds("granitemoehybrid", {"position_embedding_type": "rope"}, 2)) == [0, 1]
    for value in ("nope", None):
        assert rotating(kinds("granitemoehybrid", {"position_embedding_type": value}, 2)) == []
    assert rotating(kinds("granitemoehybrid", {}, 2)) == []


def test_chunks_are_no_window() -> None:
    found = kinds("llama4", {"attention_chunk_size": 64}, 4)
    assert windows(found) == [None] * 4
    assert "same chunk of 64 tokens" in found[0].window.source
    assert [kind.layer_type for kind in found][3] == "full_attention"


def test_a_layer_without_attention_says_what_it_is() -> None:
    stated = ["linear_attention", "mamba", "conv", "unheard_of", "full_attention"]
    found = kinds("lfm2", {"layer_types": stated}, 5)
    assert found[0].other == "layer type linear_attention: no softmax attention"
    assert found[1].other == "layer type mamba: a state-space layer, no attention"
    assert found[2].other == "layer type conv: a convolution, no attention"
    assert found[3].other == "layer type unheard_of: this is not read"
    assert found[4].other == ""


@pytest.mark.parametrize(
    ("name", "config", "told"),
    [
        ("gemma2", {"layer_types": ["full_attention"] * 3}, "layer_types lists 3 layers"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers lists 2 layers"),
        ("gemma2", {"layer_types": "full_attention"}, "expected a list"),
        ("gemma2", {"sliding_window": 0}, "sliding_window is 0"),
        ("cohere2", {"sliding_window_pattern": -6}, "sliding_window_pattern is -6"),
        ("flint", {}, "states no layer_types"),
        (
            "llama4",
            {"layer_types": ["chunked_attention"] * 4, "attention_chunk_size": None},
            "chunk",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(name: str, config: dict[str, Any], told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        kinds(name, config, 4)


def test_the_list_of_kinds_counts_the_layers() -> None:
    mapped = ArchitectureMap("toy", ("toy",))
    assert layer_count(mapped, ConfigFields({"layer_types": ["a", "b"]}, {})) == 2
    stated = ConfigFields({"layer_types": ["a", "b"], "num_hidden_layers": 3}, {})
    assert layer_count(mapped, stated) == 3
    for config in ({}, {"num_hidden_layers": 10_001}):
        with pytest.raises(CheckpointError, match=r"num_hidden_layers|10000"):
            layer_count(mapped, ConfigFields(config, {}))


def shared(config: dict[str, Any], letters: str) -> list[int | None]:
    mapped = ArchitectureMap("toy", ("toy",), shared_kv="num_kv_shared_layers")
    names = {"s": "sliding_attention", "f": "full_attention"}
    fields = ConfigFields({"layer_types": [names[letter] for letter in letters], **config}, {})
    found = layer_kinds(mapped, fields, len(letters))
    return [entry.value for entry in shared_keys(mapped, fields, found)]


def test_shared_keys_are_those_of_the_last_earlier_layer_of_the_type() -> None:
    assert shared({"num_kv_shared_layers": 4}, "ssfssfsf") == [None] * 4 + [3, 2, 3, 2]
    assert shared({"num_kv_shared_layers": 0}, "sf") == [None, None]
    assert shared({}, "sf") == [None, None]


@pytest.mark.parametrize("count", [2, 3, 9])
def test_keys_that_no_earlier_layer_has_are_refused(count: int) -> None:
    with pytest.raises(CheckpointError, match="there is none"):
        shared({"num_kv_shared_layers": count}, "ssf")
