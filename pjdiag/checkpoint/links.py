"""Files of a folder may be links, as long as they stay in it, or in the cache that made it."""

from __future__ import annotations

import os
from pathlib import Path

from pjdiag.checkpoint.text import shown_path
from pjdiag.errors import CheckpointError

BLOBS, SNAPSHOTS = "blobs", "snapshots"
"""The Hugging Face cache: ``models--NAME/snapshots/REVISION/FILE`` is a link into ``blobs``."""


def confined(folder: Path, path: Path) -> Path:
    """``path``, a file of ``folder``.

    Raises CheckpointError where it is a link that leads to an existing file elsewhere: a folder
    of a stranger must not have the files of its reader read.

    >>> confined(Path("runs"), Path("runs/config.json")).name
    'config.json'
    """
    if not path.is_symlink():
        return path
    target, home = _real(path), _real(folder)
    if target.is_relative_to(home) or target.parent in _blobs(home) or not target.exists():
        return path
    raise CheckpointError(
        f"{shown_path(path)} is a link that leaves its folder; it leads to {shown_path(target)}",
        f"pass the folder that holds the files themselves, perhaps {shown_path(target.parent)}",
    )


def _blobs(home: Path) -> list[Path]:
    """The folder of the cache to which the links of a snapshot lead.

    It counts where it stands: where it is a link itself, it may lead anywhere.
    """
    return [above.parent / BLOBS for above in home.parents if above.name == SNAPSHOTS]


def _real(path: Path) -> Path:
    """Where the path leads; a link that leads to itself is left as it is."""
    return Path(os.path.realpath(path))
