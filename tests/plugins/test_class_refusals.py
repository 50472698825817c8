"""What the class adapters do not read, and why; a folder that contradicts itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjdiag.adapters import AbsolutePositions
from pjdiag.errors import CheckpointError, InconclusiveError
from tests.plugins import folders

BERT = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}


def bert(**fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [f"bert.encoder.layer.0.attention.self.{side}.weight" for side in ("query", "key")]
    tensors = {name: folders.noise(8, 8) for name in names}
    return {"model_type": "bert", **BERT, **fields}, tensors


def mpnet(**fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [f"encoder.layer.0.attention.attn.{side}.weight" for side in "qk"]
    tensors = {name: folders.noise(8, 8) for name in names}
    tensors["encoder.relative_attention_bias.weight"] = folders.noise(32, 2)
    tensors["embeddings.position_embeddings.weight"] = folders.noise(514, 8)
    return {"model_type": "mpnet", **BERT, "pad_token_id": 1, **fields}, tensors


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (bert(position_embedding_type="relative_key"), "multiply queries with an embedding"),
        (bert(position_embedding_type="spiral"), "position_embedding_type 'spiral': this is not"),
        (mpnet(relative_attention_num_buckets=64), "64 buckets; MPNet's class counts with 32"),
        (folders.mpt(2, attn_config={"qk_ln": True}), "qk_ln: norms of queries and keys"),
        (folders.mpt(2, attn_config={"prefix_lm": True}), "not causal within a prefix"),
        (folders.mpt(2, attn_config={"alibi": False}), "no position table"),
        (folders.mpt(2, attn_config={"attn_type": "multiquery_attention"}), "multiquery_attention"),
    ],
)
def test_refused(made: tuple[dict[str, Any], dict[str, Any]], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InconclusiveError, match=reason):
        folders.read(tmp_path, *made)


def test_mpt_with_a_position_table_has_no_alibi(tmp_path: Path) -> None:
    config, tensors = folders.mpt(2, attn_config={"alibi": False}, max_seq_len=64)
    tensors["transformer.wpe.weight"] = folders.noise(64, 8)
    reading = folders.read(tmp_path, config, tensors)
    (part,) = reading.layers[0].parts
    assert isinstance(part, AbsolutePositions)
    assert any("transformers' MptModel ignores that" in warning for warning in reading.warnings)


@pytest.mark.parametrize(
    "made",
    [
        bert(max_position_embeddings=512),
        bert(model_type="roberta", max_position_embeddings=514, pad_token_id=1),
        bert(model_type="roberta", max_position_embeddings=514, pad_token_id=None),
        mpnet(max_position_embeddings=514),
    ],
)
def test_rows_before_the_first_position_do_not_count(made: Any, tmp_path: Path) -> None:
    reading = folders.read(tmp_path, *made)
    assert reading.train_length.value == 512
    (table,) = [p for p in reading.layers[0].parts if isinstance(p, AbsolutePositions)]
    assert table.max_positions.value == 512


def test_opt_reserves_two_rows(tmp_path: Path) -> None:
    config = {"model_type": "opt", **BERT, "max_position_embeddings": 30}
    tensors = {
        f"model.decoder.layers.0.self_attn.{side}_proj.weight": folders.noise(8, 8) for side in "qk"
    }
    tensors["model.decoder.embed_positions.weight"] = folders.noise(32, 8)
    (part,) = folders.read(tmp_path, config, tensors).layers[0].parts
    assert part.max_positions.value == 30
    assert part.max_positions.source.endswith("2 rows reserved")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (folders.t5(np.zeros((32, 2), "f4"), num_heads=4), "has shape"),
        (folders.t5(np.zeros((2, 2), "f4")), "1 buckets up to distance 128"),
        (folders.t5(np.zeros((32, 2), "f4"), relative_attention_max_distance=4), "distance above"),
        (folders.mpt(2, attn_config="none"), "attn_config is no object"),
        (bert(model_type="roberta", max_position_embeddings=2), "more than the 2 rows"),
        (folders.latent(kv_lora_rank=4), "kv_a_proj_with_mqa.weight has shape"),
        (folders.latent(qk_nope_head_dim=None), "states no qk_nope_head_dim"),
    ],
)
def test_a_folder_that_contradicts_itself(
    made: tuple[dict[str, Any], dict[str, Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        folders.read(tmp_path, *made)


def test_attention_types_of_gpt_neo_must_be_a_list_of_pairs(tmp_path: Path) -> None:
    config = {"model_type": "gpt_neo", **BERT, "num_layers": 1, "attention_types": [["global", 1]]}
    tensors = {f"h.0.attn.attention.{side}_proj.weight": folders.noise(8, 8) for side in "qk"}
    with pytest.raises(CheckpointError, match="attention_types cannot be read"):
        folders.read(tmp_path, config, tensors)


def test_albert_has_at_least_a_layer_for_each_group(tmp_path: Path) -> None:
    config = {"model_type": "albert", **BERT, "num_hidden_groups": 2}
    with pytest.raises(CheckpointError, match="2 hidden groups for 1 layers"):
        folders.read(tmp_path, config, {"x": folders.noise(2)})


def test_a_table_with_a_bad_value_spoils_its_head_alone(tmp_path: Path) -> None:
    table = np.zeros((32, 2), np.float32)
    table[3, 1] = np.inf
    layer = folders.read(tmp_path, *folders.t5(table)).layers[0]
    assert [bad.heads for bad in layer.parts[0].loaded.bad] == [(1,)]


def test_a_latent_with_a_bad_value_spoils_all_heads(tmp_path: Path) -> None:
    config, tensors = folders.latent()
    tensors["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"][1, 1] = np.nan
    tensors["model.layers.0.self_attn.kv_b_proj.weight"][0, 0] = np.nan
    made = folders.read(tmp_path, config, tensors).layers[0].projections
    assert made is not None
    assert sorted(bad.heads for bad in made().bad) == [(0,), (0,), (1,)]


@pytest.mark.parametrize(("width", "channels"), [(64, 64), (128, 64)])
def test_gptj_rotates_64_channels_unless_it_is_told(
    width: int, channels: int, tmp_path: Path
) -> None:
    config = {"model_type": "gptj", "n_embd": width, "n_layer": 1, "n_head": 1}
    tensors = {f"h.0.attn.{side}_proj.weight": folders.noise(width, width) for side in "qk"}
    (part,) = folders.read(tmp_path / "a", config, tensors).layers[0].parts
    assert (part.rotary_dim.value, part.rotary_dim.source) == (
        channels,
        "transformers default" if width > channels else "not stated: the whole head",
    )
    assert part.rope_theta.value == 10000.0
    stated = {**config, "rotary_dim": 32, "rope_theta": 7.0}
    (part,) = folders.read(tmp_path / "b", stated, tensors).layers[0].parts
    assert (part.rotary_dim.value, part.rotary_dim.source) == (32, "config: rotary_dim")
    assert part.rope_theta.value == 10000.0
    with pytest.raises(CheckpointError, match="rotary_dim is null"):
        folders.read(tmp_path / "c", {**config, "rotary_dim": None}, tensors)
