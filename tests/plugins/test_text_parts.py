"""A text part that names no model type: its class's own is taken, or the missing field is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import pjdiag
from pjdiag.adapters import detect
from pjdiag.adapters.mapped_adapter import MappedAdapter
from pjdiag.adapters.registry import registrations
from tests.adapters.decoder_folders import LLAMA, write

MAPS = [
    entry.adapter
    for entry in registrations()
    if isinstance(entry.adapter, MappedAdapter) and entry.adapter.map.text_of
]


@pytest.mark.parametrize("adapter", MAPS, ids=lambda adapter: adapter.name)
def test_the_classes_take_these_text_models(adapter: MappedAdapter) -> None:
    for outer in adapter.map.text_of:
        made = CONFIG_MAPPING[outer](text_config={"hidden_size": 64})
        assert made.text_config.model_type in adapter.model_types


def read_as(folder: Path, config: dict[str, Any]) -> tuple[str, str]:
    blank = dict.fromkeys((*LLAMA, "model_type"), ...)
    adapter, match = detect(pjdiag.load(write(folder, {**blank, **config})))
    return adapter.name, match.reason


def test_a_text_part_without_a_type(tmp_path: Path) -> None:
    text = {name: value for name, value in LLAMA.items() if name != "model_type"}
    name, reason = read_as(tmp_path / "llava", {"model_type": "llava", "text_config": text})
    assert name == "llama"
    assert reason == "config: model_type llava, whose text part states none: its class's own"
    name, _ = read_as(tmp_path / "gemma3", {"model_type": "gemma3", "text_config": text})
    assert name == "gemma3"
    # What it states goes before what the class would take.
    stated = {"model_type": "llava", "text_config": {**text, "model_type": "qwen2"}}
    assert read_as(tmp_path / "qwen2", stated) == ("qwen2", "config: model_type qwen2")


def test_a_whole_model_that_nobody_knows_names_the_missing_field(tmp_path: Path) -> None:
    text = {name: value for name, value in LLAMA.items() if name != "model_type"}
    folder = tmp_path / "model"
    assert read_as(folder, {"model_type": "lava", "text_config": text})[0] == "generic"
    warnings = " ".join(pjdiag.inspect(folder).warnings)
    assert "config.json states no model_type in the text part of model_type 'lava'" in warnings
    assert "write a map" in warnings
