"""What a file is, by its first bytes and never by its suffix."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pjdiag.checkpoint.safetensors_file import LENGTH_BYTES, MAX_HEADER_BYTES
from pjdiag.checkpoint.text import shown, shown_path
from pjdiag.errors import CheckpointError

HEAD_BYTES = 4096
_ZIP = b"PK\x03\x04"
_LFS = b"version https://git-lfs.github.com/spec/"
_GGUF = b"GGUF"
_PASS = "pass a safetensors, GGUF or torch file, or a model folder"  # noqa: S105 - no password
_FOREIGN = {
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip archive",
    b"\x93NUMPY": "a NumPy array file",
}


class Kind(StrEnum):
    """A readable kind of weights file."""

    SAFETENSORS = "safetensors"
    TORCH_ZIP = "torch zip"
    TORCH_PICKLE = "torch pickle"
    GGUF = "gguf"


def is_lfs_pointer(head: bytes) -> bool:
    """True for the small text file that stands for a file kept by Git LFS."""
    return head.startswith(_LFS)


def lfs_pointer_error(path: Path) -> CheckpointError:
    """The error for a Git LFS pointer."""
    return CheckpointError(
        f"{shown_path(path)} is a Git LFS pointer, not the file itself",
        "run `git lfs pull` in its repository",
    )


def identify(path: Path) -> Kind:
    """The kind of the weights file at ``path``. Raises CheckpointError for everything else."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    where = shown_path(path)
    if not head:
        raise CheckpointError(f"{where} is empty", "download or save it again")
    if is_lfs_pointer(head):
        raise lfs_pointer_error(path)
    # First, because a header of 640 bytes begins like a pickle.
    if head[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{" and _length(head) <= MAX_HEADER_BYTES:
        return Kind.SAFETENSORS
    if head.startswith(_GGUF):
        return Kind.GGUF
    if head.startswith(_ZIP):
        return Kind.TORCH_ZIP
    if head[0] == 0x80 and len(head) > 1 and 2 <= head[1] <= 5:
        return Kind.TORCH_PICKLE
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise CheckpointError(f"{where} is {name}, which is not read", _PASS)
    text = _as_text(head)
    if text is not None:
        if text.lstrip().startswith("{"):
            raise CheckpointError(
                f"{where} is JSON, not weights", "pass the folder that it describes"
            )
        raise CheckpointError(f"{where} is a text file; it begins {shown(text[:40])}", _PASS)
    if path.suffix == ".safetensors":
        return Kind.SAFETENSORS  # its reader says what is wrong with the header
    raise CheckpointError(f"{where} is of no known format; it begins {head[:8]!r}", _PASS)


def _length(head: bytes) -> int:
    return int.from_bytes(head[:LENGTH_BYTES], "little")


def _as_text(head: bytes) -> str | None:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) < HEAD_BYTES or error.start < HEAD_BYTES - 3:
            return None
        text = head[: error.start].decode("utf-8")  # the head ends within a character
    readable = all(char.isprintable() or char in "\t\n\r\f\ufeff" for char in text)
    return text if readable else None
