"""A safetensors file: a strict reader of its header, and tensors from a memory map."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjdiag.checkpoint import dtypes
from pjdiag.checkpoint.mapped import Stamp, mapped_bytes
from pjdiag.checkpoint.source import TensorHeader
from pjdiag.checkpoint.strict_json import JsonError, parse_object
from pjdiag.checkpoint.text import shown, shown_path
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    import numpy.typing as npt

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 32_000_000
"""The format allows 100 MB, which as text of Python can take four times as much, twice."""
MAX_NAME_LENGTH = 4096
MAX_DIMENSIONS = 32
_MAX_BITS = 2**63 - 1
_DAMAGED = "download or save the file again"


class HeaderError(ValueError):
    """What is wrong with a safetensors header, in words."""


class Entry(NamedTuple):
    """A tensor's header and its bytes ``begin .. end - 1``, counted from the data's start."""

    header: TensorHeader
    begin: int
    end: int


class Header(NamedTuple):
    """Everything a safetensors file says before its data."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]


def parse_header(raw: bytes, data_size: int) -> Header:
    """The header in ``raw``, checked against ``data_size`` bytes of data.

    Raises HeaderError unless the tensors cover the data exactly, each with the bytes its
    shape and dtype need.

    >>> raw = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
    >>> parse_header(raw, 24).entries["w"].header.shape
    (2, 3)
    """
    if not raw.startswith(b"{"):
        raise HeaderError("the header does not start with '{'")
    try:
        loaded = parse_object(raw, plain_numbers=True)
    except JsonError as error:
        raise HeaderError(f"the header is bad: {error}") from error
    metadata = _metadata(loaded.pop("__metadata__", None))
    entries = {name: _entry(name, value) for name, value in loaded.items()}
    _check_cover(entries, data_size)
    return Header(entries, metadata)


def _metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise HeaderError("__metadata__ is not an object of strings")
    for name, item in value.items():
        _check_text(name)
        _check_text(item)
    return value


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise HeaderError(f"{shown(text)} holds half a surrogate pair") from error


def _entry(name: str, value: Any) -> Entry:
    _check_text(name)
    if len(name) > MAX_NAME_LENGTH:
        raise HeaderError(f"the name {shown(name)} has {len(name)} characters")
    if not isinstance(value, dict):
        raise HeaderError(f"the entry of tensor {shown(name)} is not an object")
    missing = {"dtype", "shape", "data_offsets"} - value.keys()
    if missing:
        raise HeaderError(f"tensor {shown(name)} has no {min(missing)}")
    for field, item in value.items():
        _check_text(field)
        if field not in {"dtype", "shape", "data_offsets"} and isinstance(item, dict | list):
            raise HeaderError(f"tensor {shown(name)} has an unknown field {shown(field)}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str):
        raise HeaderError(f"the dtype of tensor {shown(name)} is not a string")
    _check_text(dtype)
    if not _naturals(shape):
        raise HeaderError(f"the shape of tensor {shown(name)} is not a list of sizes")
    if len(shape) > MAX_DIMENSIONS:
        raise HeaderError(f"tensor {shown(name)} has {len(shape)} dimensions")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise HeaderError(f"data_offsets of tensor {shown(name)} are not [begin, end]")
    begin, end = offsets
    _check_size(name, dtype, shape, end - begin)
    return Entry(TensorHeader(name, dtype, tuple(shape)), begin, end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_size(name: str, dtype: str, shape: list[int], size: int) -> None:
    width = dtypes.bits(dtype)
    # Zeros are left out of the bound: NumPy and other readers overflow on [2**62, 4, 0] too.
    bound = width or 8
    for length in shape:
        bound *= max(length, 1)
        if bound > _MAX_BITS:
            raise HeaderError(f"the shape of tensor {shown(name)} overflows")
    if width is None:
        return  # a type of the future: listed, its offsets checked, and not read
    total = 0 if 0 in shape else bound
    if total % 8 or total // 8 != size:
        raise HeaderError(
            f"tensor {shown(name)} is {dtype} {shape} of {total / 8:g} bytes, "
            f"but its data_offsets hold {size}"
        )


def _check_cover(entries: Mapping[str, Entry], data_size: int) -> None:
    covered = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != covered:
            what = "overlaps the one before it" if entry.begin < covered else "leaves a hole"
            raise HeaderError(
                f"tensor {shown(entry.header.name)} {what}: "
                f"it begins at {entry.begin}, expected {covered}"
            )
        covered = entry.end
    if covered != data_size:
        excess = data_size - covered
        what = f"{excess} trailing bytes" if excess > 0 else f"truncated by {-excess} bytes"
        raise HeaderError(
            f"not fully covered: the tensors need {covered} bytes of data, "
            f"the file has {data_size} ({what})"
        )


class SafetensorsFile:
    """A safetensors file whose header is read; ``read`` touches only the bytes it returns."""

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises CheckpointError where it is damaged, OSError from the system."""
        self.path = path
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            try:
                raw = _header_bytes(stream.read(LENGTH_BYTES), status.st_size)
                header = parse_header(stream.read(raw), max(status.st_size - LENGTH_BYTES - raw, 0))
            except HeaderError as error:
                raise CheckpointError(
                    f"{shown_path(path)} is not a sound safetensors file: {error}", _DAMAGED
                ) from error
        self._stamp = Stamp.of(status)
        self._data_start = LENGTH_BYTES + raw
        self._entries = header.entries
        self.metadata = header.metadata
        self.headers = {name: entry.header for name, entry in header.entries.items()}

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """A fresh array of the tensor, or of rows ``start:stop`` of its first axis."""
        entry = self._entries[name]
        shape, begin, size = entry.header.shape, entry.begin, entry.end - entry.begin
        if rows is not None:
            row_size = size // shape[0] if shape[0] else 0
            begin += rows.start * row_size
            size = (rows.stop - rows.start) * row_size
            shape = (rows.stop - rows.start, *shape[1:])
        raw = mapped_bytes(self.path, self._stamp, self._data_start + begin, size)
        return dtypes.decode(raw, entry.header.dtype, shape)

    def decodes(self, dtype: str) -> bool:
        """Whether tensors of this type can become an array."""
        return dtypes.is_readable(dtype)


def _header_bytes(length: bytes, file_size: int) -> int:
    """The header's length, checked before anything of that size is read."""
    if len(length) < LENGTH_BYTES:
        raise HeaderError(f"truncated: {file_size} bytes, expected at least {LENGTH_BYTES}")
    size = int.from_bytes(length, "little")
    if size > MAX_HEADER_BYTES:
        raise HeaderError(
            f"its header would have {size} bytes, expected at most {MAX_HEADER_BYTES}"
        )
    if size > file_size - LENGTH_BYTES:
        raise HeaderError(
            f"not fully covered: truncated in the header of {size} bytes, "
            f"the file has {file_size} bytes in all"
        )
    return size
