"""Small checkpoint files, written by hand so that they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pjdiag.checkpoint import Checkpoint, load
from pjdiag.errors import CheckpointError

DATA = Path(__file__).parent.parent / "data"
LFS_POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 12345\n"
)


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    """One tensor of a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def framed(header: bytes, data: bytes = b"") -> bytes:
    """A safetensors file of this header and data."""
    return len(header).to_bytes(8, "little") + header + data


def write(path: Path, header: dict[str, Any] | bytes, data: bytes = b"") -> Path:
    """Writes a safetensors file and returns its path."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(framed(raw, data))
    return path


def write_json(path: Path, value: Any) -> Path:
    """Writes a JSON file and returns its path."""
    path.write_text(json.dumps(value))
    return path


def write_zeros(path: Path, *names: str) -> Path:
    """A safetensors file with one F32 scalar of each name."""
    header = {name: entry("F32", [], 4 * i, 4 * i + 4) for i, name in enumerate(names)}
    return write(path, header, bytes(4 * len(names)))


def attempt(path: Path, *, allow_pickle: bool = False) -> Checkpoint | CheckpointError:
    """The checkpoint, or the error that says why there is none; nothing else may be raised."""
    try:
        return load(path, allow_pickle=allow_pickle)
    except CheckpointError as error:
        return error
