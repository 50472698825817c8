"""A folder of an ordinary decoder: what is read, what is skipped, what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import pjdiag
from pjdiag import adapters
from pjdiag.adapters import Layer, Reading
from pjdiag.diagnostics.own_transforms import layer_transform
from pjdiag.errors import CheckpointError, InconclusiveError
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


class TestGeometry:
    def test_a_stated_head_dim_wins_over_hidden_size_over_heads(self, tmp_path: Path) -> None:
        config = {"head_dim": 32, "num_key_value_heads": 4}
        tensors = projections({**LLAMA, **config})
        assert tensors["model.layers.0.self_attn.q_proj.weight"].shape == (128, 64)
        layer = read(write(tmp_path, config, tensors)).layers[0]
        assert (layer.head_dim.value, layer.head_dim.source) == (32, "config: head_dim")
        assert layer.scale.value == pytest.approx(32**-0.5)
        assert rope(layer).rotary_dim.value == 32
        assert layer.projections().value.queries(np.ones((3, 64))).shape == (4, 3, 32)

    def test_null_and_absent_mean_derived(self, tmp_path: Path) -> None:
        for value in (None, ...):
            layer = read(write(tmp_path, {"head_dim": value})).layers[0]
            assert layer.head_dim.value == 16
            assert layer.head_dim.source.startswith("hidden_size / heads")

    def test_as_many_key_heads_as_query_heads_where_none_are_stated(self, tmp_path: Path) -> None:
        config = {**LLAMA, "num_key_value_heads": None}
        layer = read(write(tmp_path, config, projections(config))).layers[0]
        assert layer.num_kv_heads.value == 4

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"head_dim": 32}, r"q_proj.weight has shape \[64, 64\]; expected \[128, 64\]"),
            (
                {"num_key_value_heads": 1},
                r"k_proj.weight has shape \[32, 64\]; expected \[16, 64\]",
            ),
            ({"hidden_size": 32}, r"expected \[64, 32\]"),
            ({"num_attention_heads": 0}, "num_attention_heads is 0; expected a positive"),
            ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
            ({"num_key_value_heads": 3}, "4 query heads .* cannot share 3 key heads"),
            ({"num_attention_heads": 2}, "q_proj"),
            ({"num_attention_heads": 5, "head_dim": None}, "64 is no multiple of 5 heads"),
            ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
            ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
            ({"hidden_size": "64"}, "hidden_size is '64'"),
            ({"rope_theta": -1.0}, "rope_theta"),
            ({"layer_types": ["full_attention"]}, "layer_types lists 1 layers; expected 2"),
            ({"head_dim": 2**30}, r"1073741824 channels of a head .* at most 65536"),
            ({"num_attention_heads": 2**30}, r"1073741824 query heads .* at most 65536"),
            ({"per_layer_config": {"1": 5}}, "per_layer_config is no object"),
            ({"per_layer_config": {"01": {"head_dim": 8}}}, "layers.1.self_attn.q_proj.weight"),
        ],
    )
    def test_what_contradicts_is_one_clear_error(
        self, tmp_path: Path, change: dict[str, Any], told: str
    ) -> None:
        assert re.search(told, refusal(write(tmp_path, change)))

    def test_fused_heads_that_would_share_keys_are_refused(self, tmp_path: Path) -> None:
        config = {"model_type": "gpt_neox", "num_key_value_heads": 2}
        tensors = {
            f"gpt_neox.layers.{i}.attention.query_key_value.weight": np.zeros((192, 64), np.float32)
            for i in range(2)
        }
        layers = read(write(tmp_path, {**config, "num_key_value_heads": 4}, tensors)).layers
        assert len(layers) == 2
        assert "4 query heads and 2 key heads" in refusal(write(tmp_path, config, tensors))


class TestPartialRotation:
    CONFIG: ClassVar = {"model_type": "stablelm", "partial_rotary_factor": 0.25}

    def test_exponent_and_pairs_are_those_of_the_rotated_part(self, tmp_path: Path) -> None:
        part = rope(read(write(tmp_path, self.CONFIG)).layers[0])
        assert part.rotary_dim.value == 4
        assert part.inv_freq.value == pytest.approx((1.0, 0.01))
        assert part.loaded.value.amplitude.shape == (4, 2, 1)

    def test_the_other_channels_stay_where_they_are(self, tmp_path: Path) -> None:
        layer = read(write(tmp_path, self.CONFIG)).layers[0]
        turned = layer_transform(layer).query(np.eye(16)[None], np.full(16, 7.0))[0]
        assert turned[4:] == pytest.approx(np.eye(16)[4:])
        # Pairs (0, 2) and (1, 3), whatever the head's size.
        assert np.nonzero(np.abs(turned[0]) > 1e-9)[0].tolist() == [0, 2]
        assert np.nonzero(np.abs(turned[1]) > 1e-9)[0].tolist() == [1, 3]

    def test_masses_are_of_the_rotated_rows_alone(self, tmp_path: Path) -> None:
        tensors = projections(LLAMA)
        plain = rope(read(write(tmp_path / "a", self.CONFIG, tensors)).layers[0]).loaded.value
        tensors["model.layers.0.self_attn.q_proj.weight"][4:16] *= 100.0
        other = rope(read(write(tmp_path / "b", self.CONFIG, tensors)).layers[0]).loaded.value
        assert other.amplitude == pytest.approx(plain.amplitude)


class TestSpellings:
    FIVE = (
        {"rope_theta": 500000.0},
        {"rope_theta": ..., "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}},
        {"rope_theta": 500000.0, "rope_scaling": None},
        {"rope_theta": 500000.0, "rope_scaling": {"type": "default"}},
        {"rope_theta": 500000, "rope_scaling": {"rope_type": "default"}},
    )

    def test_five_spellings_of_one_base_read_alike(self, tmp_path: Path) -> None:
        found = [rope(read(write(tmp_path, change)).layers[0]) for change in self.FIVE]
        assert {part.rope_theta.value for part in found} == {500000.0}
        assert len({part.inv_freq.value for part in found}) == 1

    def test_a_base_that_is_not_stated_is_the_classes_and_says_so(self, tmp_path: Path) -> None:
        part = rope(read(write(tmp_path, {"rope_theta": ...})).layers[0])
        assert (part.rope_theta.value, part.rope_theta.source) == (1e4, "transformers default")

    @pytest.mark.parametrize("kind", ["type", "rope_type"])
    def test_a_folder_of_version_4_reads_as_one_of_version_5(
        self, tmp_path: Path, kind: str
    ) -> None:
        scaling = {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
        four = {"rope_theta": 500.0, "rope_scaling": {kind: "llama3", **scaling}}
        five = {
            "rope_theta": ...,
            "rope_parameters": {"rope_theta": 500.0, "rope_type": "llama3", **scaling},
        }
        old, new = (read(write(tmp_path / name, c)) for name, c in (("4", four), ("5", five)))
        assert rope(old.layers[0]).inv_freq.value == rope(new.layers[0]).inv_freq.value
        assert old.train_length.value == new.train_length.value == 64
        assert old.train_length.source == ("config: rope_scaling.original_max_position_embeddings")

    def test_gemma3_of_version_4_reads_as_one_of_version_5(self, tmp_path: Path) -> None:
        shared = {
            "model_type": "gemma3_text",
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 16,
            "query_pre_attn_scalar": 16,
        }
        scaling = {"rope_type": "linear", "factor": 8.0}
        four = {**shared, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": scaling}
        five = {
            **shared,
            "rope_theta": ...,
            "rope_parameters": {
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
                "full_attention": {"rope_theta": 1e6, **scaling},
            },
        }
        old, new = (read(write(tmp_path / name, c)) for name, c in (("4", four), ("5", five)))
        for ours, theirs in zip(old.layers, new.layers, strict=True):
            assert rope(ours).inv_freq.value == rope(theirs).inv_freq.value
        assert [rope(layer).inv_freq.value[0] for layer in old.layers] == [1.0, 0.125]

    def test_lengths_that_frequencies_depend_on_are_stated(self, tmp_path: Path) -> None:
        scaling = {"type": "dynamic", "factor": 2.0}
        write(tmp_path, {"rope_scaling": scaling, "max_position_embeddings": 2048})
        short, long = (
            rope(read(tmp_path, eval_length=length).layers[0]) for length in (2048, 4096)
        )
        assert short.inv_freq.value[1] == pytest.approx(1e4 ** (-1 / 8))
        assert long.inv_freq.value[1] < short.inv_freq.value[1]
        assert "4096 tokens" in long.inv_freq.source
        # Asking for a long input first leaves nothing behind.
        assert rope(read(tmp_path, eval_length=64).layers[0]).inv_freq.value == short.inv_freq.value


class TestHybrids:
    TYPES = ("linear_attention", "full_attention", "conv", "full_attention")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        config = {"num_hidden_layers": 4, "layer_types": list(self.TYPES)}
        tensors = projections({**LLAMA, "num_hidden_layers": 4})
        for index in (0, 2, 3):
            for name in "qkv":
                del tensors[f"model.layers.{index}.self_attn.{name}_proj.weight"]
        tensors["model.layers.3.mixer.A_log"] = np.zeros(4, dtype=np.float32)
        return write(tmp_path, config, tensors)

    def test_other_layers_are_skipped_with_the_reason(self, folder: Path) -> None:
        reading = read(folder)
        assert [layer.index for layer in reading.layers] == [1]
        assert [(entry.index, entry.reason) for entry in reading.skipped] == [
            (0, "layer type linear_attention: no softmax attention"),
            (2, "layer type conv: a convolution, no attention"),
            (3, "it has no self_attn.q_proj.weight; its tensors are 'mixer.A_log'"),
        ]
        assert reading.coverage == 0.25

    def test_inspect_lists_coverage_and_what_is_skipped(self, folder: Path) -> None:
        result = pjdiag.inspect(pjdiag.load(folder))
        assert [row["layer"] for row in result.rows] == [1]
        assert [entry.layer for entry in result.skipped] == [0, 2, 3]
        assert result.provenance["coverage"] == 0.25

    def test_a_demanded_coverage_is_held(self, folder: Path) -> None:
        with pytest.raises(InconclusiveError, match="1 of 4 layers could be read"):
            read(folder, min_coverage=0.5)


class TestBadValues:
    def test_a_bad_key_spoils_the_heads_of_its_group(self, tmp_path: Path) -> None:
        tensors = projections(LLAMA)
        tensors["model.layers.1.self_attn.k_proj.weight"][17, 3] = math.nan
        reading = read(write(tmp_path, {}, tensors))
        (bad,) = rope(reading.layers[1]).loaded.bad
        assert bad.tensor == "model.layers.1.self_attn.k_proj.weight"
        assert (bad.count, bad.heads) == (1, (2, 3))

    def test_a_bad_input_norm_spoils_them_all_once(self, tmp_path: Path) -> None:
        tensors = projections(LLAMA)
        tensors["model.layers.0.input_layernorm.weight"][5] = math.inf
        loaded = rope(read(write(tmp_path, {}, tensors)).layers[0]).loaded
        assert sorted(head for bad in loaded.bad for head in bad.heads) == [0, 1, 2, 3]


def test_a_rotated_share_that_the_class_does_not_read_is_not_read(tmp_path: Path) -> None:
    reading = read(write(tmp_path, {"partial_rotary_factor": 0.5}))
    part = reading.layers[0].parts[0]
    assert part.rotary_dim.value == reading.layers[0].head_dim.value
    assert "partial_rotary_factor is 0.5; llama does not read it" in " ".join(reading.warnings)
