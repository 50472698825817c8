"""Paths as services name them: from the root of the sources."""

from __future__ import annotations

import os
from pathlib import Path

WORKSPACE = "GITHUB_WORKSPACE"


def source_root(start: Path) -> Path:
    """The root of the sources: the service's workspace, else the repository around ``start``.

    Where there is neither, ``start`` itself.
    """
    workspace = os.environ.get(WORKSPACE)
    if workspace:
        return Path(workspace).resolve()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start


def from_root(path: str | os.PathLike[str]) -> str:
    """``path`` from the root of the sources, with forward slashes; whole where it lies outside."""
    here = Path.cwd()
    whole = (here / path).resolve()
    root = source_root(here)
    return (whole.relative_to(root) if whole.is_relative_to(root) else whole).as_posix()
