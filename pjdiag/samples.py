"""The small trained checkpoints that ship with pjdiag."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pjdiag.errors import DataError

DEFAULT_SAMPLE = "language_full"


def sample(name: str = DEFAULT_SAMPLE) -> Path:
    """Path of a shipped sample's ``model.safetensors``.

    Raises DataError for a sample that is not shipped.

    >>> sample().name
    'model.safetensors'
    """
    root = Path(str(files("pjdiag_samples")))
    path = root / name / "model.safetensors"
    if not path.is_file():
        shipped = ", ".join(sorted(folder.parent.name for folder in root.glob("*/*.safetensors")))
        raise DataError(f"no shipped sample {name!r}", f"the samples are {shipped or 'missing'}")
    return path
