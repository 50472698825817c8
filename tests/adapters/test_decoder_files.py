"""The files of an ordinary decoder: dtypes, shards, names, and frequencies that are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

import pjdiag
from pjdiag import adapters
from pjdiag.adapters import Layer, Reading
from pjdiag.errors import CheckpointError
from tests.adapters.decoder_folders import LLAMA, projections, write


def read(folder: Path, **options: Any) -> Reading:
    return adapters.read(pjdiag.load(folder), **options)


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as raised:
        read(folder)
    assert raised.value.hint
    return raised.value.message


def rope(layer: Layer) -> Any:
    (part,) = layer.parts
    return part


class TestFiles:
    @pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
    def test_half_precision_reads_to_its_rounding(self, tmp_path: Path, name: str) -> None:
        dtype = np.dtype(getattr(ml_dtypes, name, getattr(np, name, None)))
        tensors = {key: value.astype(dtype) for key, value in projections(LLAMA).items()}
        folder = write(tmp_path, {}, tensors if name != "bfloat16" else projections(LLAMA))
        if name == "bfloat16":
            save_torch(
                {k: torch.from_numpy(v).bfloat16() for k, v in projections(LLAMA).items()},
                folder / "model.safetensors",
            )
        whole = rope(read(write(tmp_path / "whole")).layers[0]).loaded.value.amplitude
        found = rope(read(folder).layers[0]).loaded.value.amplitude
        tolerance = {"float32": 1e-6, "bfloat16": 5e-3, "float16": 1e-3}[name]
        assert found == pytest.approx(whole, rel=tolerance)

    def test_shards_read_as_one_file(self, tmp_path: Path) -> None:
        tensors = projections(LLAMA)
        folder = write(tmp_path / "shards")
        (folder / "model.safetensors").unlink()
        places = {
            name: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, name in enumerate(tensors)
        }
        for file in set(places.values()):
            part = {name: tensors[name] for name, place in places.items() if place == file}
            save_file(part, folder / file)
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        whole = pjdiag.mass(read(write(tmp_path / "whole"))).rows
        assert pjdiag.mass(read(folder)).rows == whole

    @pytest.mark.parametrize(
        "prefix",
        ["model.", "", "model.language_model.", "language_model.model.", "some.new.place."],
    )
    def test_a_decoder_is_found_wherever_it_is_nested(self, tmp_path: Path, prefix: str) -> None:
        tensors = {
            f"{prefix}{name.removeprefix('model.')}": value
            for name, value in projections(LLAMA).items()
        }
        tower = np.zeros((8, 8), dtype=np.float32)
        tensors["vision_tower.encoder.layers.0.self_attn.q_proj.weight"] = tower
        reading = read(write(tmp_path, {}, tensors))
        assert len(reading.layers) == 2

    def test_two_places_that_could_be_meant_are_named(self, tmp_path: Path) -> None:
        tensors = {
            f"{prefix}.{name.removeprefix('model.')}": value
            for prefix in ("left", "right")
            for name, value in projections(LLAMA).items()
        }
        told = refusal(write(tmp_path, {}, tensors))
        assert "'left.', 'right.'" in told

    def test_weights_of_another_architecture_are_refused(self, tmp_path: Path) -> None:
        tensors = {"encoder.block.0.weight": np.zeros((2, 2), dtype=np.float32)}
        told = refusal(write(tmp_path, {}, tensors))
        assert "no tensor is named layers.N.self_attn.q_proj.weight, as llama has them" in told

    def test_the_text_part_of_a_larger_model_is_read(self, tmp_path: Path) -> None:
        write(tmp_path)
        whole = {"model_type": "llava", "text_config": LLAMA, "vision_config": {}}
        (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")
        reading = read(tmp_path)
        assert (reading.adapter, len(reading.layers)) == ("llama", 2)
        assert reading.train_length.value == 128


class TestStoredFrequencies:
    RIGHT = 1e4 ** (-np.arange(8) / 8)

    def warned(self, folder: Path, stored: Any, change: dict[str, Any] | None = None) -> str:
        tensors = projections(LLAMA)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.asarray(stored)
        reading = read(write(folder, change, tensors))
        return " ".join(reading.warnings)

    def test_those_that_agree_are_not_mentioned(self, tmp_path: Path) -> None:
        for dtype in (np.float64, np.float32, np.float16):
            assert self.warned(tmp_path, self.RIGHT.astype(dtype)) == ""

    def test_a_disagreement_is_a_warning_with_both_values(self, tmp_path: Path) -> None:
        told = self.warned(tmp_path, self.RIGHT.astype(np.float32) * 2)
        assert "model.layers.0.self_attn.rotary_emb.inv_freq" in told
        assert "disagrees with the configuration in 8 of 8 frequencies" in told
        assert "channel 0: 2, configuration: 1" in told
        assert "the configuration's are used" in told

    def test_unscaled_ones_agree_too(self, tmp_path: Path) -> None:
        scaling = {"rope_scaling": {"type": "linear", "factor": 4.0}}
        assert self.warned(tmp_path, self.RIGHT.astype(np.float32), scaling) == ""
        assert self.warned(tmp_path, self.RIGHT.astype(np.float32) / 4, scaling) == ""

    def test_garbage_and_other_counts_are_mentioned(self, tmp_path: Path) -> None:
        assert "8 of 8" in self.warned(tmp_path, np.full(8, np.nan, dtype=np.float32))
        assert "asks for 8 frequencies" in self.warned(tmp_path, np.ones(5, dtype=np.float32))

    def test_causal_masks_are_no_parameters(self, tmp_path: Path) -> None:
        tensors = projections(LLAMA)
        tensors["model.layers.0.self_attn.bias"] = np.tri(4, dtype=bool)[None, None]
        tensors["model.layers.0.self_attn.masked_bias"] = np.asarray(-1e9, dtype=np.float32)
        plain = pjdiag.mass(read(write(tmp_path / "plain"))).rows
        assert pjdiag.mass(read(write(tmp_path / "masks", {}, tensors))).rows == plain
