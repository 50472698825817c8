"""Classes that make a window of half the stated size where queries look both ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pjdiag
from pjdiag import adapters
from tests.plugins.contract import TOLERANCE, build, errors
from tests.plugins.tiny_configs import HEADS, PER_LAYER, case, types

SMALL = {k: v for k, v in PER_LAYER.items() if "size" in k}


@pytest.mark.parametrize(
    ("name", "config", "both_ways", "window"),
    [
        ("gemma3", "Gemma3TextConfig", True, 11),
        ("gemma3", "Gemma3TextConfig", False, 20),
        ("gemma4", "Gemma4TextConfig", "all", 12),
        ("gemma4", "Gemma4TextConfig", "vision", 20),
    ],
)
def test_an_encoder_has_half_the_window(
    name: str, config: str, both_ways: Any, window: int, tmp_path: Path
) -> None:
    own: dict[str, Any] = {"global_head_dim": 16, **SMALL} if name == "gemma4" else {}
    changes = {**HEADS, **types("SF"), **own, "sliding_window": 20}
    built = case(name, config, use_bidirectional_attention=both_ways, **changes)
    model = build(built, tmp_path)
    sliding, full = adapters.read(pjdiag.load(tmp_path)).layers
    assert (sliding.window.value, full.window.value) == (window, None)
    assert model.config.sliding_window == (20 if window == 20 else 11)


@pytest.mark.parametrize("stated", [20, 21])
@pytest.mark.parametrize("name", ["gemma3", "gemma4"])
def test_it_is_the_window_of_the_classes_own_attention(
    name: str, stated: int, tmp_path: Path
) -> None:
    own: dict[str, Any] = {"global_head_dim": 16, **SMALL} if name == "gemma4" else {}
    changes = {**HEADS, **types("SF"), **own, "sliding_window": stated}
    both_ways = True if name == "gemma3" else "all"
    config = f"{name.title()}TextConfig"
    built = case(name, config, use_bidirectional_attention=both_ways, **changes)
    assert max(errors(replace(built, length=64), tmp_path, padding=9)) < TOLERANCE
