"""Public bug reports on position mechanisms, by their small inputs, through the adapters."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjdiag.adapters import AdditiveKernel, MultiplicativeSpectrum, Reading
from pjdiag.diagnostics.layer_logits import layer_logits
from pjdiag.diagnostics.own_transforms import layer_transform
from pjdiag.position.alibi import naive_slopes, padded_bias, slopes
from pjdiag.position.kernel import bias
from tests.plugins import folders

TWELVE = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
TWELVE += [0.707107, 0.353553, 0.176777, 0.0883883]
SIX = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
PREFIX = "transformer.h.0.self_attention.query_key_value.weight"


def alibi(reading: Reading, layer: int = 0) -> AdditiveKernel:
    (part,) = reading.layers[layer].parts
    assert isinstance(part, AdditiveKernel)
    return part


def rotary(reading: Reading) -> MultiplicativeSpectrum:
    (part,) = reading.layers[0].parts
    assert isinstance(part, MultiplicativeSpectrum)
    return part


def spans(*ranges: tuple[int, int]) -> list[list[int]]:
    return [list(range(*bounds)) for bounds in ranges]


class TestFusedRows:
    """``chunk(3)`` gives right shapes and wrong heads."""

    def test_neox(self, tmp_path: Path) -> None:
        config = {"model_type": "gpt_neox", "hidden_size": 8, "num_attention_heads": 2}
        config |= {"num_hidden_layers": 1, "rotary_pct": 1.0}
        name = "gpt_neox.layers.0.attention.query_key_value.weight"
        reading = folders.read(tmp_path, config, {name: folders.numbered(24, 8)})
        assert folders.rows_of(reading) == (spans((0, 4), (12, 16)), spans((4, 8), (16, 20)))

    def test_bloom(self, tmp_path: Path) -> None:
        config, tensors = folders.bloom(2)
        tensors = dict.fromkeys(tensors, folders.numbered(24, 8))
        reading = folders.read(tmp_path, config, tensors)
        assert folders.rows_of(reading) == (spans((0, 4), (12, 16)), spans((4, 8), (16, 20)))

    def test_mpt(self, tmp_path: Path) -> None:
        config, tensors = folders.mpt(2)
        reading = folders.read(tmp_path, config, dict.fromkeys(tensors, folders.numbered(24, 8)))
        assert folders.rows_of(reading) == (spans((0, 4), (4, 8)), spans((8, 12), (12, 16)))

    def test_falcon_7b(self, tmp_path: Path) -> None:
        """71 heads of queries, one of keys, one of values."""
        config = falcon(71, 142, num_kv_heads=71)
        reading = folders.read(tmp_path, config, {PREFIX: folders.numbered(146, 142)})
        queries, keys = folders.rows_of(reading)
        assert (queries[70], keys) == ([140, 141], [[142, 143]])
        assert reading.layers[0].num_kv_heads.value == 1

    def test_falcon_40b(self, tmp_path: Path) -> None:
        """Queries of a group, then its key and its value."""
        config = falcon(4, 8, new_decoder_architecture=True, num_kv_heads=2)
        reading = folders.read(tmp_path, config, {PREFIX: folders.numbered(16, 8)})
        assert folders.rows_of(reading) == (
            spans((0, 2), (2, 4), (8, 10), (10, 12)),
            spans((4, 6), (12, 14)),
        )

    def test_falcon_rw(self, tmp_path: Path) -> None:
        config = falcon(2, 8, multi_query=False, alibi=True)
        reading = folders.read(tmp_path, config, {PREFIX: folders.numbered(24, 8)})
        assert folders.rows_of(reading) == (spans((0, 4), (12, 16)), spans((4, 8), (16, 20)))

    def test_codegen(self, tmp_path: Path) -> None:
        """Four blocks of queries, values and keys."""
        config = {"model_type": "codegen", "n_embd": 8, "n_layer": 1, "n_head": 4, "rotary_dim": 2}
        name = "transformer.h.0.attn.qkv_proj.weight"
        reading = folders.read(tmp_path, config, {name: folders.numbered(24, 8)})
        assert folders.rows_of(reading) == (
            spans((0, 2), (6, 8), (12, 14), (18, 20)),
            spans((4, 6), (10, 12), (16, 18), (22, 24)),
        )

    def test_gpt2_stores_its_weights_transposed(self, tmp_path: Path) -> None:
        config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2}
        reading = folders.read(
            tmp_path, config, {"h.0.attn.c_attn.weight": folders.numbered(24, 8).T}
        )
        assert folders.rows_of(reading) == (spans((0, 4), (4, 8)), spans((8, 12), (12, 16)))


def falcon(heads: int, width: int, **fields: Any) -> dict[str, Any]:
    return {
        "model_type": "falcon",
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": 1,
        **fields,
    }


def test_partial_rotation_counts_the_rotated_channels_alone(tmp_path: Path) -> None:
    """head_dim 16 and a share of 1/4: frequencies 1 and .01, channels 4 to 15 stay."""
    config = {
        "model_type": "gpt_neox",
        "hidden_size": 16,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
    }
    name = "gpt_neox.layers.0.attention.query_key_value.weight"
    reading = folders.read(tmp_path, config, {name: folders.noise(48, 16)})
    part = rotary(reading)
    assert part.inv_freq.value == pytest.approx([1.0, 0.01])
    assert part.rope_theta.source == "config: rotary_emb_base"
    transform = layer_transform(reading.layers[0])
    assert transform is not None
    turned = transform.query(np.eye(16)[:, None], np.asarray([1.0]))[:, 0]
    moved = [set(np.nonzero(np.abs(row) > 1e-12)[0].tolist()) for row in turned]
    assert moved[:5] == [{0, 2}, {1, 3}, {0, 2}, {1, 3}, {4}]
    assert moved[15] == {15}


class TestSlopes:
    """Head counts that are no powers of two, and families that are not the standard one."""

    @pytest.mark.parametrize(("heads", "expected"), [(12, TWELVE), (6, SIX), (8, TWELVE[:8])])
    def test_bloom_and_mpt(self, heads: int, expected: list[float], tmp_path: Path) -> None:
        for make in (folders.bloom, folders.mpt):
            reading = folders.read(tmp_path / make.__name__, *make(heads))
            part = alibi(reading)
            assert part.slopes.value == pytest.approx(expected, rel=1e-5)
            assert part.slopes.source.startswith("standard family, computed from")
            assert reading.warnings == ()

    def test_mpt_honours_its_largest_bias_and_says_who_does_not(self, tmp_path: Path) -> None:
        reading = folders.read(tmp_path, *folders.mpt(4, attn_config={"alibi_bias_max": 16}))
        assert alibi(reading).slopes.value == (2.0**-4, 2.0**-8, 2.0**-12, 2.0**-16)
        assert any("MptModel ignores it" in warning for warning in reading.warnings)

    def test_stored_naive_slopes_are_named(self, tmp_path: Path) -> None:
        config, tensors = other(12)
        tensors["model.alibi_slopes"] = np.asarray(naive_slopes(12), np.float32)
        part = alibi(folders.read(tmp_path, config, tensors))
        assert part.slopes.value is not None
        assert part.slopes.value[0] == pytest.approx(0.62996, rel=1e-5)
        assert part.slopes.source == "naive family, tensor model.alibi_slopes"

    def test_stored_slopes_that_contradict_the_class_are_shown(self, tmp_path: Path) -> None:
        config, tensors = folders.bloom(12)
        tensors["alibi"] = np.asarray(naive_slopes(12), np.float32)[:, None, None]
        reading = folders.read(tmp_path, config, tensors)
        assert alibi(reading).slopes.value == slopes(12)
        (warning,) = reading.warnings
        assert "naive" in warning
        assert "0.629961" in warning


class TestSign:
    """``+m j`` and ``-m (i - j)`` are one; ``+m (i - j)`` is an error."""

    def read_table(self, tmp_path: Path, table: np.ndarray) -> Reading:
        config, tensors = other(table.shape[-3])
        return folders.read(tmp_path, config, {**tensors, "model.alibi": table})

    @pytest.mark.parametrize("form", ["key", "lag", "row"])
    def test_both_right_forms_are_one(self, form: str, tmp_path: Path) -> None:
        position = np.arange(40, dtype=np.float32)
        slope = np.asarray(slopes(4), np.float32)[:, None, None]
        tables = {
            "key": slope * np.broadcast_to(position[None, None, :], (1, 40, 40)),
            "lag": slope * (position[None, None, :] - position[None, :, None]),
            "row": slope * position[None, None, :],
        }
        part = alibi(self.read_table(tmp_path, tables[form]))
        assert part.slopes.value == pytest.approx(slopes(4), rel=1e-5)
        assert part.slopes.source == "standard family, tensor model.alibi"

    def test_the_reversed_sign_is_flagged(self, tmp_path: Path) -> None:
        position = np.arange(40, dtype=np.float32)
        lag = position[:, None] - position[None, :]
        slope = np.asarray(slopes(4), np.float32)[:, None, None]
        reading = self.read_table(tmp_path, (slope * lag)[None])
        assert alibi(reading).slopes.source.startswith("reversed family")
        assert any("far keys are favoured" in warning for warning in reading.warnings)

    def test_a_table_that_is_no_alibi_is_not_called_one(self, tmp_path: Path) -> None:
        reading = self.read_table(tmp_path, folders.noise(4, 40, 40))
        (part,) = reading.layers[0].parts
        assert part.mechanism == "unknown"

    def test_left_padding_counts_the_tokens_alone(self, tmp_path: Path) -> None:
        """Slope .25 and mask [0,0,1,1,1]: [0,0,0,.25,.5], which is our kernel up to a constant."""
        part = alibi(folders.read(tmp_path, *folders.bloom(6)))
        assert part.slopes.value is not None
        slope = np.asarray(part.slopes.value)
        padded = padded_bias(slope, np.asarray([0, 0, 1, 1, 1]))
        assert padded[0].tolist() == [0.0, 0.0, 0.0, 0.25, 0.5]
        last_row = bias(part.kernel, np.asarray([2.0, 1.0, 0.0]))
        shifted = padded[:, 2:] - last_row
        assert np.ptp(shifted, axis=1) == pytest.approx(0.0, abs=1e-12)

    def test_an_encoder_looks_both_ways(self, tmp_path: Path) -> None:
        config = {
            "model_type": "bert",
            "hidden_size": 8,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "position_embedding_type": "alibi",
        }
        names = [f"encoder.layer.0.attention.self.{side}.weight" for side in ("query", "key")]
        reading = folders.read(tmp_path, config, dict.fromkeys(names, np.zeros((8, 8), "f4")))
        row = layer_logits(reading.layers[0], np.zeros((5, 8)))[0, 2]
        assert row.tolist() == pytest.approx([-0.125, -0.0625, 0.0, -0.0625, -0.125])


class TestBuckets:
    """T5's table: one a stack, in its first block; the logits are not scaled."""

    def read(self, tmp_path: Path, **fields: Any) -> Reading:
        table = np.repeat(np.arange(32, dtype=np.float32)[:, None], 2, axis=1)
        return folders.read(tmp_path, *folders.t5(table, **fields))

    def test_bidirectional(self, tmp_path: Path) -> None:
        reading = self.read(tmp_path)
        for layer in reading.layers[:2]:
            logits = layer_logits(layer, np.zeros((257, 8)))[1]
            found = {relative: logits[128, 128 + relative] for relative in range(-128, 129)}
            wanted = {-8: 8, -16: 10, -128: 15, 1: 17, 8: 24, 128: 31}
            assert {relative: found[relative] for relative in wanted} == wanted

    def test_causal(self, tmp_path: Path) -> None:
        reading = self.read(tmp_path)
        assert [layer.causal.value for layer in reading.layers] == [False, False, True, True]
        for layer in reading.layers[2:]:
            row = layer_logits(layer, np.zeros((128, 8)))[0, 127, ::-1]
            assert (row[16], row[127]) == (16, 31)
            starts = [lag for lag, (a, b) in enumerate(pairwise(row), 1) if a != b]
            assert starts[15:] == [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]

    def test_no_scale_and_no_cross_attention(self, tmp_path: Path) -> None:
        reading = self.read(tmp_path)
        assert {layer.scale.value for layer in reading.layers} == {1.0}
        assert any("layers 2-3 are the decoder's" in warning for warning in reading.warnings)

    def test_a_table_of_its_own_goes_before(self, tmp_path: Path) -> None:
        table = np.zeros((32, 2), np.float32)
        config, tensors = folders.t5(table, stacks=("encoder",), model_type="umt5")
        own = "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"
        reading = folders.read(tmp_path, config, {**tensors, own: table + 7})
        (part,) = reading.layers[1].parts
        assert part.loaded.value[0, 0] == 7


class TestLatentAttention:
    """A head is [others | rotated]; the rotated key is shared, and the last of kv_a's rows."""

    def test_rows(self, tmp_path: Path) -> None:
        config, tensors = folders.latent()
        made = folders.read(tmp_path, config, tensors).layers[0].projections
        assert made is not None
        x = np.full((1, 8), 1 / 8)
        queries, keys = made().value.queries(x), made().value.keys(x)
        # The rotated channels come first here; a dot product does not mind.
        assert queries[:, 0].tolist() == [[4, 5, 0, 1, 2, 3], [10, 11, 6, 7, 8, 9]]
        assert keys[:, 0, :2].tolist() == [[3, 4], [3, 4]]
        # Rows of kv_b are [key | value] of each head; the latent sums to 3 / rms(0, 1, 2).
        latent = 3 / np.sqrt(5 / 3)
        expected = np.asarray([[0, 1, 2, 3], [9, 10, 11, 12]]) * latent
        assert keys[:, 0, 2:] == pytest.approx(expected, rel=1e-5)

    def test_layout_and_frequencies(self, tmp_path: Path) -> None:
        config, tensors = folders.latent(rope_theta=500000.0)
        part = rotary(folders.read(tmp_path, config, tensors))
        assert (part.rope_layout.value, part.rotary_dim.value) == ("interleaved", 2)
        assert part.rope_theta.value == 500000.0

    @pytest.mark.parametrize(
        ("stated", "attention_factor", "scale_factor"),
        [
            ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.873854),
            ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0, 1.589626),
            ({"mscale": 1.0}, 1.368888, 1.0),
        ],
    )
    def test_yarn_corrects_cosines_or_the_softmax(
        self, stated: dict[str, float], attention_factor: float, scale_factor: float, tmp_path: Path
    ) -> None:
        scaling = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
        config, tensors = folders.latent(rope_theta=10000, rope_scaling={**scaling, **stated})
        reading = folders.read(tmp_path, config, tensors, eval_length=8192)
        assert rotary(reading).attention_factor.value == pytest.approx(attention_factor, rel=1e-6)
        scale = reading.layers[0].scale
        assert scale.value * 6**0.5 == pytest.approx(scale_factor, rel=1e-6)

    def test_of_a_vision_model_the_text_is_read(self, tmp_path: Path) -> None:
        config, tensors = folders.latent(rope_theta=10000)
        renamed = {f"language_model.{name}": array for name, array in tensors.items()}
        renamed["vision_tower.blocks.0.attn.q_proj.weight"] = folders.noise(8, 8)
        outer = {"model_type": "some_vl", "text_config": config, "vision_config": {"depth": 1}}
        reading = folders.read(tmp_path, outer, renamed)
        assert (reading.adapter, len(reading.layers), reading.skipped) == ("mla", 1, ())


def test_a_window_of_4_sees_4_keys(tmp_path: Path) -> None:
    """GPT-Neo's local layers, by their list."""
    config = {
        "model_type": "gpt_neo",
        "hidden_size": 8,
        "num_heads": 2,
        "num_layers": 4,
        "window_size": 4,
        "attention_types": [[["global", "local"], 1], [["local"], 2]],
    }
    tensors = {
        f"transformer.h.{layer}.attn.attention.{side}_proj.weight": folders.noise(8, 8)
        for layer in range(4)
        for side in ("q", "k")
    }
    reading = folders.read(tmp_path, config, tensors)
    assert [layer.window.value for layer in reading.layers] == [None, 4, 4, 4]


def other(heads: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model of an architecture that nobody knows."""
    width = 4 * heads
    config = {"model_type": "other", "hidden_size": width, "num_attention_heads": heads}
    return config, {
        f"model.layers.0.self_attn.{side}_proj.weight": folders.noise(width, width)
        for side in ("q", "k")
    }
