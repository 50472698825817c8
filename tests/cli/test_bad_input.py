"""Bad input: one clear line on stderr that says what to do next, the right code, no output."""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import struct

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from pjdiag.terms import Sector
from tests.cli.running import run
from tests.diagnostics.kernels import DATA
from tests.native import full_native, random_raw, write_native

LFS_POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)


def missing_file(folder):
    return folder / "nowhere.safetensors"


def folder_without_weights(folder):
    (folder / "config.json").write_text("{}")
    return folder


def empty_file(folder):
    (folder / "m.safetensors").touch()
    return folder / "m.safetensors"


def text_file(folder):
    (folder / "m.safetensors").write_text("not a checkpoint at all, only some words\n")
    return folder / "m.safetensors"


def truncated(folder):
    path = full_native(folder / "m.safetensors")
    path.write_bytes(path.read_bytes()[:-10])
    return path


def trailing_bytes(folder):
    path = full_native(folder / "m.safetensors")
    path.write_bytes(path.read_bytes() + b"x")
    return path


def lfs_pointer(folder):
    (folder / "m.safetensors").write_text(LFS_POINTER)
    return folder / "m.safetensors"


def torch_file_without_flag(folder):
    return shutil.copy(DATA / "full.pt", folder / "full.pt")


def forbidden_global(folder):
    torch.save({"model_state": argparse.Namespace(a=1)}, folder / "m.pt")
    return folder / "m.pt"


def code_in_a_pickle(folder):
    class Trap:
        def __reduce__(self):
            return (print, ("the checkpoint ran code",))

    (folder / "m.pt").write_bytes(pickle.dumps({"model": Trap()}, protocol=2))
    return folder / "m.pt"


def edited(folder, change, metadata=None):
    path = full_native(folder / "m.safetensors")
    tensors = load_file(path)
    change(tensors)
    stated = json.dumps(
        metadata
        or {
            "format_version": 1,
            "method": "full",
            "vocab_size": 256,
            "train_length": 128,
            "rho": "linear",
            "sectors": ["fj", "affine", "lc"],
            "max_order": 3,
            "num_heads": 2,
            "layers": 2,
            "embed_dim": 16,
            "mlp_ratio": 2,
            "rope_base": 10000.0,
            "slope_form": "softplus",
            "recipe": {},
        }
    )
    save_file(tensors, path, {"pjdiag": stated})
    return path


def gate_logits_of_a_wrong_shape(folder):
    name = "blocks.1.attn.pj_bias.gate_logits"
    return edited(folder, lambda t: t.update({name: np.zeros((2, 2))}))


def missing_omega(folder):
    return edited(folder, lambda t: t.pop("blocks.0.attn.pj_bias.omega"))


def unknown_method(folder):
    metadata = {
        "format_version": 1,
        "method": "warp",
        "vocab_size": 256,
        "train_length": 128,
        "rho": "linear",
        "sectors": [],
        "max_order": 3,
        "num_heads": 2,
        "layers": 2,
        "embed_dim": 16,
        "mlp_ratio": 2,
        "rope_base": 1e4,
        "slope_form": "softplus",
        "recipe": {},
    }
    return edited(folder, lambda t: None, metadata)


def other_architecture(folder):
    save_file({"encoder.weight": np.zeros((2, 2))}, folder / "m.safetensors")
    return folder / "m.safetensors"


def huge_header(folder):
    (folder / "m.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    return folder / "m.safetensors"


FILES = [
    (missing_file, [], "nowhere.safetensors"),
    (folder_without_weights, [], "safetensors"),
    (empty_file, [], "empty"),
    (text_file, [], "m.safetensors"),
    (truncated, [], "not fully covered"),
    (trailing_bytes, [], "not fully covered"),
    (lfs_pointer, [], "git lfs pull"),
    (huge_header, [], "header"),
    (torch_file_without_flag, [], "--allow-pickle"),
    (forbidden_global, ["--allow-pickle"], "argparse.Namespace"),
    (code_in_a_pickle, ["--allow-pickle"], "print"),
    (gate_logits_of_a_wrong_shape, [], "[2, 2]; expected [2, 3]"),
    (missing_omega, [], "blocks.0.attn.pj_bias.omega is missing"),
    (unknown_method, [], "unknown method 'warp'"),
    (other_architecture, [], "no adapter knows"),
]


@pytest.mark.parametrize("command", ["mass", "loo", "probe"])
@pytest.mark.parametrize(
    ("make", "options", "says"), FILES, ids=[make.__name__ for make, _, _ in FILES]
)
def test_unreadable_checkpoint(capsys, tmp_path, command, make, options, says):
    ran = run(capsys, command, make(tmp_path), *options)
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.startswith("pjdiag: ")
    assert ran.err.count("\n") == 1
    assert "Next: " in ran.err


OPTIONS = [
    (["loo", "--order", "4"], "orders 0 to 3"),
    (["loo", "--order", "-1"], "order -1"),
    (["loo", "--order", "two"], "--order is 'two'; expected a whole number. Next: see `pjdiag loo"),
    (["loo", "--order", "fj:2"], "expected a whole number. Next: to remove that part of the runn"),
    (["loo", "--order=2.5"], "--order is '2.5'; expected a whole number"),
    (["mass", "--layer", "-1"], "--layer is '-1'; expected at least 0"),
    (["loo", "--length", "0"], "length is 0"),
    (["energy", "--length", "0"], "at least 2 tokens. Next: pass one that holds some lags, such"),
    (["probe", "--length", "0"], "length is 0"),
    (["probe", "--length", "1"], "length is 1"),
    (["energy", "--length", "1000000000000"], "length is 1000000000000 tokens"),
    (["energy", "--length", "20000000"], "at most 16777216"),
    (["probe", "--length", "many"], "'many' is not a length"),
    (["probe", "--precision", "fp8"], "unknown precision 'fp8'"),
    (["mass", "--by", "galaxy"], "--by is 'galaxy'; expected model, layer or head. Next: see"),
    (["mass", "--by", "modle"], "expected model, layer or head. Next: pass --by model"),
    (["mass", "--sector", "warp"], "--sector is 'warp'; expected fj, affine or lc. Next: see"),
    (["energy", "--lag-weights", "casual"], "uniform or causal. Next: pass --lag-weights causal"),
    (["mass", "--train-length", "0"], "train length is 0"),
    (["mass", "--layer", "9"], "layers are 0 to 1"),
    (["mass", "--head", "7"], "heads 0 to 1"),
    (["mass", "-o", "pdf"], "known formats: table, json, csv, parquet, markdown, html. Next: "),
    (["mass", "-o", "jsn"], "markdown, html. Next: pass -o json; or -o FORMAT, -o"),
    (["mass", "-o", "m.sarf"], "a path that ends in .txt, .json, .csv, .parquet, .md, .markdown"),
    (["mass", "-o", "json", "-o", "csv"], "stdout"),
    (["mass", "--min-coverage", "2"], "--min-coverage is '2'; expected at most 1"),
    (["mass", "--min-coverage", "all"], "--min-coverage is 'all'; expected a number"),
    (["mass", "--no-such-option"], "--no-such-option"),
    (["massive"], "massive"),
]


@pytest.mark.parametrize(("arguments", "says"), OPTIONS, ids=[" ".join(a) for a, _ in OPTIONS])
def test_unusable_option(capsys, tmp_path, arguments, says):
    path = full_native(tmp_path / "m.safetensors")
    ran = run(capsys, arguments[0], path, *arguments[1:])
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert "Next: " in ran.err


def test_a_setting_that_the_parser_refuses_is_said_in_our_words(capsys, tmp_path, monkeypatch):
    path = full_native(tmp_path / "m.safetensors")
    monkeypatch.chdir(tmp_path)
    said = {
        "min_coverage = 2": "--min-coverage of a settings file; expected at most 1",
        'train_length = "long"': "--train-length of a settings file; expected a whole number",
        'by = "modle"': "--by is 'modle'; expected model, layer or head. Next: pass --by model",
    }
    for text, says in said.items():
        (tmp_path / "pjdiag.toml").write_text(text)
        ran = run(capsys, "mass", path)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert says in ran.err


def test_nan_in_a_gate_names_the_tensor_and_prints_the_other_heads(capsys, tmp_path):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
    raw["gate_logits"][1, 1] = np.nan
    path = write_native(tmp_path / "m.safetensors", [raw])
    ran = run(capsys, "mass", path, "--by", "head")
    assert ran.code == 3
    assert "blocks.0.attn.pj_bias.gate_logits" in ran.out + ran.err
    assert "head 0" in ran.out.lower() or "0.0" in ran.out
    assert "affine" in ran.out.lower()


def test_every_head_bad_is_inconclusive(capsys, tmp_path):
    raw = random_raw(tuple(Sector), 2, 3, np.random.default_rng(0))
    raw["omega"][:] = np.inf
    path = write_native(tmp_path / "m.safetensors", [raw])
    for command in ("mass", "energy", "loo", "probe"):
        ran = run(capsys, command, path)
        assert ran.code == 3
        assert "blocks.0.attn.pj_bias.omega" in ran.out + ran.err


def test_an_output_that_cannot_be_written_leaves_nothing(capsys, tmp_path):
    path = full_native(tmp_path / "m.safetensors")
    ran = run(capsys, "mass", path, "-o", f"json:{tmp_path / 'no' / 'such' / 'folder.json'}")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.safetensors"]


def test_a_mistyped_command_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "mas")
    assert ran.code == 2
    assert "Did you mean 'mass'? Next: see `pjdiag --help`" in ran.err
