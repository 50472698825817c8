"""Folders written whole or not at all, and never over something else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pjdiag.errors import OutputError, UsageError


def require_free(folder: Path) -> None:
    """Raises UsageError where ``folder`` is a file, or holds anything."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is not a folder", "choose another one")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "choose another folder")


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary folder beside ``folder``, then put it in place.

    Raises UsageError where ``folder`` is not free, OutputError where it cannot be written;
    nothing is left behind.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     write_folder(Path(place, "out"), lambda folder: (folder / "a").touch())
    ...     sorted(path.name for path in Path(place).rglob("*"))
    ['a', 'out']
    """
    require_free(folder)
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        temporary.chmod(0o755)
        write(temporary)
        for path in temporary.iterdir():
            path.chmod(0o644)  # as any new file; some writers leave theirs closed to others
        if folder.is_dir():
            folder.rmdir()  # empty; some systems rename onto nothing only
        temporary.rename(folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{folder} cannot be written: {reason}", "check the folder") from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def save_pretrained(folder: Path, *parts: Any) -> None:
    """Write a Hugging Face model and its tokenizer into ``folder``."""
    from pjdiag.models.huggingface.loading import quiet

    with quiet():
        for part in parts:
            part.save_pretrained(folder)
