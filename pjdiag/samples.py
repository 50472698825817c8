"""The small trained checkpoints that ship with pjdiag."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path, PurePath

from pjdiag.arguments import checked
from pjdiag.errors import DataError

DEFAULT_SAMPLE = "language_full"
FOLDER = "sample_checkpoints"
"""Where the samples lie in a clone."""
WEIGHTS = "model.safetensors"
HELD_OUT = "heldout.txt"


@checked
def sample(name: str = DEFAULT_SAMPLE) -> Path:
    """Path of a shipped sample's weights.

    Of a sample that is several checkpoints one is named as ``folder/file``. Raises DataError for
    a sample that is not shipped, and for the folder of several.

    >>> sample().name, sample("adaptive_teachers/second_jet").name
    ('model.safetensors', 'second_jet.safetensors')
    """
    shipped = _shipped()
    own = _own_name(name)
    if own in shipped:
        return shipped[own]
    if several := _within(own, shipped):
        raise DataError(
            f"the sample {name!r} is a folder of {len(several)} checkpoints",
            f"name one: {', '.join(several)}",
        )
    raise _unknown(name, shipped)


def held_out_text(name: str = DEFAULT_SAMPLE) -> Path:
    """Path of a text that a shipped sample was not trained on.

    Raises DataError for a sample that is not shipped, or ships without one.

    >>> held_out_text().name
    'heldout.txt'
    """
    path = sample(name).with_name(HELD_OUT)
    if not path.is_file():
        raise DataError(
            f"the sample {name!r} ships without a held-out text", f"take that of {DEFAULT_SAMPLE}"
        )
    return path


def instead_of(path: PurePath) -> Path | None:
    """What to pass for a path that does not exist but names a sample; None where it names none.

    A sample is named alone or behind ``sample_checkpoints``. Where it is several checkpoints the
    first of them is passed.

    >>> [found and found.name for found in map(instead_of, map(PurePath, ("language_rope", "x")))]
    ['model.safetensors', None]
    """
    try:
        shipped = _shipped()
    except ModuleNotFoundError:  # pjdiag without its samples
        return None
    name = meant_by(path)
    named = name if name in shipped else next(iter(_within(name, shipped)), None)
    if named is None:
        return None
    here = Path.cwd()
    found = shipped[named]
    return found.relative_to(here) if found.is_relative_to(here) else found


def meant_by(path: PurePath) -> str:
    """The name of the sample that a path would be the path of, whether it is shipped or not.

    >>> meant_by(PurePath("sample_checkpoints/language-ful/model.safetensors"))
    'language_ful'
    """
    parts = path.parts[path.parts.index(FOLDER) + 1 :] if FOLDER in path.parts else path.parts
    return _own_name("/".join(parts)).removesuffix(f"/{WEIGHTS}").removesuffix(".safetensors")


def sample_names() -> tuple[str, ...]:
    """Names that ``sample`` takes; none where pjdiag is installed without its samples."""
    try:
        return tuple(_shipped())
    except ModuleNotFoundError:
        return ()


def _shipped() -> dict[str, Path]:
    """Weights by name: that of the folder, or of folder and file where it holds several."""
    found = sorted(Path(str(files("pjdiag_samples"))).glob("*/*.safetensors"))
    return {
        path.parent.name if path.name == WEIGHTS else f"{path.parent.name}/{path.stem}": path
        for path in found
    }


def _within(folder: str, shipped: dict[str, Path]) -> list[str]:
    """The names of the checkpoints of one folder."""
    return [name for name in shipped if name.startswith(f"{folder}/")]


def _unknown(name: str, shipped: dict[str, Path]) -> DataError:
    names = dict.fromkeys(each.partition("/")[0] for each in shipped)
    return DataError(
        f"no shipped sample {name!r}", f"the samples are {', '.join(names) or 'missing'}"
    )


def _own_name(name: str) -> str:
    """As its folder is called; ``pjdiag train --sample`` has hyphens."""
    return name.replace("-", "_")
