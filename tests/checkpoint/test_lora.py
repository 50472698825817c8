"""LoRA adapters: named alone, merged on request, checked against the formula written out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import pjdiag
from pjdiag.checkpoint import Checkpoint, load
from pjdiag.errors import CheckpointError

OUT, IN, RANK, ALPHA = 6, 4, 2, 8
Q = "model.layers.0.self_attn.q_proj"
K = "model.layers.0.self_attn.k_proj"
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "base_model_name_or_path": "org/base",
    "r": RANK,
    "lora_alpha": ALPHA,
    "use_rslora": False,
    "fan_in_fan_out": False,
    "use_dora": False,
    "bias": "none",
    "init_lora_weights": True,
}


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


BASE = {f"{Q}.weight": random(1, OUT, IN), f"{K}.weight": random(2, OUT, IN)}
UPDATE = {
    f"base_model.model.{Q}.lora_A.weight": random(3, RANK, IN),
    f"base_model.model.{Q}.lora_B.weight": random(4, OUT, RANK),
}


def base_folder(path: Path, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    (path / "base").mkdir()
    save_file(BASE if tensors is None else tensors, path / "base" / "model.safetensors")
    (path / "base" / "config.json").write_text('{"model_type": "llama"}')
    return path / "base"


def adapter_folder(path: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    folder = path / "adapter"
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def merge(
    path: Path,
    update: dict[str, torch.Tensor],
    base: dict[str, torch.Tensor] | None = None,
    **changes: Any,
) -> Checkpoint:
    return load(adapter_folder(path, update, **changes), merge_base=base_folder(path, base))


def delta(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """``scale B A``, element by element."""
    found = torch.zeros(b.shape[0], a.shape[1])
    for row in range(b.shape[0]):
        for column in range(a.shape[1]):
            found[row, column] = scale * sum(
                float(b[row, part]) * float(a[part, column]) for part in range(a.shape[0])
            )
    return found


@pytest.mark.parametrize("rslora", [False, True])
def test_merged_weights(tmp_path: Path, rslora: bool) -> None:
    checkpoint = merge(tmp_path, UPDATE, use_rslora=rslora)
    scale = ALPHA / (math.sqrt(RANK) if rslora else RANK)
    expected = BASE[f"{Q}.weight"] + delta(*UPDATE.values(), scale)
    found = checkpoint.read(f"{Q}.weight")
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-6)
    assert found.dtype == np.float32
    for start, stop in ((0, 1), (2, 5), (3, 3)):
        np.testing.assert_array_equal(
            checkpoint.read_rows(f"{Q}.weight", start, stop), found[start:stop]
        )
    np.testing.assert_array_equal(checkpoint.read(f"{K}.weight"), BASE[f"{K}.weight"].numpy())
    assert checkpoint.config == {"model_type": "llama"}
    assert checkpoint.warnings[0].endswith("adapter changes: 1")
    names = {file.name for file in checkpoint.files}
    assert names == {"model.safetensors", "config.json", "adapter_model.safetensors"}


def test_weights_stored_the_other_way_round(tmp_path: Path) -> None:
    name = "h.0.attn.c_attn"
    base = {f"{name}.weight": random(1, IN, OUT)}
    update = {
        f"base_model.model.transformer.{name}.lora_A.weight": random(3, RANK, IN),
        f"base_model.model.transformer.{name}.lora_B.weight": random(4, OUT, RANK),
    }
    checkpoint = merge(tmp_path, update, base, fan_in_fan_out=True)
    expected = base[f"{name}.weight"] + delta(*update.values(), ALPHA / RANK).T
    np.testing.assert_allclose(checkpoint.read(f"{name}.weight"), expected.numpy(), atol=1e-6)
    rows = checkpoint.read_rows(f"{name}.weight", 1, 3)
    np.testing.assert_allclose(rows, expected.numpy()[1:3], atol=1e-6)


def test_embeddings_and_saved_modules(tmp_path: Path) -> None:
    base = BASE | {"model.embed_tokens.weight": random(5, 9, IN), "lm_head.weight": random(6, 9, 4)}
    update = UPDATE | {
        "base_model.model.model.embed_tokens.lora_embedding_A": random(7, RANK, 9),
        "base_model.model.model.embed_tokens.lora_embedding_B": random(8, IN, RANK),
        "base_model.model.lm_head.weight": random(9, 9, 4),
    }
    checkpoint = merge(tmp_path, update, base)
    a, b = list(update.values())[2:4]
    expected = base["model.embed_tokens.weight"] + delta(a, b, ALPHA / RANK).T
    found = checkpoint.read("model.embed_tokens.weight")
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    saved = update["base_model.model.lm_head.weight"].numpy()
    np.testing.assert_array_equal(checkpoint.read("lm_head.weight"), saved)


def test_rank_and_alpha_of_single_modules(tmp_path: Path) -> None:
    update = UPDATE | {
        f"base_model.model.{K}.lora_A.default.weight": random(5, 3, IN),
        f"base_model.model.{K}.lora_B.default.weight": random(6, OUT, 3),
    }
    checkpoint = merge(tmp_path, update, rank_pattern={"k_proj": 3}, alpha_pattern={"k_proj": 6})
    expected = BASE[f"{K}.weight"] + delta(*list(update.values())[2:], 6 / 3)
    np.testing.assert_allclose(checkpoint.read(f"{K}.weight"), expected.numpy(), atol=1e-6)
    expected = BASE[f"{Q}.weight"] + delta(*UPDATE.values(), ALPHA / RANK)
    np.testing.assert_allclose(checkpoint.read(f"{Q}.weight"), expected.numpy(), atol=1e-6)


def test_a_file_of_an_adapter_and_a_torch_file(tmp_path: Path) -> None:
    folder, base = adapter_folder(tmp_path, UPDATE), base_folder(tmp_path)
    expected = load(folder, merge_base=base).read(f"{Q}.weight")
    found = load(folder / "adapter_model.safetensors", merge_base=base).read(f"{Q}.weight")
    np.testing.assert_array_equal(found, expected)
    (folder / "adapter_model.safetensors").unlink()
    torch.save(UPDATE, folder / "adapter_model.bin")
    with pytest.raises(CheckpointError, match="torch pickle"):
        load(folder, merge_base=base)
    found = load(folder, merge_base=base, allow_pickle=True).read(f"{Q}.weight")
    np.testing.assert_array_equal(found, expected)


def test_a_quantised_base_stays_unreadable_where_it_was(tmp_path: Path) -> None:
    base = BASE | {f"{Q}.weight": BASE[f"{Q}.weight"].to(torch.float8_e4m3fn)}
    checkpoint = merge(tmp_path, UPDATE, base)
    assert "scale" in (checkpoint.unreadable_reason(f"{Q}.weight") or "")
    scaled = dict(base) | {f"{Q}.weight_scale": torch.tensor(0.5)}
    (tmp_path / "scaled").mkdir()
    save_file(scaled, tmp_path / "scaled" / "model.safetensors")
    found = load(tmp_path / "adapter", merge_base=tmp_path / "scaled").read(f"{Q}.weight")
    kept = base[f"{Q}.weight"].float() * 0.5
    expected = kept + delta(*UPDATE.values(), ALPHA / RANK)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("as_file", [False, True])
def test_an_adapter_alone_names_its_base_and_what_to_do(tmp_path: Path, as_file: bool) -> None:
    folder = adapter_folder(tmp_path, UPDATE)
    path = folder / "adapter_model.safetensors" if as_file else folder
    with pytest.raises(CheckpointError, match="holds an adapter only, base = 'org/base'") as caught:
        pjdiag.mass(path)
    assert "--base DIR" in caught.value.hint
    (folder / "adapter_config.json").unlink()
    with pytest.raises(CheckpointError, match="holds an adapter only, base = not stated"):
        load(path if as_file else folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"lora_bias": True}, "lora_bias"),
        ({"layer_replication": [[0, 1]]}, "repeats layers"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4"),
        ({"lora_alpha": "much"}, "lora_alpha is 'much'"),
        ({"lora_alpha": 10**400}, "expected a finite number"),
        ({"alpha_pattern": {".*": 10**400}}, "expected a finite number"),
        ({"r": 3}, "has rank 2; the config states '3'"),
        ({"alpha_pattern": {"(": 3}}, "pattern"),
    ],
)
def test_what_is_no_plain_lora_is_refused(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(CheckpointError, match="cannot be merged here") as caught:
        merge(tmp_path, UPDATE, **changes)
    assert told in caught.value.message
    assert "merge_and_unload" in caught.value.hint


@pytest.mark.parametrize(
    ("update", "told"),
    [
        (dict(list(UPDATE.items())[:1]), "lora_A or lora_B is missing for 'model.layers.0"),
        (UPDATE | {"base_model.model.other.weight": random(1, 2)}, "does not hold"),
        (
            {
                "base_model.model.gone.lora_A.weight": random(3, RANK, IN),
                "base_model.model.gone.lora_B.weight": random(4, OUT, RANK),
            },
            "changes 'gone.weight', which the base",
        ),
        (
            {
                f"base_model.model.{Q}.lora_A.weight": random(3, RANK, IN + 1),
                f"base_model.model.{Q}.lora_B.weight": random(4, OUT, RANK),
            },
            r"as \[6, 5\]; in the base it is \[6, 4\]",
        ),
        (
            {
                f"base_model.model.{Q}.lora_A.weight": random(3, RANK + 1, IN),
                f"base_model.model.{Q}.lora_B.weight": random(4, OUT, RANK),
            },
            "expected",
        ),
        ({"w": random(1, 2)}, "every module"),
    ],
)
def test_an_adapter_that_does_not_fit_is_an_error(
    tmp_path: Path, update: dict[str, torch.Tensor], told: str
) -> None:
    with pytest.raises(CheckpointError, match=told):
        merge(tmp_path, update)


def test_a_folder_without_an_adapter_is_named(tmp_path: Path) -> None:
    base = base_folder(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds no adapter_model\.safetensors"):
        load(base, merge_base=base)
