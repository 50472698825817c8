"""Files as tokens: arrays of ids with their padding, and texts to be tokenized."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pjdiag.errors import DataError, UsageError

Data: TypeAlias = str | os.PathLike[str] | ArrayLike
"""A file, or token ids in memory."""
PADDING = -1
"""Stands for padding in an array of token ids."""


@dataclass(frozen=True)
class TokenData:
    """A file as tokens."""

    ids: NDArray[np.int64]
    """``[N]`` of one text, or ``[N, T]`` of N sequences; 0 on padding."""
    path: str
    digest: str
    """SHA-256 of the file, or of the bytes of an array."""
    present: NDArray[np.bool_] | None = None
    """``[N, T]``, False on padding; None: no padding."""


def read_ids(path: str | os.PathLike[str], vocabulary: int) -> TokenData:
    """The token ids of a ``.npy`` file. Raises DataError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/ids.npy", [[4, 2, -1], [1, 0, 3]])
    ...     data = read_ids(f"{folder}/ids.npy", 5)
    >>> data.ids.shape, data.present.sum(axis=1).tolist()
    ((2, 3), [2, 3])
    """
    digest = file_digest(path)
    if not Path(path).stat().st_size:
        raise DataError(f"{path} is empty: 0 bytes", "write the token ids with numpy.save")
    try:
        found = np.load(path, allow_pickle=False)
    except Exception as error:  # a hostile header can make numpy raise anything
        raise DataError(
            f"{path} holds no array of numbers", "write it with numpy.save, without pickle"
        ) from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise DataError(f"{path} holds an archive of arrays", "save the token ids as one array")
    return checked_ids(found, vocabulary, str(path), digest)


def array_ids(values: ArrayLike, vocabulary: int) -> TokenData:
    """Token ids that are in memory. Raises DataError, and UsageError for no array at all.

    >>> array_ids([[4, 2, -1], [1, 0, 3]], 5).ids.tolist()
    [[4, 2, 0], [1, 0, 3]]
    """
    try:
        found = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"the token ids make no array: {error}", "pass integers of shape [N] or [N, T]"
        ) from error
    if found.dtype == object and not found.ndim:
        raise UsageError(
            f"data is {type(values).__name__}; expected a path, or token ids",
            "pass a file, or integers of shape [N] or [N, T]",
        )
    digest = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
    return checked_ids(found, vocabulary, "the array of token ids", f"sha256:{digest}")


def checked_ids(found: NDArray[Any], vocabulary: int, name: str, digest: str) -> TokenData:
    """An array of token ids, -1 on padding. Raises DataError where it holds anything else."""
    if found.size and (found.dtype.kind not in "iu" or found.ndim not in (1, 2)):
        raise DataError(
            f"{name} holds {found.dtype} {list(found.shape)}; expected integers of shape [N] or "
            "[N, T]",
            "pass the token ids as one array",
        )
    if not found.size:
        raise DataError(
            f"{name} is empty: an array of shape {list(found.shape)} without a token id",
            "write the ids of a text into it",
        )
    present = found != PADDING if found.dtype.kind == "i" else np.ones(found.shape, dtype=bool)
    wrong = present & ((found < 0) | (found >= vocabulary))
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise DataError(
            f"{name} holds the token id {int(found[at])} at {list(at)}; the model knows 0 to "
            f"{vocabulary - 1}, and {PADDING} is padding",
            "use the tokenizer of this checkpoint",
        )
    if not present.all() and (found.ndim == 1 or not present.any(axis=1).all()):
        raise DataError(
            f"{name} has padding where a text is expected",
            "pad sequences of an array [N, T], each with a token at least",
        )
    ids = np.where(present, found, 0).astype(np.int64)
    return TokenData(ids, name, digest, None if present.all() else present)


def read_text(path: str | os.PathLike[str]) -> tuple[str, str]:
    """A file's text and digest. Raises DataError where it cannot be read or is not UTF-8."""
    digest = file_digest(path)
    try:
        return Path(path).read_text(encoding="utf-8"), digest
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start})",
            "convert it, or pass token ids as .npy",
        ) from error


def file_digest(path: str | os.PathLike[str]) -> str:
    """``sha256:<hex>`` of a file's bytes. Raises DataError where it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"{path} cannot be read: {reason}", "pass a text or .npy file") from error
