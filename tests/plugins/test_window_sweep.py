"""Every spelling of windows and of layers without rotation, by what the class's attention sees."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pjdiag
from pjdiag.errors import CheckpointError
from tests.plugins.contract import TOLERANCE, Case, build, compared, run
from tests.plugins.decoder_cases import DECODERS
from tests.plugins.rope_sweep import FULL, SLIDING

FIELDS = (
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "layer_types",
    "no_rope_layers",
    "no_rope_layer_interval",
    "global_attn_every_n_layers",
)
"""What the spellings state; taken out of the configurations before."""
WINDOW = {"sliding_window": 10}
ON = {**WINDOW, "use_sliding_window": True}
OFF = {**WINDOW, "use_sliding_window": False}
SPELLINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "window": WINDOW,
    "window-null": {"sliding_window": None},
    "on": ON,
    "off": OFF,
    "on-first": {**ON, "max_window_layers": 1},
    "on-all": {**ON, "max_window_layers": 0},
    "listed": {**WINDOW, "layer_types": [SLIDING, FULL]},
    "listed-on": {**ON, "layer_types": [FULL, SLIDING]},
    "listed-off": {**OFF, "layer_types": [FULL, SLIDING]},
    "listed-full": {"sliding_window": None, "layer_types": [FULL, FULL]},
    "pattern": {**WINDOW, "sliding_window_pattern": 2},
    "pattern-1": {**WINDOW, "sliding_window_pattern": 1},
    "unrotated": {"no_rope_layers": [0, 1]},
    "unrotated-window": {**WINDOW, "no_rope_layers": [0, 1]},
    "unrotated-on": {**ON, "no_rope_layers": [0, 1]},
    "interval": {"no_rope_layer_interval": 2},
    "interval-on": {**ON, "no_rope_layer_interval": 2},
    "unrotated-listed": {**WINDOW, "no_rope_layers": [0, 1], "layer_types": [SLIDING, FULL]},
}
NOT_ALONE = {"FlintConfig"}
"""Its map asks for a list of layer types, and says so."""
WITHOUT_KEYS = {("Qwen2MoeConfig", "listed"), ("Qwen2MoeConfig", "unrotated-listed")} | {
    ("Qwen2MoeConfig", "listed-off")
}
"""The class makes a window of no keys where windows are listed and switched off."""
BY_CLASS = {type(case.config).__name__: case for case in reversed(DECODERS)}


def agrees(case: Case, spelling: dict[str, Any], folder: Path) -> bool | None:
    """Whether our reading of the raw spelling is what runs; None where the class cannot run it."""
    raw = {key: value for key, value in case.config.to_dict().items() if key not in FIELDS}
    raw |= {"num_hidden_layers": 2, **copy.deepcopy(spelling)}
    try:
        made = replace(case, config=type(case.config).from_dict(copy.deepcopy(raw)), length=40)
        found = run(made, build(made, folder), padding=5)
    except Exception:  # noqa: BLE001  whatever the class answers to a spelling that it refuses
        return None
    (folder / "config.json").write_text(json.dumps(raw, default=str), encoding="utf-8")
    return max(compared(made, folder, found)) < TOLERANCE


def spellings(name: str) -> dict[str, dict[str, Any]]:
    """Those that state a field of the class."""
    known = {*type(BY_CLASS[name].config).__dataclass_fields__, "sliding_window_pattern"}
    return {
        label: spelling
        for label, spelling in SPELLINGS.items()
        if known & spelling.keys() or label == "nothing"
        if (name, label) not in WITHOUT_KEYS
    }


@pytest.mark.parametrize("name", sorted(BY_CLASS.keys() - NOT_ALONE)[::3])
def test_a_spelling_is_read_as_it_runs(name: str, tmp_path: Path) -> None:
    own = spellings(name)
    label = list(own)[sorted(BY_CLASS).index(name) % len(own)]
    assert agrees(BY_CLASS[name], own[label], tmp_path) is not False, label


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(BY_CLASS.keys() - NOT_ALONE))
def test_every_spelling_is_read_as_it_runs(name: str, tmp_path: Path) -> None:
    own = spellings(name)
    answers = {label: agrees(BY_CLASS[name], own[label], tmp_path / label) for label in own}
    assert [label for label, answer in answers.items() if answer is False] == []
    assert True in answers.values()


def test_layer_types_that_a_map_needs_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="states no layer_types"):
        agrees(BY_CLASS["FlintConfig"], WINDOW, tmp_path)


def test_a_period_that_the_class_does_not_read_is_said(tmp_path: Path) -> None:

    case = BY_CLASS["Gemma2Config"]
    assert agrees(case, SPELLINGS["pattern-1"], tmp_path)
    said = [text for text in pjdiag.inspect(tmp_path).warnings if "sliding_window_pattern" in text]
    assert said == [
        "config: sliding_window_pattern is 1; gemma2 does not read it: one layer in 2 is full"
    ]
