"""``config.json`` as it stands; nothing is ever imported from a checkpoint's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjdiag.checkpoint.detect import is_lfs_pointer, lfs_pointer_error
from pjdiag.checkpoint.strict_json import JsonError, parse_object
from pjdiag.checkpoint.text import shown_path
from pjdiag.errors import CheckpointError

MAX_CONFIG_BYTES = 10 * 2**20
MAX_INDEX_BYTES = 32 * 2**20
_BOM = b"\xef\xbb\xbf"


def read_object(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The JSON object in a file of at most ``limit`` bytes; a byte-order mark is allowed.

    NaN and infinities are accepted, as published configs hold them. Raises CheckpointError.
    """
    where = shown_path(path)
    if not path.is_file():
        raise CheckpointError(f"{where} is not a regular file", "replace it by the JSON file")
    with path.open("rb") as stream:
        raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise CheckpointError(
            f"{where} is larger than {limit} bytes", "check that it is the right file"
        )
    if is_lfs_pointer(raw):
        raise lfs_pointer_error(path)
    try:
        return parse_object(raw.removeprefix(_BOM))
    except JsonError as error:
        raise CheckpointError(
            f"{where} is not a usable JSON file: {error}", "repair it or download it again"
        ) from error
