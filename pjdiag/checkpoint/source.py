"""A checkpoint in memory: names, shapes, dtypes, config; tensors are read when asked for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pjdiag.checkpoint.dtypes import summary
from pjdiag.checkpoint.memory import require_memory
from pjdiag.checkpoint.text import listed, near, shown, shown_path
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    import numpy.typing as npt

DIGEST_LIMIT = 256 * 2**20
"""Bytes up to which the digest covers every byte of the files."""


@dataclass(frozen=True)
class TensorHeader:
    """What is known of a tensor before it is read."""

    name: str
    dtype: str
    """Safetensors name: F32, BF16, F16, F8_E4M3, I64, BOOL ...; in GGUF also Q4_K, Q8_0 ..."""
    shape: tuple[int, ...]


class TensorStore(Protocol):
    """One file of tensors, under the names the file uses."""

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        """Headers of all tensors in the file."""

    def decodes(self, dtype: str) -> bool:
        """Whether tensors of this type can become an array."""

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """A fresh array of the tensor or of some of its first-axis rows."""


class Place(NamedTuple):
    """Where a tensor is kept: the file's store, and its name there."""

    store: TensorStore
    original_name: str


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose headers are read and whose tensors are not yet."""

    path: Path
    """The file or the folder that was asked for."""
    format: str
    """``safetensors``, ``folder``, ``torch`` or ``gguf``."""
    headers: Mapping[str, TensorHeader]
    """By name, after wrapper segments were dropped; in the order of the file."""
    places: Mapping[str, Place] = field(repr=False)
    files: tuple[Path, ...]
    """Every file that was read: weights, index, config."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """``config.json``, parsed; empty where there is none."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """``__metadata__`` of the safetensors file; empty where there is none."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Plain values that stood beside the state dict of a torch file, or in a GGUF header."""
    unreadable: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Tensors that are stored in a form without plain values: name -> why."""
    warnings: tuple[str, ...] = ()

    @property
    def original_names(self) -> dict[str, str]:
        """Name as used here -> name in the file."""
        return {name: place.original_name for name, place in self.places.items()}

    def read(self, name: str) -> npt.NDArray[Any]:
        """The tensor as a fresh array of its header's shape.

        F16, BF16, F8 and quantised types become float32, scales applied; F32, F64, integers and
        booleans stay as they are. Raises CheckpointError for an unknown name, for a tensor with an
        ``unreadable_reason``, and for one that needs more memory than there is.
        """
        header = self._readable(name)
        require_memory(name, header.shape)
        place = self.places[name]
        return place.store.read(place.original_name)

    def read_rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows ``start .. stop - 1`` of the first axis; only their bytes are read.

        Types as in ``read``. Raises CheckpointError also for rows that do not exist.
        """
        header = self._readable(name)
        if not header.shape:
            raise CheckpointError(
                f"tensor {shown(name)} is a scalar and has no rows", "read it whole"
            )
        if not 0 <= start <= stop <= header.shape[0]:
            raise CheckpointError(
                f"rows {start}:{stop} asked of tensor {shown(name)}, which has {header.shape[0]}",
                f"ask for rows within 0:{header.shape[0]}",
            )
        require_memory(name, (stop - start, *header.shape[1:]))
        place = self.places[name]
        return place.store.read(place.original_name, slice(start, stop))

    def unreadable_reason(self, name: str) -> str | None:
        """Why ``name`` cannot be read as numbers, in words; None where it can.

        Packed integers and FP8 without scales have no statistics. The name of a weight that is
        stored packed under other names (``qweight``) has its reason too.
        """
        if name in self.unreadable:
            return self.unreadable[name]
        header, place = self.headers.get(name), self.places.get(name)
        if header is None or place is None or place.store.decodes(header.dtype):
            return None
        return f"tensor {shown(name)} has dtype {shown(header.dtype)}, which cannot be read"

    def _readable(self, name: str) -> TensorHeader:
        reason = self.unreadable_reason(name)
        if reason is not None:
            raise CheckpointError(
                reason, "save it as F32, F16 or BF16 with the library that wrote it"
            )
        header = self.headers.get(name)
        if header is None:
            close = near(name, self.headers)
            hint = (
                f"check the name; near it: {listed(close)}"
                if close
                else f"check the name; there are: {listed(self.headers)}"
            )
            raise CheckpointError(f"{shown_path(self.path)} has no tensor {shown(name)}", hint)
        return header

    def dtype(self) -> str:
        """The floating types of the tensors, such as ``float32`` or ``bfloat16+float32``."""
        return summary(header.dtype for header in self.headers.values())

    def digest(self) -> str:
        """``sha256:<hex>`` of the file; of a list of names and digests where there are several.

        Above 256 MiB in all ``sha256-header:<hex>``, which covers the tensor headers, the config
        and the file sizes. Raises CheckpointError where a file cannot be read any more.
        """
        try:
            sizes = [path.stat().st_size for path in self.files]
            if sum(sizes) > DIGEST_LIMIT:
                return f"sha256-header:{self._header_digest(sizes)}"
            hashes = [_file_digest(path) for path in self.files]
        except OSError as error:
            raise CheckpointError(
                f"{shown_path(self.path)} cannot be read: {error.strerror or error}",
                "check that it is still there",
            ) from error
        if len(hashes) == 1:
            return f"sha256:{hashes[0]}"
        names = [path.name for path in self.files]
        lines = sorted(f"{shown(n)} {h}\n" for n, h in zip(names, hashes, strict=True))
        return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"

    def _header_digest(self, sizes: list[int]) -> str:
        tensors = sorted((h.name, h.dtype, h.shape) for h in self.headers.values())
        names = [path.name for path in self.files]
        files = sorted(zip(names, sizes, strict=True))
        content = [tensors, files, dict(self.config), dict(self.metadata)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _file_digest(path: os.PathLike[str]) -> str:
    with open(path, "rb") as stream:  # noqa: PTH123 - PathLike
        return hashlib.file_digest(stream, "sha256").hexdigest()


def own_source(source: str, checkpoint: Checkpoint) -> str:
    """``source``, where a value comes from, in the terms of the file: of a GGUF file its key."""
    if checkpoint.format != "gguf":
        return source
    from pjdiag.checkpoint import gguf_sources  # other files need none of it

    return gguf_sources.own_source(source, checkpoint)
