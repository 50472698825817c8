"""The small trained checkpoints that ship with pjdiag."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pjdiag.arguments import checked
from pjdiag.errors import DataError

DEFAULT_SAMPLE = "language_full"


@checked
def sample(name: str = DEFAULT_SAMPLE) -> Path:
    """Path of a shipped sample's ``model.safetensors``.

    Raises DataError for a sample that is not shipped.

    >>> sample().name
    'model.safetensors'
    """
    return _shipped(name, "model.safetensors")


def held_out_text(name: str = DEFAULT_SAMPLE) -> Path:
    """Path of a text that a shipped sample was not trained on.

    Raises DataError for a sample that is not shipped.

    >>> held_out_text().name
    'heldout.txt'
    """
    return _shipped(name, "heldout.txt")


def _shipped(name: str, file: str) -> Path:
    root = Path(str(files("pjdiag_samples")))
    path = root / name / file
    if not path.is_file():
        found = sorted(each.parent.name for each in root.glob("*/model.safetensors"))
        shipped = ", ".join(found)
        raise DataError(f"no shipped sample {name!r}", f"the samples are {shipped or 'missing'}")
    return path
