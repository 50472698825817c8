"""Safetensors files: what is read, and that only that is read."""

from __future__ import annotations

import hashlib
import json
import os
import resource
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pjdiag.checkpoint import TensorHeader, load
from pjdiag.errors import CheckpointError
from tests.checkpoint.files import entry, write

_STORED = ["f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8", "?", "c8"]


# Names that lose a segment, or that the format reserves, have their own tests.
_NAMES = st.text(st.characters(codec="utf-8"), max_size=12).filter(
    lambda name: name not in {"__metadata__", "module"} and ".module" not in name
)
_ARRAYS = st.dictionaries(
    _NAMES,
    npst.arrays(
        st.sampled_from(_STORED),
        npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    min_size=1,
    max_size=5,
)


@given(arrays=_ARRAYS, metadata=st.none() | st.dictionaries(st.text("ab"), st.text("xy")))
def test_reads_what_the_reference_library_wrote(
    tmp_path_factory: pytest.TempPathFactory,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, str] | None,
) -> None:
    path = tmp_path_factory.mktemp("written") / "w.safetensors"
    safetensors.numpy.save_file(arrays, path, metadata)
    checkpoint = load(path)
    assert checkpoint.format == "safetensors"
    assert checkpoint.metadata == (metadata or {})
    assert set(checkpoint.headers) == set(arrays)
    for name, array in arrays.items():
        read = checkpoint.read(name)
        wanted = array.astype(np.float32) if array.dtype == np.float16 else array
        assert read.dtype == wanted.dtype
        assert read.shape == array.shape == checkpoint.headers[name].shape
        np.testing.assert_array_equal(read, wanted)
        assert read.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "short"),
    [
        (torch.bfloat16, "BF16"),
        (torch.float16, "F16"),
        (torch.float8_e4m3fn, "F8_E4M3"),
        (torch.float8_e5m2, "F8_E5M2"),
        (torch.float8_e4m3fnuz, "F8_E4M3FNUZ"),
        (torch.float8_e5m2fnuz, "F8_E5M2FNUZ"),
        (torch.float8_e8m0fnu, "F8_E8M0"),
    ],
)
def test_every_bit_pattern_of_a_narrow_float_is_upcast_exactly(
    tmp_path: Path, dtype: torch.dtype, short: str
) -> None:
    width = dtype.itemsize
    patterns = torch.arange(2 ** (8 * width), dtype=torch.int64)
    bits = patterns.to(torch.uint8 if width == 1 else torch.int32).to(
        torch.uint8 if width == 1 else torch.int16
    )
    stored = bits.view(dtype).reshape(-1, 2)
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"w": stored}, path)
    checkpoint = load(path)
    assert checkpoint.headers["w"] == TensorHeader("w", short, tuple(stored.shape))
    read = checkpoint.read("w")
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, stored.to(torch.float32).numpy())
    np.testing.assert_array_equal(checkpoint.read_rows("w", 3, 7), read[3:7])


def test_bytes_of_bfloat16_are_little_endian(tmp_path: Path) -> None:
    raw = np.asarray([1.5, -2.0], ml_dtypes.bfloat16).tobytes()
    assert raw == b"\xc0\x3f\x00\xc0"
    path = write(tmp_path / "w.safetensors", {"w": entry("BF16", [2], 0, 4)}, raw)
    assert load(path).read("w").tolist() == [1.5, -2.0]


def test_a_boolean_is_true_for_any_byte_but_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", {"mask": entry("BOOL", [3], 0, 3)}, b"\x00\x01\x07")
    assert load(path).read("mask").tolist() == [False, True, True]


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    header = {
        "scalar": entry("F32", [], 0, 4),
        "empty": entry("F32", [0, 3], 4, 4),
        "thin": entry("BF16", [3, 0], 4, 4),
    }
    checkpoint = load(write(tmp_path / "w.safetensors", header, np.float32(2.5).tobytes()))
    assert checkpoint.read("scalar").item() == 2.5
    assert checkpoint.read("empty").shape == (0, 3)
    assert checkpoint.read("thin").shape == (3, 0)
    assert checkpoint.read_rows("empty", 0, 0).shape == (0, 3)
    assert checkpoint.read_rows("thin", 1, 3).shape == (2, 0)
    with pytest.raises(CheckpointError, match="'scalar' is a scalar and has no rows"):
        checkpoint.read_rows("scalar", 0, 1)


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 5), (3, 2), (5, 5)])
def test_rows_outside_the_tensor_are_refused(tmp_path: Path, start: int, stop: int) -> None:
    path = write(tmp_path / "w.safetensors", {"w": entry("F32", [4], 0, 16)}, bytes(16))
    with pytest.raises(CheckpointError, match=f"rows {start}:{stop} asked of tensor 'w'"):
        load(path).read_rows("w", start, stop)


def test_a_tensor_need_not_be_aligned(tmp_path: Path) -> None:
    header = {"a": entry("U8", [3], 0, 3), "w": entry("F64", [2, 1], 3, 19)}
    data = bytes(3) + np.asarray([1.25, -7.5]).tobytes()
    checkpoint = load(write(tmp_path / "w.safetensors", header, data))
    assert checkpoint.read("w").tolist() == [[1.25], [-7.5]]
    assert checkpoint.read_rows("w", 1, 2).tolist() == [[-7.5]]


def test_an_unknown_type_is_listed_with_a_warning_and_not_read(tmp_path: Path) -> None:
    header = {"odd": entry("F3", [5], 0, 2), "w": entry("F32", [], 2, 6)}
    checkpoint = load(write(tmp_path / "w.safetensors", header, bytes(6)))
    assert checkpoint.headers["odd"].dtype == "F3"
    assert checkpoint.warnings == ("tensors of dtype 'F3' cannot be read: 'odd'",)
    assert checkpoint.read("w") == 0
    with pytest.raises(CheckpointError, match="'odd' has dtype 'F3', which cannot be read"):
        checkpoint.read("odd")
    with pytest.raises(CheckpointError, match="'odd' has dtype 'F3', which cannot be read"):
        checkpoint.read_rows("odd", 0, 1)


def test_packed_four_bit_floats_are_listed_and_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", {"w": entry("F4", [2, 3], 0, 3)}, bytes(3))
    with pytest.raises(CheckpointError, match="dtype 'F4'"):
        load(path).read("w")


def test_only_the_bytes_asked_for_are_touched(tmp_path: Path) -> None:
    rows, width = 2**20, 2**14
    size = rows * width * 4
    header = json.dumps({"big": entry("F32", [rows, width], 0, size)}).encode()
    path = write(tmp_path / "sparse.safetensors", header)
    start = path.stat().st_size
    with path.open("r+b") as stream:
        stream.seek(start + 4 * width * (rows - 1))
        stream.write(np.arange(width, dtype=np.float32).tobytes())
    assert path.stat().st_size == start + size > 2**36
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    checkpoint = load(path)
    assert checkpoint.read_rows("big", rows - 1, rows).tolist() == [list(range(width))]
    assert checkpoint.read_rows("big", 5, 7).sum() == 0
    assert checkpoint.digest().startswith("sha256-header:")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 64 * 1024  # KiB, of a file of 64 GiB


def test_an_unknown_name_is_named_with_its_neighbours(tmp_path: Path) -> None:
    header = {"blocks.0.omega": entry("F32", [], 0, 4), "head": entry("F32", [], 4, 8)}
    checkpoint = load(write(tmp_path / "w.safetensors", header, bytes(8)))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.read("blocks.0.omgea")
    assert "has no tensor 'blocks.0.omgea'" in caught.value.message
    assert caught.value.hint == "check the name; near it: 'blocks.0.omega'"
    with pytest.raises(CheckpointError, match=r"there are: 'blocks\.0\.omega', 'head'"):
        checkpoint.read_rows("zzz", 0, 1)


def test_control_characters_of_a_name_stay_out_of_messages(tmp_path: Path) -> None:
    evil = "\x1b[2Jw\u202e\n"
    header = {evil: entry("NEW\x07", [1], 0, 1), "w": entry("F32", [], 1, 5)}
    checkpoint = load(write(tmp_path / "w.safetensors", header, bytes(5)))
    assert evil in checkpoint.headers
    with pytest.raises(CheckpointError) as unreadable:
        checkpoint.read(evil)
    with pytest.raises(CheckpointError) as unknown:
        checkpoint.read(evil + "x")
    for text in (str(unreadable.value), str(unknown.value), *checkpoint.warnings):
        assert text.isprintable()
        assert "\\x1b[2Jw\\u202e\\n" in text


def test_the_digest_is_the_file_s_own_sha256(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", {"w": entry("F32", [1], 0, 4)}, bytes(4))
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load(path).digest() == f"sha256:{expected}"


def test_the_header_digest_sees_shapes_and_sizes(tmp_path: Path) -> None:
    def digest(name: str, shape: list[int]) -> str:
        size = 4 * int(np.prod(shape))
        path = write(tmp_path / "w.safetensors", {name: entry("F32", shape, 0, size)})
        os.truncate(path, path.stat().st_size + size)
        return load(path).digest()

    a = digest("w", [2**20, 128])
    assert a == digest("w", [2**20, 128])
    assert len({a, digest("v", [2**20, 128]), digest("w", [2**19, 256])}) == 3
    assert a.startswith("sha256-header:")


@pytest.mark.parametrize(
    ("dtypes", "summary"),
    [
        (["F32"], "float32"),
        (["F32", "BF16", "I64"], "bfloat16+float32"),
        (["F8_E4M3"], "float8_e4m3fn"),
        (["I64", "BOOL"], "bool+int64"),
    ],
)
def test_the_dtype_summary_names_the_floating_types(
    tmp_path: Path, dtypes: list[str], summary: str
) -> None:
    header = {f"t{i}": entry(dtype, [0], 0, 0) for i, dtype in enumerate(dtypes)}
    assert load(write(tmp_path / "w.safetensors", header)).dtype() == summary


def test_wrapper_segments_are_dropped_and_the_original_name_kept(tmp_path: Path) -> None:
    header = {"_orig_mod.module.w": entry("F32", [], 0, 4)}
    checkpoint = load(write(tmp_path / "w.safetensors", header, np.float32(3).tobytes()))
    assert checkpoint.headers == {"w": TensorHeader("w", "F32", ())}
    assert checkpoint.read("w").item() == 3
    assert checkpoint.original_names == {"w": "_orig_mod.module.w"}


def test_a_file_that_changed_after_loading_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", {"w": entry("F32", [4], 0, 16)}, bytes(16))
    checkpoint = load(path)
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(CheckpointError, match="has changed since it was opened"):
        checkpoint.read("w")
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read any more: No such file"):
        checkpoint.read("w")
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.digest()
