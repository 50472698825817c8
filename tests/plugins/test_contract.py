"""Every map against the attention of the real class; a wrong map fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pjdiag.adapters import reading
from pjdiag.adapters.architecture_map import ArchitectureMap
from pjdiag.adapters.decoder import DecoderAdapter
from pjdiag.adapters.registry import Registration, registrations
from tests.plugins.contract import TOLERANCE, Case, build, compared, errors, run
from tests.plugins.decoder_cases import DECODERS
from tests.plugins.hybrid_cases import HYBRIDS
from tests.plugins.rope_cases import ROPES
from tests.plugins.tiny_configs import HEADS, case
from tests.plugins.vision_cases import VISION

PADDING = 395
"""Of 512 tokens; those that are left still go beyond every window."""


@pytest.mark.parametrize("case", [*DECODERS, *HYBRIDS, *ROPES, *VISION], ids=lambda case: case.name)
def test_reading_reconstructs_the_models_own_attention(case: Case, tmp_path: Path) -> None:
    found = errors(case, tmp_path, PADDING)
    assert max(found) < TOLERANCE, found


MUTATIONS: list[tuple[Case, dict[str, Any]]] = [
    (case("llama", "LlamaConfig", **HEADS), {"rope_layout": "interleaved"}),
    (case("llama", "LlamaConfig", **HEADS), {"fixed_scale": 0.26}),
    (case("llama", "LlamaConfig", **HEADS), {"rope_backwards": True}),
    (case("llama", "LlamaConfig", **HEADS), {"partial_rotary_factor": 0.5}),
    (case("llama", "LlamaConfig", num_key_value_heads=4), {"key": "self_attn.v_proj"}),
    (case("phi3", "Phi3Config", num_key_value_heads=4), {"fused_rows": "heads"}),
    (case("phi3", "Phi3Config"), {"fused_rows": "groups"}),
    (case("persimmon", "PersimmonConfig", hidden_size=64), {"fused_rows": "blocks"}),
    (case("qwen3", "Qwen3Config", **HEADS), {"query_norm": "none", "key_norm": "none"}),
    (case("olmo2", "Olmo2Config"), {"qk_norm_over": "head"}),
    (case("gemma2", "Gemma2Config", **HEADS, attn_logit_softcapping=1.0), {"softcap": ""}),
    (case("olmo", "OlmoConfig", clip_qkv=0.5), {"clip": ""}),
    (case("smollm3", "SmolLM3Config", no_rope_layers=[1, 0]), {"rope_layers": "all"}),
]


@pytest.mark.parametrize(
    ("case", "change"), MUTATIONS, ids=lambda entry: getattr(entry, "name", entry)
)
def test_a_wrong_map_fails(
    case: Case, change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = replace(case, length=96)
    found = run(case, build(case, tmp_path), padding=10)
    assert max(compared(case, tmp_path, found)) < TOLERANCE
    monkeypatch.setattr(reading, "registrations", lambda: mutated(case.name, change))
    assert max(compared(case, tmp_path, found)) > 100 * TOLERANCE


def mutated(name: str, change: dict[str, Any]) -> tuple[Registration, ...]:
    """The registered adapters with one map changed."""
    (entry,) = [entry for entry in registrations() if entry.name == name]
    mapped: ArchitectureMap = entry.adapter.map
    return (replace(entry, adapter=DecoderAdapter(replace(mapped, **change))),)


def test_a_wrong_set_of_keys_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = replace(case("mistral", "MistralConfig", sliding_window=20), length=96)
    found = run(windowed, build(windowed, tmp_path), padding=10)
    change = {"window_layers": "none"}
    monkeypatch.setattr(reading, "registrations", lambda: mutated("mistral", change))
    with pytest.raises(AssertionError, match="another set of keys is visible"):
        compared(windowed, tmp_path, found)
