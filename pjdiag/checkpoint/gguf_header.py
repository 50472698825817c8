"""The header of a GGUF file: a strict reader of metadata and tensor entries.

The ``gguf`` package's own reader makes an object of every token, which takes seconds; here the
long arrays are stepped over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pjdiag.checkpoint.text import shown

MAGIC = b"GGUF"
MAX_TENSORS = 100_000
MAX_ENTRIES = 100_000
MAX_NAME_BYTES = 65_535
MAX_TEXT_BYTES = 32_000_000
"""Of all names and texts that are kept, together."""
MAX_DIMENSIONS = 4
LONGEST_KEPT = 4096
"""Arrays up to this length are kept; of longer ones only the length."""
MAX_KEPT = 1_000_000
"""Values of all the arrays that are kept."""
DEFAULT_ALIGNMENT = 32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


class GgufError(ValueError):
    """What is wrong with a GGUF header, in words."""


class TensorEntry(NamedTuple):
    """A tensor as the header lists it."""

    name: str
    shape: tuple[int, ...]
    """Rows first, as NumPy has them: the file lists the sizes the other way round."""
    kind: int
    """Number of the element type."""
    offset: int
    """Bytes from the start of the data."""


@dataclass(frozen=True)
class Omitted:
    """A long array that was stepped over."""

    length: int


@dataclass(frozen=True)
class GgufHeader:
    """Everything a GGUF file says before its data."""

    metadata: Mapping[str, Any]
    tensors: tuple[TensorEntry, ...]
    data_start: int


class _Cursor:
    """Steps through bytes; every step is checked against the end of the file."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.at = raw, 0
        self._text_bytes = 0
        self._kept = 0

    def keep(self, count: int) -> bool:
        """Whether an array of ``count`` values is to be kept."""
        if count > LONGEST_KEPT:
            return False
        self._kept += count
        if self._kept > MAX_KEPT:
            raise GgufError(f"arrays of more than {MAX_KEPT:,} values in all")
        return True

    def skip(self, size: int) -> None:
        if size > len(self.raw) - self.at:
            raise GgufError(f"truncated: {size} bytes expected at byte {self.at}")
        self.at += size

    def take(self, size: int) -> Any:
        self.skip(size)
        return self.raw[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def count(self, least_bytes: int, limit: int, what: str) -> int:
        found: int = self.number("Q")
        if found > limit or found * least_bytes > len(self.raw) - self.at:
            raise GgufError(f"it announces {found} {what}, which do not fit into the file")
        return found

    def text(self, limit: int = MAX_TEXT_BYTES) -> str:
        size = self.number("Q")
        if size > limit:
            raise GgufError(f"a text of {size} bytes at byte {self.at}, expected at most {limit}")
        self._text_bytes += size
        if self._text_bytes > MAX_TEXT_BYTES:
            raise GgufError(f"texts of more than {MAX_TEXT_BYTES:,} bytes in all")
        try:
            return bytes(self.take(size)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise GgufError(f"a text that is not UTF-8 before byte {self.at}") from error

    def skip_texts(self, count: int) -> None:
        at, end, size_at = self.at, len(self.raw), struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > end:
                raise GgufError(f"truncated: {count} texts expected at byte {self.at}")
            at += 8 + size_at(self.raw, at)[0]
        self.at = min(at, end)
        self.skip(max(at - end, 0))


def parse_header(raw: Any) -> GgufHeader:
    """The header in ``raw``, the bytes of the whole file (a map of it will do).

    Raises GgufError.
    """
    cursor = _Cursor(raw)
    if bytes(cursor.take(4)) != MAGIC:
        raise GgufError("it does not begin with GGUF")
    version = cursor.number("I")
    if version not in (2, 3):
        big_endian = version & 0xFFFF == 0 and version
        told = "it is a big-endian file" if big_endian else f"its version is {version}"
        raise GgufError(f"{told}; expected version 2 or 3, little-endian")
    tensors = cursor.count(24, MAX_TENSORS, "tensors")
    entries = cursor.count(12, MAX_ENTRIES, "metadata entries")
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        name = cursor.text(MAX_NAME_BYTES)
        if name in metadata:
            raise GgufError(f"the key {shown(name)} occurs twice")
        metadata[name] = _value(cursor, cursor.number("I"), name)
    found = tuple(_tensor(cursor) for _ in range(tensors))
    names = {entry.name for entry in found}
    if len(names) != len(found):
        raise GgufError("two tensors have one name")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment > 2**20:
        raise GgufError(f"general.alignment is {shown(alignment)}")
    data_start = -(-cursor.at // alignment) * alignment
    return GgufHeader(metadata, found, data_start)


def _value(cursor: _Cursor, kind: int, name: str) -> Any:
    if kind in _SCALARS:
        return _shortest(kind, cursor.number(_SCALARS[kind]))
    if kind == _BOOL:
        return bool(cursor.number("B"))
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _array(cursor, name)
    raise GgufError(f"{shown(name)} has a value of the unknown type {kind}")


def _array(cursor: _Cursor, name: str) -> Any:
    kind = cursor.number("I")
    if kind == _STRING:
        length = cursor.count(8, len(cursor.raw), f"texts in {shown(name)}")
        if not cursor.keep(length):
            cursor.skip_texts(length)
            return Omitted(length)
        return [cursor.text() for _ in range(length)]
    code = "B" if kind == _BOOL else _SCALARS.get(kind)
    if code is None:
        raise GgufError(f"{shown(name)} is an array of the type {kind}, which is not read")
    size = struct.calcsize(f"<{code}")
    length = cursor.count(size, len(cursor.raw), f"values in {shown(name)}")
    if not cursor.keep(length):
        cursor.skip(length * size)
        return Omitted(length)
    values = struct.unpack(f"<{length}{code}", cursor.take(length * size))
    return [bool(v) if kind == _BOOL else _shortest(kind, v) for v in values]


def _shortest(kind: int, value: Any) -> Any:
    """A float32 as the shortest decimal that stands for it: 1e-05, not 9.99999974e-06."""
    if kind != 6 or not math.isfinite(value) or value == 0:
        return value
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _tensor(cursor: _Cursor) -> TensorEntry:
    name = cursor.text(MAX_NAME_BYTES)
    dimensions = cursor.number("I")
    if dimensions > MAX_DIMENSIONS:
        raise GgufError(f"tensor {shown(name)} has {dimensions} dimensions")
    sizes = tuple(cursor.number("Q") for _ in range(dimensions))
    if math.prod(max(size, 1) for size in sizes) > 2**60:
        raise GgufError(f"the shape of tensor {shown(name)} overflows")
    return TensorEntry(name, sizes[::-1], cursor.number("I"), cursor.number("Q"))
