"""A GGUF file: tensors dequantised as they are read, with the rows in their own order again."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.checkpoint import dtypes
from pjdiag.checkpoint.gguf_header import GgufError, GgufHeader, TensorEntry, parse_header
from pjdiag.checkpoint.gguf_names import Family, family_of
from pjdiag.checkpoint.mapped import Stamp, mapped_bytes
from pjdiag.checkpoint.source import TensorHeader
from pjdiag.checkpoint.text import shown, shown_path
from pjdiag.errors import CheckpointError, MissingDependencyError, pip_install

if TYPE_CHECKING:
    import numpy.typing as npt

PLAIN = {"F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64"}
ROTATED = {"attn_q", "attn_k"}
"""Projections whose rows a converter may have put into another order."""
_DAMAGED = "download or convert the file again"


class GgufFile:
    """A GGUF file whose header is read; ``read`` touches only the bytes of its rows."""

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises CheckpointError, MissingDependencyError, OSError."""
        self._gguf = _import_gguf(path)
        self.path = path
        with path.open("rb") as stream:
            try:
                with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                    header = parse_header(raw)
                    self._stamp = Stamp.of(path.stat())
                self._entries = {entry.name: entry for entry in header.tensors}
                self._sizes = {e.name: self._checked_size(e, header) for e in header.tensors}
            except GgufError as error:
                raise CheckpointError(
                    f"{shown_path(path)} is not a sound GGUF file: {error}", _DAMAGED
                ) from error
        self.metadata = header.metadata
        self._data_start = header.data_start
        self._split = header.metadata.get("split.count", 1)
        if self._split not in (0, 1):
            raise CheckpointError(
                f"{shown_path(path)} is one of {shown(self._split)} parts of a split GGUF file",
                "merge the parts: llama-gguf-split --merge FIRST OUT.gguf",
            )
        self.architecture = str(header.metadata.get("general.architecture", ""))
        self.family: Family | None = family_of(self.architecture)
        self.headers = {
            entry.name: TensorHeader(entry.name, self._type_name(entry.kind), entry.shape)
            for entry in header.tensors
        }

    def decodes(self, dtype: str) -> bool:
        """Whether tensors of this type can become an array."""
        kind = self._gguf.GGMLQuantizationType.__members__.get(dtype)
        if dtype in PLAIN or kind is None:
            return dtype in PLAIN
        _, block_bytes = self._gguf.GGML_QUANT_SIZES[kind]
        try:
            self._gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except NotImplementedError:
            return False
        return True

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """A fresh array of the tensor, or of rows ``start:stop`` of its first axis.

        Quantised types become float32. Rows of queries and keys that the converter permuted are
        in the order of Hugging Face, and gains that it stored plus one are as they were.
        """
        entry, dtype = self._entries[name], self.headers[name].dtype
        if not self.decodes(dtype):
            raise CheckpointError(
                f"tensor {shown(name)} has dtype {shown(dtype)}, which cannot be read", _DAMAGED
            )
        count = entry.shape[0] if entry.shape else 1
        start, stop = (0, count) if rows is None else (rows.start, rows.stop)
        per_head = self._permuted_head(entry)
        if per_head:
            order = half_order(count, per_head)[start:stop]
            first = start // per_head * per_head
            last = -(-stop // per_head) * per_head
            values = self._stored_rows(entry, first, last)[order - first]
        else:
            values = self._stored_rows(entry, start, stop)
        if self.family is not None and self.family.gain_plus_one and name.endswith("norm.weight"):
            values = values - 1
        return values if entry.shape else values.reshape(())

    def _stored_rows(self, entry: TensorEntry, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows as they stand in the file, dequantised."""
        count = entry.shape[0] if entry.shape else 1
        if len(entry.shape) == 1 and self._type_name(entry.kind) not in PLAIN:
            # A line of blocks has no rows of its own.
            line = entry._replace(shape=(1, count))
            return self._stored_rows(line, 0, 1)[0, start:stop]
        row_bytes = self._sizes[entry.name] // count if count else 0
        begin = self._data_start + entry.offset + start * row_bytes
        raw = mapped_bytes(self.path, self._stamp, begin, (stop - start) * row_bytes)
        shape = (stop - start, *entry.shape[1:])
        dtype = self._type_name(entry.kind)
        if dtype in PLAIN:
            return dtypes.decode(raw, dtype, shape)
        if 0 in shape:
            return np.zeros(shape, np.float32)
        kind = self._gguf.GGMLQuantizationType(entry.kind)
        lines = raw.reshape(-1, raw.size // int(np.prod(shape[:-1], dtype=np.int64)))
        with np.errstate(all="ignore"):  # a bad scale gives NaN, which is reported where it is used
            made: npt.NDArray[Any] = self._gguf.dequantize(lines, kind)
        return np.array(made.reshape(shape), dtype=np.float32)

    def _permuted_head(self, entry: TensorEntry) -> int:
        """Rows of a head of queries or keys that were permuted; 0 for every other tensor."""
        part = entry.name.split(".")[-2] if entry.name.count(".") > 1 else ""
        if self.family is None or not self.family.permuted or part not in ROTATED:
            return 0
        stated = "attention.head_count"
        heads = self.number(stated)
        if part == "attn_k":
            heads = self.number(f"{stated}_kv") or heads
        rows = entry.shape[0] if entry.shape else 0
        if not heads or rows % heads or (rows // heads) % 2:
            raise CheckpointError(
                f"tensor {shown(entry.name)} has {rows} rows for {heads} heads; expected an even "
                "number for each",
                _DAMAGED,
            )
        return rows // heads

    def number(self, key: str) -> int | None:
        """A whole number of the architecture's metadata; None where there is none."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, list) and value and len(set(value)) == 1:
            value = value[0]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def unreadable(self) -> dict[str, str]:
        """Queries and keys whose order of rows is not known: name -> why."""
        if self.family is not None:
            return {}
        reason = (
            f"in GGUF files of the architecture {shown(self.architecture)} the order of the rows "
            "of queries and keys is not known here"
        )
        parts = (*ROTATED, "attn_qkv")
        return {name: reason for name in self.headers if any(f".{part}." in name for part in parts)}

    def _type_name(self, kind: int) -> str:
        try:
            return str(self._gguf.GGMLQuantizationType(kind).name)
        except ValueError:
            return f"GGML type {kind}"

    def _checked_size(self, entry: TensorEntry, header: GgufHeader) -> int:
        """Bytes of a tensor, which lie within the file. Raises GgufError."""
        try:
            kind = self._gguf.GGMLQuantizationType(entry.kind)
        except ValueError:
            return 0  # a type of the future: listed, and not read
        block, block_bytes = self._gguf.GGML_QUANT_SIZES[kind]
        width = entry.shape[-1] if entry.shape else 1
        if width % block:
            raise GgufError(f"tensor {shown(entry.name)} has rows of {width}, not of {block} each")
        size: int = math.prod(entry.shape) // block * block_bytes
        if header.data_start + entry.offset + size > self._stamp.size:
            raise GgufError(
                f"truncated: tensor {shown(entry.name)} ends at byte "
                f"{header.data_start + entry.offset + size}, the file has {self._stamp.size}"
            )
        return size


def half_order(rows: int, per_head: int) -> npt.NDArray[np.intp]:
    """Where the converted file keeps each row of the Hugging Face order.

    The converter puts row ``a D/2 + i`` of a head (a the half) at ``2 i + a``.

    >>> half_order(8, 4).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    order = np.arange(rows).reshape(-1, per_head // 2, 2).swapaxes(1, 2)
    return order.reshape(-1)


def _import_gguf(path: Path) -> ModuleType:
    try:
        import gguf
    except ImportError as error:
        raise MissingDependencyError(
            f"{shown_path(path)} is a GGUF file, and the package gguf cannot be imported: {error}",
            pip_install("gguf"),
        ) from error
    return gguf
