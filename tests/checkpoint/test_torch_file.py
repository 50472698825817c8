"""Torch pickles: only with permission, only as data."""

from __future__ import annotations

import argparse
import collections
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjdiag.checkpoint import TensorHeader, load
from pjdiag.checkpoint.dtypes import is_readable
from pjdiag.errors import CheckpointError
from tests.checkpoint.files import DATA, attempt


def error_of(path: Path, *, allow_pickle: bool = True) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(path, allow_pickle=allow_pickle)
    assert str(caught.value).isprintable()
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


def saved(path: Path, value: Any, *, legacy: bool = False) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=not legacy)
    return path


def bytes_of(value: Any, *, legacy: bool = False) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


def rezipped(content: bytes, path: Path, compression: int) -> Path:
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(path, "w", compression) as target,
    ):
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
    return path


def test_the_published_pj_rope_file() -> None:
    checkpoint = load(DATA / "full.pt", allow_pickle=True)
    assert checkpoint.format == "torch"
    assert checkpoint.container["method"] == "full"
    assert checkpoint.container["model_config"]["train_len"] == 128
    assert checkpoint.headers["blocks.1.attn.qkv.weight"].shape == (288, 96)
    assert checkpoint.headers["blocks.0.attn.pj_bias.gate_logits"].shape == (4, 3)
    assert checkpoint.dtype() == "float32"
    assert checkpoint.config == {}
    assert checkpoint.warnings == ()
    state = torch.load(DATA / "full.pt", weights_only=True)["model_state"]
    assert list(checkpoint.headers) == list(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor.numpy())


def test_the_jordan_file_shares_storage_and_keeps_both_names() -> None:
    checkpoint = load(DATA / "jordan_rope.pt", allow_pickle=True)
    assert checkpoint.container["config"]["position_method"] == "jordan_rope"
    embed, head = checkpoint.read("embed.weight"), checkpoint.read("lm_head.weight")
    np.testing.assert_array_equal(embed, head)
    embed[:] = 0
    assert checkpoint.read("lm_head.weight").any()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".safetensors", ""])
def test_without_permission_it_is_refused(tmp_path: Path, legacy: bool, suffix: str) -> None:
    path = saved(tmp_path / f"w{suffix}", {"w": torch.ones(1)}, legacy=legacy)
    error = error_of(path, allow_pickle=False)
    assert "is a torch pickle" in error.message
    assert "pass --allow-pickle if you trust" in error.hint
    assert load(path, allow_pickle=True).read("w").item() == 1


@pytest.mark.parametrize("legacy", [False, True])
def test_types_are_upcast_as_in_safetensors(tmp_path: Path, legacy: bool) -> None:
    tensors = {
        "f32": torch.tensor([[1.5, 2.0], [3.0, 4.0]]),
        "f64": torch.tensor([1.1], dtype=torch.float64),
        "f16": torch.tensor([1.5]).half(),
        "bf16": torch.tensor([-2.0]).bfloat16(),
        "i64": torch.tensor(7),
        "bool": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "conjugate": torch.tensor([1 + 2j], dtype=torch.complex64).conj(),
    }
    checkpoint = load(saved(tmp_path / "w.pt", tensors, legacy=legacy), allow_pickle=True)
    dtypes = ["F32", "F64", "F16", "BF16", "I64", "BOOL", "F32", "F32", "F32", "C64"]
    assert [header.dtype for header in checkpoint.headers.values()] == dtypes
    read = {name: checkpoint.read(name) for name in tensors}
    assert read["f32"].tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert read["f64"].dtype == np.float64
    assert read["f64"].item() == 1.1
    assert read["f16"].dtype == read["bf16"].dtype == np.float32
    assert (read["f16"].item(), read["bf16"].item(), read["i64"].item()) == (1.5, -2.0, 7)
    assert read["bool"].tolist() == [True, False]
    assert read["empty"].shape == (0, 3)
    assert read["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert read["conjugate"].item() == 1 - 2j
    assert checkpoint.read_rows("transposed", 1, 3).tolist() == [[1, 4], [2, 5]]
    assert checkpoint.read_rows("f32", 1, 1).shape == (0, 2)
    with pytest.raises(CheckpointError, match="has no tensor 'f31'"):
        checkpoint.read("f31")


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
)
def test_eight_bit_floats_are_upcast(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.tensor([0.5, -3.0]).to(dtype)
    checkpoint = load(saved(tmp_path / "w.pt", {"w": tensor}), allow_pickle=True)
    assert checkpoint.headers["w"].dtype.startswith("F8_E")
    assert checkpoint.read("w").tolist() == [0.5, -3.0]


def test_a_type_without_a_name_is_listed_and_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", {"z": torch.ones(1, dtype=torch.complex128)})
    checkpoint = load(path, allow_pickle=True)
    assert checkpoint.warnings == ("tensors of dtype 'complex128' cannot be read: 'z'",)
    with pytest.raises(CheckpointError, match="dtype 'complex128', which cannot be read"):
        checkpoint.read("z")


def test_sparse_and_meta_tensors_are_ignored_with_a_warning(tmp_path: Path) -> None:
    state = {
        "w": torch.ones(1),
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.ones(1, device="meta"),
    }
    checkpoint = load(saved(tmp_path / "w.pt", state), allow_pickle=True)
    assert list(checkpoint.headers) == ["w"]
    assert checkpoint.warnings == (
        "ignored in the state dict, not plain tensors: 'sparse', 'meta'",
    )


def test_a_training_checkpoint_is_unwrapped(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    state = {f"_orig_mod.module.{name}": value for name, value in model.state_dict().items()}
    loaded = {
        "model": state,
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(3, 2)}}, "param_groups": []},
        "best_val_loss": torch.tensor(1.25),
        "config": {"n_head": 4},
        "dtype": torch.bfloat16,
    }
    checkpoint = load(saved(tmp_path / "ckpt.pt", loaded), allow_pickle=True)
    assert checkpoint.headers == {
        "weight": TensorHeader("weight", "F32", (3, 2)),
        "bias": TensorHeader("bias", "F32", (3,)),
    }
    assert checkpoint.original_names["bias"] == "_orig_mod.module.bias"
    assert checkpoint.container["best_val_loss"] == 1.25
    assert checkpoint.container["config"] == {"n_head": 4}
    assert checkpoint.container["dtype"] == "torch.bfloat16"
    np.testing.assert_array_equal(checkpoint.read("weight"), model.weight.detach().numpy())


def test_a_collision_after_unwrapping_names_both(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", {"module.w": torch.ones(1), "w": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"'module\.w' and 'w' are both 'w'"):
        load(path, allow_pickle=True)


class _Call:
    """A pickle that calls a function when it is opened without care."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (argparse.Namespace(a=1), "argparse.Namespace"),
        (np.float64(1.0), "multiarray.scalar"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (_Call(eval, "1 + 1"), "eval"),
        (_Call(os.system, "exit 3"), ".system"),
        (_Call(collections.deque, [1]), "collections.deque"),
    ],
    ids=["namespace", "numpy scalar", "module", "eval", "system", "deque"],
)
def test_a_forbidden_global_is_named_and_never_called(
    tmp_path: Path, value: Any, named: str, legacy: bool
) -> None:
    path = saved(tmp_path / "w.pt", {"model": {"w": torch.ones(1)}, "x": value}, legacy=legacy)
    error = error_of(path)
    assert f"{named}', which is code and not data; refused" in error.message
    assert "state_dict" in error.hint


def test_a_forbidden_call_leaves_no_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = saved(tmp_path / "w.pt", {"w": _Call(os.system, f"touch {trace}")})
    error_of(path)
    assert not trace.exists()


def test_an_allocation_without_end_is_one_clear_error(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", {"w": torch.ones(1), "x": _Call(bytearray, 2**62)})
    assert "cannot be read as torch weights" in error_of(path).message


def test_a_tensor_that_is_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", {"w": torch.ones(1).expand(2**40, 2**10)})
    assert "'w' of shape (1099511627776, 1024) is larger than the file" in error_of(path).message
    small = saved(tmp_path / "v.pt", {"w": torch.ones(1).expand(3, 100)})
    assert load(small, allow_pickle=True).read("w").sum() == 300


def test_a_zip_that_would_unpack_to_more_than_it_has_is_refused_unopened(tmp_path: Path) -> None:
    content = bytes_of({"w": torch.zeros(2**20)})
    path = rezipped(content, tmp_path / "bomb.pt", zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 2**16
    for allow_pickle in (False, True):
        error = error_of(path, allow_pickle=allow_pickle)
        assert "but would unpack to 4" in error.message


def test_a_zip_stored_again_is_read(tmp_path: Path) -> None:
    content = bytes_of({"w": torch.arange(3.0)})
    path = rezipped(content, tmp_path / "w.pt", zipfile.ZIP_STORED)
    assert load(path, allow_pickle=True).read("w").tolist() == [0, 1, 2]


def test_a_torchscript_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", b"\x80\x02}.")
        archive.writestr("w/constants.pkl", b"\x80\x02).")
    assert "is a TorchScript archive" in error_of(path).message


@pytest.mark.parametrize("allow_pickle", [False, True])
@pytest.mark.parametrize("keep", [5, 100, 5000, -10])
def test_a_truncated_zip_is_said_before_torch_is_asked(
    tmp_path: Path, keep: int, allow_pickle: bool
) -> None:
    path = tmp_path / "w.pt"
    path.write_bytes((DATA / "full.pt").read_bytes()[:keep])
    error = error_of(path, allow_pickle=allow_pickle)
    assert "is a truncated or damaged torch file" in error.message


@pytest.mark.parametrize("keep", [2, 30, 300, -2])
def test_a_truncated_legacy_file_is_one_clear_error(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "w.pt"
    path.write_bytes(bytes_of({"w": torch.arange(100.0)}, legacy=True)[:keep])
    assert "cannot be read as torch weights" in error_of(path).message


_STATE = {"model": {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4).half()}, "seed": 3}
_WHOLE = {legacy: bytes_of(_STATE, legacy=legacy) for legacy in (False, True)}


@settings(max_examples=300)
@given(
    legacy=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_a_mutated_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, legacy: bool, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(_WHOLE[legacy])
    for place, byte in changes:
        content[place % len(content)] = byte
    path = tmp_path_factory.mktemp("mutated") / "w.pt"
    path.write_bytes(content)
    checkpoint = attempt(path, allow_pickle=True)
    if isinstance(checkpoint, CheckpointError):
        assert str(checkpoint).isprintable()
        return
    for name, header in checkpoint.headers.items():
        if is_readable(header.dtype):
            assert checkpoint.read(name).shape == header.shape
