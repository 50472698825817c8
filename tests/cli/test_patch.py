"""pjdiag patch as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import pjdiag
from pjdiag.errors import pip_install
from pjdiag.lab.corpora import Work
from pjdiag.lab.token_training import made_tokenizer
from pjdiag.models.huggingface.loading import quiet
from pjdiag.models.patching import patched_layers
from tests import isolated
from tests.checkpoint import gguf_files
from tests.cli.running import Ran, run
from tests.models.huggingface.tiny import output, tokens
from tests.models.patched import plain, stirred


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save(plain("llama"), tmp_path / "llama")


def save(model: Any, folder: Path) -> Path:
    with quiet():
        model.save_pretrained(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_patched_and_read(capsys: Any, llama: Path, tmp_path: Path) -> None:
    before, out = files(llama), tmp_path / "deep" / "patched"
    ran = run(capsys, "patch", llama, "-o", out)
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.startswith(
        "2 attention layers of 4 heads have a PJ-bias: Fourier-jet, affine recency, light-cone up "
        "to jet order 3, L = 64 tokens (config: max_position_embeddings).\n"
    )
    assert "the largest change of a logit is 0. " in ran.out
    assert "240 parameters in float32 beside weights in float32" in ran.out
    assert f"Next: train the model of pjdiag.load_model('{out}')" in ran.out
    assert files(llama) == before
    model, ids = pjdiag.load_model(out), tokens()
    torch.testing.assert_close(
        output(model, input_ids=ids), output(plain("llama"), input_ids=ids), atol=1e-5, rtol=1e-5
    )
    assert [path.name for path in out.parent.iterdir()] == ["patched"]
    ran = run(capsys, "mass", out)
    assert ran.code == 0
    assert "The position bias is zero" in ran.out
    assert run(capsys, "inspect", out).code == 0


def test_options_are_used(capsys: Any, llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()  # empty: free
    ran = run(
        capsys, "patch", llama, "-o", out, "--sectors", "affine, lc", "--max-order", 1,
        "--train-length", 32, "--rho", "lightcone",
    )  # fmt: skip
    assert ran.code == 0
    assert "affine recency, light-cone up to jet order 1, L = 32 tokens (--train-length)" in ran.out
    assert json.loads((out / "config.json").read_text())["pjdiag"] == {
        "version": 1,
        "sectors": ["affine", "lc"],
        "slope_form": "signed",
        "train_length": 32,
        "rho": "lightcone",
        "max_order": 1,
    }
    assert len(patched_layers(pjdiag.load_model(out))) == 2


def test_the_tokenizer_and_the_terms_come_along(capsys: Any, llama: Path, tmp_path: Path) -> None:
    tokenizer = made_tokenizer([Work("a", b"to be or not to be\n" * 20)], 260)
    tokenizer.save_pretrained(llama)
    (llama / "LICENSE").write_text("as you like it")
    (llama / "modeling_llama.py").write_text("raise SystemExit")
    out = tmp_path / "out"
    assert run(capsys, "patch", llama, "-o", out, "--quiet") == Ran(0, "", "")
    names = set(files(out))
    assert {"tokenizer.json", "tokenizer_config.json", "LICENSE", "model.safetensors"} <= names
    assert "modeling_llama.py" not in names
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in out.iterdir())


def test_the_type_of_the_weights_is_kept(capsys: Any, tmp_path: Path) -> None:
    folder = save(plain("llama").to(torch.bfloat16), tmp_path / "half")
    ran = run(capsys, "patch", folder, "-o", tmp_path / "out")
    assert "float32 beside weights in bfloat16" in ran.out
    stored = load_file(tmp_path / "out" / "model.safetensors")
    kinds = {("pj_bias" in name, value.dtype) for name, value in stored.items()}
    assert kinds == {(False, torch.bfloat16), (True, torch.float32)}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bloom", "BloomForCausalLM does not attend through transformers' attention interface"),
        ("bert", "BertModel predicts no next token"),
        ("t5", "T5EncoderModel predicts no next token"),
    ],
)
def test_what_cannot_be_patched_is_refused_in_one_line(
    capsys: Any, tmp_path: Path, name: str, says: str
) -> None:
    folder = save(plain(name), tmp_path / name)
    ran = run(capsys, "patch", folder, "-o", tmp_path / "out", "--train-length", 64)
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert "Next: " in ran.err
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_over(capsys: Any, llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    ran = run(capsys, "patch", llama, "-o", out)
    assert (ran.code, ran.out) == (2, "")
    assert "is not empty" in ran.err
    assert files(out) == {"mine.txt": b"keep"}
    ran = run(capsys, "patch", llama, "-o", out / "mine.txt")
    assert ran.code == 2
    assert "is not a folder" in ran.err


def test_a_patched_folder_is_not_patched_again(capsys: Any, tmp_path: Path) -> None:
    folder = save(stirred("llama"), tmp_path / "patched")
    ran = run(capsys, "patch", folder, "-o", tmp_path / "out")
    assert ran.code == 2
    assert "is patched already" in ran.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sectors", "fj,jet"], "a sector is 'jet'"),
        (["--sectors", ","], "no sector is given"),
        (["--max-order", "99"], "max_order is 99"),
        (["--train-length", "1"], "train_length is 1"),
        (["--rho", "log"], "--rho"),
    ],
)
def test_unusable_options(
    capsys: Any, llama: Path, tmp_path: Path, options: list[str], says: str
) -> None:
    ran = run(capsys, "patch", llama, "-o", tmp_path / "out", *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_there_is_no_sample_to_fall_back_to(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PJDIAG_CHECKPOINT", str(pjdiag.sample()))
    ran = run(capsys, "patch", "-o", tmp_path / "out")
    assert ran.code == 2
    assert "DIR" in ran.err
    for source in (pjdiag.sample(), tmp_path / "nowhere"):
        ran = run(capsys, "patch", source, "-o", tmp_path / "out")
        assert ran.code == 2
        assert ran.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_torch_it_says_what_is_missing(tmp_path: Path) -> None:
    names = [isolated.NAME.match(line)[0] for line in isolated.static_requirements()]
    site = isolated.only(tmp_path, names)
    ran = isolated.run(site, ["-m", "pjdiag", "patch", str(tmp_path), "-o", str(tmp_path / "out")])
    assert ran.returncode == 2
    assert ran.stderr == f"pjdiag: patching needs torch. Next: {pip_install('torch')}\n"


def test_a_gguf_file_is_refused_with_a_way_to_save_it(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    tensors = gguf_files.weights(seed=3)
    wide = (2 * gguf_files.HIDDEN, gguf_files.HIDDEN)
    for layer in range(gguf_files.LAYERS):
        for part in ("gate_proj", "up_proj"):
            tensors[f"model.layers.{layer}.mlp.{part}.weight"] = np.ones(wide, dtype=np.float32)
    file = gguf_files.converted(
        source / "tiny.gguf",
        tensors,
        metadata={"rope.dimension_count": gguf_files.DIM, "vocab_size": gguf_files.VOCAB},
    )
    for path in (source, file):
        ran = run(capsys, "patch", path, "-o", out)
        assert ran.code == 2
        assert ran.err.startswith(f"pjdiag: {file} is a GGUF file; expected a folder with ")
        assert ran.err.count("\n") == 1
        assert [entry.name for entry in tmp_path.iterdir()] == ["source"]
    monkeypatch.chdir(tmp_path)
    with quiet():
        exec(ran.err.partition("in Python: ")[2], {})  # noqa: S102  the advice itself
    assert run(capsys, "patch", "NEW_FOLDER", "-o", out).code == 0
    key = "model.layers.1.self_attn.k_proj.weight"
    assert (load_file(out / "model.safetensors")[key].numpy() == tensors[key]).all()
