"""Starter policies."""

from __future__ import annotations

import json
import tomllib
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import pjdiag
from pjdiag.gate.policy_file import parse_policy
from pjdiag.gate.running import run as gate
from pjdiag.gate.starter import starter
from pjdiag.gate.verdict import exit_code
from pjdiag.terms import Sector
from tests.native import full_native, random_raw, write_native

TODAY = date(2028, 2, 29)


def t5(folder: Path) -> Path:
    config = {
        "model_type": "t5",
        "d_model": 16,
        "d_kv": 8,
        "num_heads": 2,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    tensors = {}
    for stack in ("encoder", "decoder"):
        block = f"{stack}.block.0.layer.0"
        name = f"{block}.SelfAttention.relative_attention_bias.weight"
        tensors[name] = random.normal(size=(32, 2)).astype(np.float32)
        for part in "qkvo":
            weight = random.normal(size=(16, 16)).astype(np.float32)
            tensors[f"{block}.SelfAttention.{part}.weight"] = weight
        tensors[f"{block}.layer_norm.weight"] = np.ones(16, np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


def affine_only(folder: Path) -> Path:
    raw = random_raw({Sector.AFFINE}, 2, 3, np.random.default_rng(1))
    return write_native(folder.with_suffix(".safetensors"), [raw], method="affine")


def full(folder: Path) -> Path:
    return full_native(folder.with_suffix(".safetensors"), layers=2, seed=3)


def learned(folder: Path) -> Path:
    """A decoder whose positions are vectors of its embedding alone."""
    config = {"model_type": "gpt2", "n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 32}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {
        "wpe.weight": np.ones((32, 16), np.float32),
        "h.0.attn.c_attn.weight": np.ones((16, 48), np.float32),
        "h.0.attn.c_proj.weight": np.ones((16, 16), np.float32),
        "h.0.ln_1.weight": np.ones(16, np.float32),
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


def zero(folder: Path) -> Path:
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(1))
    still = {n: v if "zeta" not in n else 0 * v for n, v in raw.items()}
    return write_native(folder.with_suffix(".safetensors"), [still])


@pytest.mark.parametrize("make", [t5, affine_only, full, zero])
def test_a_starter_is_fulfilled_by_its_checkpoint(tmp_path: Path, make) -> None:
    reading = pjdiag.read(make(tmp_path / "m"))
    text = starter(reading, TODAY)
    policy = parse_policy(text, "p.toml", tmp_path)
    result = gate(reading, policy, today=TODAY)
    assert len(policy.rules) >= 3
    assert exit_code(result) == 0, [row for row in result.rows if row["status"] != "passed"]
    assert {row["status"] for row in result.rows} == {"passed"}


def test_sectors_that_are_absent_must_stay_so(tmp_path: Path) -> None:
    text = starter(pjdiag.read(affine_only(tmp_path / "m")), TODAY)
    rules = {rule["id"]: rule for rule in tomllib.loads(text)["rule"]}
    assert rules["no-fj"]["within"] == rules["no-lc"]["within"] == [0, 0]
    grown = gate(pjdiag.read(full(tmp_path / "g")), parse_policy(text, "p", tmp_path), today=TODAY)
    assert {"no-fj", "no-lc"} <= {r["rule"] for r in grown.rows if r["status"] == "violated"}


def test_what_is_commented_out_is_right_too(tmp_path: Path) -> None:
    text = starter(pjdiag.read(full(tmp_path / "m")), TODAY)
    start = text.index("# More that can be asked")
    examples = "\n".join(
        line.removeprefix("# ").removeprefix("#") for line in text[start:].splitlines()[2:]
    )
    policy = parse_policy(f"version = 1\n{examples}", "p.toml", tmp_path)
    assert [rule.id for rule in policy.rules] == ["predicts", "resolves-32k", "order-2-unused"]
    assert [each.expires for each in policy.suppressions] == [date(2029, 2, 28)]


def test_nothing_is_suggested_that_the_checkpoint_has_no_figure_for(tmp_path: Path) -> None:
    text = starter(pjdiag.read(learned(tmp_path / "m")), TODAY)
    assert "nll.nll" in text
    assert "probe.top1" not in text
    assert "loo.prior_kl" not in text


def test_a_hostile_path_stays_in_its_comment(tmp_path: Path) -> None:
    path = full_native(tmp_path / "m\n[[rule]]\r\x1b[31m.safetensors")
    text = starter(pjdiag.read(path), TODAY)
    assert "\x1b" not in text
    assert len(parse_policy(text, "p", tmp_path).rules) == text.count("\n[[rule]]\nid")
