"""Quantised weights: scaled as they are read, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pjdiag.checkpoint import Checkpoint, load
from pjdiag.errors import CheckpointError

FP8 = torch.float8_e4m3fn
NAME = "model.layers.0.self_attn.q_proj.weight"
BASE = NAME.removesuffix(".weight")
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def folder(
    path: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any] | None = None
) -> Checkpoint:
    save_file(tensors, path / "model.safetensors")
    config = {} if settings is None else {"quantization_config": settings}
    (path / "config.json").write_text(json.dumps(config))
    return load(path)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(256, 384), (130, 200), (128, 128), (1, 5), (129, 128)])
@pytest.mark.parametrize("ending", ["_scale_inv", "_scale"])
def test_fp8_in_blocks(tmp_path: Path, shape: tuple[int, int], ending: str) -> None:
    weight = random(*shape).to(FP8)
    scale = random(-(-shape[0] // 128), -(-shape[1] // 128)).exp()
    checkpoint = folder(tmp_path, {NAME: weight, NAME + ending: scale}, BLOCKS)
    spread = torch.kron(scale, torch.ones(128, 128))[: shape[0], : shape[1]]
    expected = (weight.float() * spread).numpy()
    found = checkpoint.read(NAME)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    assert checkpoint.headers[NAME].dtype == "F8_E4M3"
    assert checkpoint.unreadable_reason(NAME) is None
    for start, stop in ((0, 1), (shape[0] // 2, shape[0]), (0, 0)):
        np.testing.assert_array_equal(checkpoint.read_rows(NAME, start, stop), expected[start:stop])


@pytest.mark.parametrize("scale_shape", [(), (1,), (1, 1), (6,), (6, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [FP8, torch.float8_e5m2, torch.int8])
def test_one_scale_for_all_or_one_per_row(
    tmp_path: Path, scale_shape: tuple[int, ...], dtype: torch.dtype, weight_dtype: torch.dtype
) -> None:
    weight = (10 * random(6, 4)).to(weight_dtype)
    scale = random(*scale_shape).exp().to(dtype)
    checkpoint = folder(tmp_path, {NAME: weight, f"{NAME}_scale": scale})
    expected = (weight.float() * scale.float().reshape(-1, 1).expand(6, 1)).numpy()
    np.testing.assert_array_equal(checkpoint.read(NAME), expected)
    np.testing.assert_array_equal(checkpoint.read_rows(NAME, 4, 6), expected[4:])


def test_a_scale_in_another_shard_is_found(tmp_path: Path) -> None:
    weight, scale = random(4, 4).to(FP8), torch.tensor([[3.0]])
    parts = [{NAME: weight}, {f"{NAME}_scale_inv": scale}]
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for file, part in zip(files, parts, strict=True):
        save_file(part, tmp_path / file)
    weight_map = {name: file for file, part in zip(files, parts, strict=True) for name in part}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    expected = (weight.float() * 3).numpy()
    np.testing.assert_array_equal(load(tmp_path).read(NAME), expected)
    alone = load(tmp_path / files[0])
    with pytest.raises(CheckpointError, match="is missing; load all shards"):
        alone.read(NAME)


@pytest.mark.parametrize(
    ("tensors", "settings", "told"),
    [
        ({NAME: random(4, 4).to(FP8)}, None, "is missing"),
        ({NAME: random(4, 4).to(torch.int8)}, None, "is missing"),
        ({NAME: random(4, 4).to(FP8), f"{NAME}_scale": random(3)}, None, "does not fit"),
        (
            {NAME: random(256, 256).to(FP8), f"{NAME}_scale_inv": random(2, 2)},
            {"quant_method": "fp8"},
            "states no weight_block_size",
        ),
        (
            {NAME: random(256, 256).to(FP8), f"{NAME}_scale_inv": random(2, 3)},
            BLOCKS,
            "does not fit .* in blocks of 128 x 128",
        ),
        (
            {NAME: random(256, 256).to(FP8), f"{NAME}_scale_inv": random(2, 2)},
            {"weight_block_size": [0, "x"]},
            "states no weight_block_size",
        ),
        (
            {NAME: random(4, 4).to(FP8), f"{NAME}_scale": torch.ones(1, dtype=torch.int32)},
            None,
            "expected floats",
        ),
        (
            {
                NAME: torch.ones(4, 4, dtype=torch.int8),
                f"{NAME}_scale": random(4, 1),
                f"{NAME}_zero_point": torch.ones(4, 1, dtype=torch.int8),
            },
            None,
            "zero points",
        ),
        ({NAME: random(2, 4, 4).to(FP8), f"{NAME}_scale": random(2, 1, 1)}, BLOCKS, "not fit"),
        ({NAME: torch.ones(8, 4, dtype=torch.int64)}, None, "packed"),
    ],
)
def test_what_has_no_values_is_refused_with_the_reason(
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    settings: dict[str, Any] | None,
    told: str,
) -> None:
    checkpoint = folder(tmp_path, tensors, settings)
    assert NAME in checkpoint.headers
    reason = checkpoint.unreadable_reason(NAME)
    assert reason is not None
    with pytest.raises(CheckpointError, match=told):
        checkpoint.read(NAME)
    with pytest.raises(CheckpointError, match=told):
        checkpoint.read_rows(NAME, 0, 1)


def packed(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=torch.int32)


GPTQ = {
    f"{BASE}.qweight": packed(512, 4096),
    f"{BASE}.qzeros": packed(32, 512),
    f"{BASE}.scales": torch.ones(32, 4096, dtype=torch.float16),
    f"{BASE}.g_idx": torch.zeros(4096, dtype=torch.int32),
}
AWQ = {
    f"{BASE}.qweight": packed(4096, 512),
    f"{BASE}.qzeros": packed(32, 512),
    f"{BASE}.scales": torch.ones(32, 4096, dtype=torch.float16),
}
BITSANDBYTES = {
    NAME: torch.zeros(8, 1, dtype=torch.uint8),
    f"{NAME}.absmax": torch.ones(1),
    f"{NAME}.quant_state.bitsandbytes__nf4": torch.zeros(9, dtype=torch.uint8),
}


@pytest.mark.parametrize(
    ("tensors", "settings", "writer"),
    [
        (GPTQ, {"quant_method": "gptq", "bits": 4}, "gptq"),
        (GPTQ, None, "gptq"),
        (AWQ, {"quant_method": "awq", "bits": 4}, "awq"),
        (AWQ, None, "GPTQ or AWQ"),
        (BITSANDBYTES, {"quant_method": "bitsandbytes"}, "bitsandbytes"),
        (BITSANDBYTES, None, "bitsandbytes"),
        ({f"{BASE}.weight_packed": packed(8, 1)}, None, "compressed-tensors"),
        ({f"{BASE}.W_q": torch.zeros(8, 2, dtype=torch.uint8)}, None, "HQQ"),
        ({f"{BASE}.weight._data": torch.zeros(8, 2, dtype=torch.uint8)}, None, "quanto"),
        ({f"{BASE}._weight_qdata": torch.zeros(8, 2, dtype=torch.uint8)}, None, "torchao"),
    ],
)
def test_packed_integers_are_refused_under_the_weights_own_name_too(
    tmp_path: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any] | None, writer: str
) -> None:
    sound = {"model.norm.weight": torch.ones(3)}
    checkpoint = folder(tmp_path, tensors | sound, settings)
    for name in (NAME, next(iter(tensors))):
        reason = checkpoint.unreadable_reason(name)
        assert reason is not None
        assert f"packed by {writer}:" in reason
        assert "dequantise it with the library that packed it" in reason
        with pytest.raises(CheckpointError, match="packed by"):
            checkpoint.read(name)
    assert checkpoint.read("model.norm.weight").tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("tensors", "settings"),
    [
        (GPTQ, {"quant_method": "gptq", "bits": 4}),
        (AWQ, {"quant_method": "awq", "bits": 4}),
    ],
)
def test_a_packed_matrix_has_the_shape_that_it_stands_for(
    tmp_path: Path, tensors: dict[str, torch.Tensor], settings: dict[str, Any]
) -> None:
    header = folder(tmp_path, tensors, settings).headers[NAME]
    assert header.shape == (4096, 4096)
    assert header.dtype == settings["quant_method"].upper()


def test_plain_tensors_have_no_reason(tmp_path: Path) -> None:
    tensors = {
        NAME: random(4, 4).to(torch.bfloat16),
        "model.layers.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool),
        "ids": torch.ones(3, dtype=torch.int64),
        "levels": torch.ones(3, 3, dtype=torch.int8),
        "eights": random(3, 3).to(FP8),
    }
    checkpoint = folder(tmp_path, tensors)
    assert not checkpoint.unreadable
    for name in tensors:
        assert checkpoint.unreadable_reason(name) is None
        checkpoint.read(name)
    assert checkpoint.unreadable_reason("nowhere") is None


def test_torch_files_are_scaled_too(tmp_path: Path) -> None:
    weight = random(4, 4).to(FP8)
    torch.save({NAME: weight, f"{NAME}_scale": torch.tensor(2.0)}, tmp_path / "w.pt")
    found = load(tmp_path / "w.pt", allow_pickle=True).read(NAME)
    np.testing.assert_array_equal(found, (weight.float() * 2).numpy())
