"""An adapter on the command line: alone it is named, with --base it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from pjdiag.api import read
from pjdiag.diagnostics.runner import runner
from pjdiag.errors import AdapterError
from tests.cli.running import run

NAME = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    config = LlamaConfig(
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=16,
        vocab_size=8,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    update = {
        f"base_model.model.{NAME}.lora_A.weight": torch.ones(1, 16),
        f"base_model.model.{NAME}.lora_B.weight": torch.ones(16, 1),
    }
    save_file(update, adapter / "adapter_model.safetensors")
    stated = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "base_model_name_or_path": "some/base"}
    (adapter / "adapter_config.json").write_text(json.dumps(stated))
    return adapter, tmp_path / "base"


def test_an_adapter_alone_is_one_line(
    capsys: pytest.CaptureFixture[str], folders: tuple[Path, Path]
) -> None:
    capsys.readouterr()
    ran = run(capsys, "mass", folders[0])
    assert ran.code == 2
    assert "holds an adapter only, base = 'some/base'. Next: pass its base model too" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_with_its_base_the_merged_weights_are_read(
    capsys: pytest.CaptureFixture[str], folders: tuple[Path, Path]
) -> None:
    adapter, base = folders
    masses = []
    for options in ([base], [adapter, "--base", base]):
        ran = run(capsys, "mass", *options, "-o", "json")
        assert ran.code == 0
        result = json.loads(ran.out)
        masses.append(next(r["effective_mass"] for r in result["rows"] if r["jet_order"] is None))
    assert result["checkpoint"]["format"] == "folder + lora"
    assert result["warnings"][0].endswith("adapter changes: 1")
    assert masses[1] > 10 * masses[0]


def test_a_merged_model_is_read_and_not_run(folders: tuple[Path, Path]) -> None:
    adapter, base = folders
    with pytest.raises(AdapterError, match="is read here, and not run"):
        runner(read(adapter, merge_base=base))
