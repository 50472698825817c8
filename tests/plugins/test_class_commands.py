"""``pjdiag inspect`` and ``pjdiag mass`` on a folder of each class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjdiag.position.alibi import slopes
from tests.cli.running import run
from tests.plugins import folders
from tests.plugins.test_class_refusals import bert, mpnet
from tests.plugins.test_class_traps import PREFIX, falcon, other


def gpt(model_type: str, **tensors: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    config = {"model_type": model_type, "n_embd": 16, "n_layer": 1, "n_head": 4, "rotary_dim": 2}
    return config, {f"transformer.h.0.attn.{name}.weight": tensors[name] for name in tensors}


NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "rotary_pct": 0.5,
}
NEO = {"model_type": "gpt_neo", "hidden_size": 16, "num_heads": 4, "num_layers": 1}
ALBERT = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 3}
GROUP = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention"
TABLE = folders.noise(32, 2)
SQUARE = folders.noise(16, 16)
ROTARY = {
    "gpt_neox": (
        NEOX,
        {"gpt_neox.layers.0.attention.query_key_value.weight": folders.noise(48, 16)},
    ),
    "gptj": gpt("gptj", q_proj=SQUARE, k_proj=SQUARE),
    "codegen": gpt("codegen", qkv_proj=folders.noise(48, 16)),
    "falcon": (falcon(4, 16), {PREFIX: folders.noise(24, 16)}),
    "mla": folders.latent(rope_theta=10000.0),
}
ABSOLUTE = {
    "gpt2": gpt("gpt2", c_attn=folders.noise(16, 48)),
    "gpt_bigcode": gpt("gpt_bigcode", c_attn=folders.noise(24, 16)),
    "gpt_neo": (
        {**NEO, "attention_types": [[["global"], 1]]},
        {f"transformer.h.0.attn.attention.{side}_proj.weight": SQUARE for side in "qk"},
    ),
    "opt": (
        {"model_type": "opt", **ALBERT, "num_hidden_layers": 1},
        {f"model.decoder.layers.0.self_attn.{side}_proj.weight": SQUARE for side in "qk"},
    ),
    "bert": bert(),
    "albert": (
        {"model_type": "albert", **ALBERT},
        {f"{GROUP}.{side}.weight": SQUARE for side in ("query", "key")},
    ),
}
TABULATED = {"t5": folders.t5(TABLE), "mpnet": mpnet()}
ALIBI = {
    "bloom": folders.bloom(6, seq_length=128),
    "mpt": folders.mpt(6, max_seq_len=128),
    "falcon": (
        {**falcon(4, 16), "alibi": True, "max_position_embeddings": 128},
        {PREFIX: folders.noise(24, 16)},
    ),
}
Made = tuple[dict[str, Any], dict[str, Any]]


def rows(capsys: Any, command: str, folder: Path, *more: Any) -> tuple[int, dict[str, Any]]:
    ran = run(capsys, command, folder, "-o", "json", *more)
    return ran.code, json.loads(ran.out)


@pytest.mark.parametrize(
    ("made", "mechanisms"),
    [
        *(pytest.param(made, ["rope"], id=f"{name}-rope") for name, made in ROTARY.items()),
        *(pytest.param(made, ["alibi"], id=f"{name}-alibi") for name, made in ALIBI.items()),
        *(pytest.param(made, ["learned_absolute"], id=name) for name, made in ABSOLUTE.items()),
        pytest.param(TABULATED["t5"], ["t5_bias"], id="t5"),
        pytest.param(TABULATED["mpnet"], ["learned_absolute", "t5_bias"], id="mpnet"),
        pytest.param(other(4), ["unknown"], id="generic"),
    ],
)
def test_inspect(made: Made, mechanisms: list[str], tmp_path: Path, capsys: Any) -> None:
    folder = folders.write(tmp_path, *made)
    code, found = rows(capsys, "inspect", folder)
    assert code == 0
    assert sorted({row["mechanism"] for row in found["rows"]}) == mechanisms
    assert run(capsys, "inspect", folder).code == 0


@pytest.mark.parametrize("made", ALIBI.values(), ids=ALIBI)
def test_mass_of_alibi_is_slope_times_length(made: Made, tmp_path: Path, capsys: Any) -> None:
    code, found = rows(capsys, "mass", folders.write(tmp_path, *made))
    assert code == 0
    config = made[0]
    heads = config.get("n_head") or config.get("n_heads") or config["num_attention_heads"]
    scale = 0.5 if config["model_type"] == "falcon" else 1.0
    layers = config.get("n_layer", 1)
    (whole,) = [
        row["effective_mass"]
        for row in found["rows"]
        if row["scope"] == "model" and row["sector"] == "affine" and row["jet_order"] is None
    ]
    assert whole == pytest.approx(layers * 128 * scale * sum(slopes(heads)))


def test_mass_of_alibi_without_a_length_says_so(tmp_path: Path, capsys: Any) -> None:
    folder = folders.write(tmp_path, *folders.bloom(4))
    code, found = rows(capsys, "mass", folder)
    assert (code, found["rows"]) == (3, [])
    assert {entry["reason"] for entry in found["skipped"]} == {
        "train length unknown, pass --train-length: the mass of ALiBi is m L"
    }
    assert rows(capsys, "mass", folder, "--train-length", 64)[0] == 0


@pytest.mark.parametrize("made", ROTARY.values(), ids=ROTARY)
def test_mass_of_rotary_heads(made: Made, tmp_path: Path, capsys: Any) -> None:
    code, found = rows(capsys, "mass", folders.write(tmp_path, *made))
    assert code == 0
    assert {row["family"] for row in found["rows"]} == {"multiplicative"}
    assert all(row["effective_mass"] > 0 for row in found["rows"])


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        *(pytest.param(made, "no function of the lag", id=n) for n, made in ABSOLUTE.items()),
        *(pytest.param(made, "no parameter mass", id=n) for n, made in TABULATED.items()),
        pytest.param(other(4), "the config states no rope", id="generic"),
    ],
)
def test_mass_of_what_has_none(made: Made, reason: str, tmp_path: Path, capsys: Any) -> None:
    code, found = rows(capsys, "mass", folders.write(tmp_path, *made))
    assert (code, found["rows"]) == (3, [])
    assert any(reason in entry["reason"] for entry in found["skipped"])
    assert run(capsys, "mass", tmp_path).code == 3


def test_mass_of_latent_queries_is_that_of_the_product(tmp_path: Path, capsys: Any) -> None:
    """With a latent at its norm's mean size, the rows are those of the two matrices' product."""
    config, tensors = folders.latent(q_lora_rank=4, rope_theta=10000.0)
    prefix = "model.layers.0."
    del tensors[f"{prefix}self_attn.q_proj.weight"]
    down, up = folders.noise(4, 8, seed=1), folders.noise(12, 4, seed=2)
    gain, before = folders.noise(4, seed=3), folders.noise(8, seed=4)
    kv_a = folders.noise(5, 8, seed=5)
    tensors |= {
        f"{prefix}self_attn.q_a_proj.weight": down,
        f"{prefix}self_attn.q_a_layernorm.weight": gain,
        f"{prefix}self_attn.q_b_proj.weight": up,
        f"{prefix}self_attn.kv_a_proj_with_mqa.weight": kv_a,
        f"{prefix}input_layernorm.weight": before,
    }
    code, found = rows(capsys, "mass", folders.write(tmp_path, config, tensors), "--by", "head")
    assert code == 0
    normed = down * before * (2 / np.linalg.norm(down * before))
    queries = (up @ (gain[:, None] * normed)).reshape(2, 6, 8)[:, 4:]
    keys = np.linalg.norm(kv_a[3:] * before)
    expected = [np.linalg.norm(head) * keys / 6**0.5 for head in queries]
    by_head = {
        row["head"]: row["effective_mass"]
        for row in found["rows"]
        if row["scope"] == "head" and row["jet_order"] is None
    }
    assert [by_head[0], by_head[1]] == pytest.approx(expected, rel=1e-5)
    assert any(text.startswith("approximate in layer 0") for text in found["warnings"])
