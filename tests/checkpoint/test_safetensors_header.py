"""Damaged and hostile safetensors headers end in one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pjdiag.checkpoint import load
from pjdiag.errors import CheckpointError
from tests.checkpoint.files import attempt, entry, framed, write

F32 = entry("F32", [2], 0, 8)


def error_of(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert caught.value.hint
    assert str(path) in caught.value.message
    assert str(caught.value).isprintable()
    return caught.value.message


def rejected_by_reference(path: Path) -> bool:
    try:
        with safetensors.safe_open(path, "np"):
            return False
    except safetensors.SafetensorError:
        return True


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"w": F32}, 7, r"not fully covered: .* \(truncated by 1 bytes\)"),
        ({"w": F32}, 9, r"not fully covered: .* \(1 trailing bytes\)"),
        ({"w": F32, "v": entry("F32", [1], 4, 8)}, 8, "'v' overlaps the one before it"),
        ({"w": F32, "v": entry("F32", [1], 12, 16)}, 16, "'v' leaves a hole"),
        ({"w": entry("F32", [2], 4, 12)}, 12, "'w' leaves a hole"),
        ({"w": entry("F32", [3], 0, 8)}, 8, "of 12 bytes, but its data_offsets hold 8"),
        ({"w": entry("F4", [3], 0, 1)}, 1, "of 1.5 bytes, but its data_offsets hold 1"),
        ({"w": entry("F32", [2], 8, 0)}, 8, "are not .begin, end."),
        ({"w": entry("F32", [2**62, 4], 0, 8)}, 8, "the shape of tensor 'w' overflows"),
        ({"w": entry("F32", [2**63, 2**63], 0, 0)}, 0, "the shape of tensor 'w' overflows"),
        ({"w": entry("F32", [0, 2**62, 4], 0, 0)}, 0, "the shape of tensor 'w' overflows"),
        ({"w": entry("NEW", [2**62, 16], 0, 0)}, 0, "the shape of tensor 'w' overflows"),
        ({"w": entry("F32", [1] * 33, 0, 4)}, 4, "has 33 dimensions"),
        ({"w": F32 | {"shape": [2.0]}}, 8, "is not a list of sizes"),
        ({"w": F32 | {"shape": [True]}}, 8, "is not a list of sizes"),
        ({"w": F32 | {"shape": None}}, 8, "is not a list of sizes"),
        ({"w": F32 | {"shape": [-2]}}, 8, "negative number '-2'"),
        ({"w": F32 | {"data_offsets": [0]}}, 8, "are not .begin, end."),
        ({"w": F32 | {"data_offsets": [0, 8, 8]}}, 8, "are not .begin, end."),
        ({"w": F32 | {"dtype": 4}}, 8, "dtype of tensor 'w' is not a string"),
        ({"w": F32 | {"extra": {}}}, 8, "unknown field 'extra'"),
        ({"w": {"dtype": "F32", "shape": [2]}}, 8, "'w' has no data_offsets"),
        ({"w": [1]}, 0, "entry of tensor 'w' is not an object"),
        ({"__metadata__": {"a": 1}, "w": F32}, 8, "__metadata__ is not an object of strings"),
        ({"__metadata__": [], "w": F32}, 8, "__metadata__ is not an object of strings"),
        ({"n" * 5000: F32}, 8, "has 5000 characters"),
        ({}, 0, "holds no tensors"),
        ({"__metadata__": {"a": "b"}}, 0, "holds no tensors"),
        (b"{", 0, "not JSON"),
        (b'{"w": NaN}', 0, "NaN is not a JSON number"),
        (b'{"w":' + json.dumps(F32).encode()[:-1] + b',"e":-0}}', 8, "negative number '-0'"),
        (b'{"w": ' + b"1" * 5000 + b"}", 0, "not JSON"),
        (b'{"\xff": 1}', 0, "not UTF-8 at byte 2"),
        (b'{"\\ud800": ' + json.dumps(F32).encode() + b"}", 8, "half a surrogate pair"),
        (b'{"w":' + json.dumps(F32).encode() + b',"w":1}', 8, "the key 'w' occurs twice"),
        (b'{"w":{"dtype":"F32","dtype":"F32"}}', 8, "the key 'dtype' occurs twice"),
        (b'{"__metadata__":{"a":"1","a":"2"}}', 0, "the key 'a' occurs twice"),
        (b'{"w":' + b"[" * 100 + b"]" * 100 + b"}", 0, "nested deeper than 64 levels"),
        (b'{"w":' + b"[" * 99_999 + b"]" * 99_999 + b"}", 0, "nested deeper than 64 levels"),
    ],
)
def test_a_bad_header_is_one_clear_error(
    tmp_path: Path, header: dict[str, Any] | bytes, data: int, words: str
) -> None:
    path = write(tmp_path / "w.safetensors", header, bytes(data))
    with pytest.raises(CheckpointError, match=words):
        load(path)
    error_of(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x10\0\0", "truncated: 3 bytes, expected at least 8"),
        ((100).to_bytes(8, "little") + b'{"w"', "truncated in the header of 100 bytes"),
        ((100_000_001).to_bytes(8, "little") + b"{", "header would have 100000001 bytes"),
        (b"\xff" * 64, "header would have 18446744073709551615 bytes"),
        (framed(b"[]"), "does not start with"),
        (framed(b"\xef\xbb\xbf{}"), "does not start with"),
    ],
)
def test_a_bad_frame_is_one_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    assert words in error_of(path)
    assert rejected_by_reference(path)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_absent_and_empty_metadata_are_fine(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    path = write(tmp_path / "w.safetensors", {"__metadata__": metadata, "w": F32}, bytes(8))
    assert load(path).metadata == (metadata or {})


def test_padding_after_the_header_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", json.dumps({"w": F32}).encode() + b"   ", bytes(8))
    assert load(path).read("w").tolist() == [0, 0]


def test_a_header_of_640_bytes_is_not_taken_for_a_pickle(tmp_path: Path) -> None:
    raw = json.dumps({"w": F32}).encode()
    path = write(tmp_path / "w.safetensors", raw.ljust(0x280), bytes(8))
    assert path.read_bytes().startswith(b"\x80\x02")
    assert load(path).read("w").tolist() == [0, 0]


def test_a_damaged_header_is_refused_before_its_length_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes((31_999_999).to_bytes(8, "little") + b'{"w":1}')
    assert "truncated in the header of 31999999 bytes" in error_of(path)
    path.write_bytes((32_000_001).to_bytes(8, "little") + b'{"w":1}')
    assert "would have 32000001 bytes, expected at most 32000000" in error_of(path)


GOOD = framed(
    json.dumps(
        {
            "__metadata__": {"pjdiag": "{}"},
            "w": entry("F32", [2, 3], 0, 24),
            "b": entry("BF16", [3], 24, 30),
            "s": entry("I64", [], 30, 38),
            "e": entry("F8_E4M3", [0, 7], 38, 38),
        }
    ).encode(),
    bytes(38),
)
TOKENS = [*b'"{}[]:,0129-.e \\', 0, 0xFF, *(ord(char) for char in "FBItrue")]
mutation = st.tuples(
    st.sampled_from(["replace", "insert", "delete"]),
    st.integers(0, len(GOOD) - 1),
    st.sampled_from(TOKENS) | st.integers(0, 255),
)


def mutated(mutations: list[tuple[str, int, int]], *, mend: bool) -> bytes:
    """``GOOD`` with bytes changed; ``mend`` sets the header's length right again."""
    content = bytearray(GOOD)
    header = int.from_bytes(GOOD[:8], "little")
    for kind, place, byte in mutations:
        at = min(place, len(content) - 1)
        if kind == "replace":
            content[at] = byte
        elif kind == "insert":
            content.insert(at, byte)
        elif len(content) > 9:
            del content[at]
    if mend:
        header += len(content) - len(GOOD)
        content[:8] = max(header, 0).to_bytes(8, "little")
    return bytes(content)


@settings(max_examples=400)
@given(mutations=st.lists(mutation, min_size=1, max_size=3), mend=st.booleans())
@example(mutations=[("replace", 0, 0xFF)], mend=False)
def test_a_mutated_file_is_read_as_the_reference_reads_it_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    mutations: list[tuple[str, int, int]],
    mend: bool,
) -> None:
    path = tmp_path_factory.mktemp("mutated") / "w.safetensors"
    path.write_bytes(mutated(mutations, mend=mend))
    checkpoint = attempt(path)
    if isinstance(checkpoint, CheckpointError):
        assert str(checkpoint).isprintable()
        return
    if any("cannot be read" in warning for warning in checkpoint.warnings):
        # A type of the future is kept in the list; the reference refuses the whole file.
        assert rejected_by_reference(path)
        return
    with safetensors.safe_open(path, "np") as reference:
        assert set(checkpoint.original_names.values()) == set(reference.keys())
        for name, original in checkpoint.original_names.items():
            piece = reference.get_slice(original)
            assert list(checkpoint.headers[name].shape) == piece.get_shape()
            assert checkpoint.headers[name].dtype == piece.get_dtype()
            assert checkpoint.read(name).shape == tuple(piece.get_shape())


dims = st.sampled_from([0, 1, 2, 3, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64])
sizes = st.integers(0, 24) | st.sampled_from([2**63, 2**64])
described = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "I64", "F4", "F6_E2M3", "BOOL"]),
        "shape": st.lists(dims, max_size=3),
        "data_offsets": st.tuples(sizes, sizes),
    }
)


@settings(max_examples=400)
@given(
    header=st.dictionaries(st.sampled_from(["a", "b", "c"]), described, min_size=1),
    data=st.integers(0, 40),
)
def test_what_the_reference_refuses_is_refused(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], data: int
) -> None:
    path = write(tmp_path_factory.mktemp("described") / "w.safetensors", header, bytes(data))
    if rejected_by_reference(path):
        error_of(path)


@given(cut=st.integers(0, 2000))
def test_every_truncation_of_a_written_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    whole = safetensors.numpy.save({"w": np.arange(6, dtype=np.float32), "b": np.ones(3)})
    path = tmp_path_factory.mktemp("cut") / "w.safetensors"
    path.write_bytes(whole[: cut % len(whole)])
    error_of(path)
