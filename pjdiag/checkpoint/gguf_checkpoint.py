"""A GGUF file as a checkpoint with Hugging Face names and configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pjdiag.checkpoint.gguf_config import UNNAMED_FACTORS, gguf_config
from pjdiag.checkpoint.gguf_file import GgufFile
from pjdiag.checkpoint.gguf_header import Omitted
from pjdiag.checkpoint.source import Checkpoint, Place, TensorHeader
from pjdiag.checkpoint.text import listed, shown, shown_path
from pjdiag.errors import CheckpointError


def gguf_checkpoint(path: Path, file: GgufFile) -> Checkpoint:
    """The checkpoint in ``file``; ``path`` is what was asked for, the file or its folder.

    Raises CheckpointError where two tensors get one name.
    """
    if not file.headers:
        raise CheckpointError(f"{shown_path(file.path)} holds no tensors", "pass one with weights")
    headers: dict[str, TensorHeader] = {}
    places: dict[str, Place] = {}
    for original, header in file.headers.items():
        name = original if file.family is None else file.family.plain_name(original)
        if name in places:
            raise CheckpointError(
                f"tensors {shown(places[name].original_name)} and {shown(original)} are both "
                f"{shown(name)}",
                "convert the file again",
            )
        headers[name] = replace(header, name=name)
        places[name] = Place(file, original)
    config = gguf_config(file)
    return Checkpoint(
        path=path,
        format="gguf",
        headers=headers,
        places=places,
        files=(file.path,),
        config=config,
        container={"gguf": _plain(file)},
        unreadable=file.unreadable(),
        warnings=_warnings(file, config),
    )


def _plain(file: GgufFile) -> dict[str, Any]:
    """Metadata, without the long arrays."""
    kept = {key: v for key, v in file.metadata.items() if not isinstance(v, Omitted)}
    return {key: v for key, v in kept.items() if not key.startswith("tokenizer.")}


def _warnings(file: GgufFile, config: dict[str, Any]) -> tuple[str, ...]:
    found = []
    unread = [name for name, header in file.headers.items() if not file.decodes(header.dtype)]
    if unread:
        kinds = listed(sorted({file.headers[name].dtype for name in unread}))
        found.append(f"tensors of dtype {kinds} cannot be read: {listed(unread)}")
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and scaling["rope_type"] == UNNAMED_FACTORS:
        found.append("rope_freqs.weight divides the frequencies by no rule that is known here")
    return tuple(found)
