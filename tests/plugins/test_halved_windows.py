"""Classes that make a window of half the stated size where queries look both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pjdiag
from pjdiag import adapters
from tests.plugins.contract import build
from tests.plugins.tiny_configs import HEADS, PER_LAYER, case, types

SMALL = {k: v for k, v in PER_LAYER.items() if "size" in k}


@pytest.mark.parametrize(
    ("name", "config", "both_ways", "window"),
    [
        ("gemma3", "Gemma3TextConfig", True, 11),
        ("gemma3", "Gemma3TextConfig", False, 20),
        ("gemma4", "Gemma4TextConfig", "all", 11),
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
    assert model.config.sliding_window == window
