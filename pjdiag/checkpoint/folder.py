"""A model folder: which of its files are the weights, and whether its shards are complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from pjdiag.checkpoint.config import MAX_INDEX_BYTES, read_object
from pjdiag.checkpoint.links import confined
from pjdiag.checkpoint.lora import ADAPTER_CONFIG_FILE, adapter_error
from pjdiag.checkpoint.text import listed, shown, shown_path
from pjdiag.errors import CheckpointError

SAFETENSORS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"
CONFIG_FILE = "config.json"
_CANONICAL = (
    SAFETENSORS_FILE,
    SAFETENSORS_FILE + ".index.json",
    TORCH_FILE,
    TORCH_FILE + ".index.json",
)
_TORCH_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".ckpt"})
_WEIGHTS = _TORCH_SUFFIXES | {".safetensors", ".gguf"}
MOST_FOLDERS = 1000
"""Entries of a folder that are looked at for a hint."""
LONGEST_NAME = 255
"""Characters of a file's name; no usual file system has longer ones."""
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")


class Weights(NamedTuple):
    """The weights files of a folder."""

    files: tuple[Path, ...]
    index_file: Path | None = None
    weight_map: Mapping[str, str] | None = None
    """Tensor name -> file name, where there is an index."""
    warnings: tuple[str, ...] = ()


def find_weights(folder: Path) -> Weights:
    """The weights in ``folder``: safetensors before torch, the usual names before others.

    Raises CheckpointError where there are none, or several and no usual name among them, and for
    a link that leaves the folder.
    """
    names = sorted(entry.name for entry in folder.iterdir() if not entry.is_dir())
    found = [name for name in _CANONICAL if name in names]
    if found:
        chosen, others = found[0], found[1:]
    else:
        chosen, others = _only_candidate(folder, names), []
    warnings = [f"{chosen} is read; beside it stand {listed(others)}"] if others else []
    if not chosen.endswith(".index.json"):
        return Weights((confined(folder, folder / chosen),), warnings=tuple(warnings))
    weight_map = _weight_map(confined(folder, folder / chosen))
    shards = sorted(set(weight_map.values()))
    missing = [name for name in shards if not (folder / name).exists()]
    if missing:
        raise CheckpointError(
            f"{shown_path(folder)} lacks {len(missing)} of the {len(shards)} files of "
            f"{chosen}: {listed(missing)}",
            "download them too",
        )
    suffix = PurePosixPath(shards[0]).suffix
    stray = [
        name
        for name in names
        if _SHARD.search(name) and name.endswith(suffix) and name not in shards
    ]
    if stray:
        warnings.append(f"not in {chosen}, not read: {listed(stray)}")
    files = tuple(confined(folder, folder / name) for name in shards)
    return Weights(files, folder / chosen, weight_map, tuple(warnings))


def _only_candidate(folder: Path, names: list[str]) -> str:
    where = shown_path(folder)
    if ADAPTER_CONFIG_FILE in names:
        raise adapter_error(folder, folder)
    safetensors = [name for name in names if name.endswith(".safetensors")]
    gguf = [name for name in names if name.endswith(".gguf")]
    torch = [name for name in names if PurePosixPath(name).suffix in _TORCH_SUFFIXES]
    candidates = safetensors or gguf or torch
    if any(_SHARD.search(name) for name in candidates):
        raise CheckpointError(
            f"{where} holds shards ({listed(candidates, 2)}) but no index file",
            f"download {_CANONICAL[1] if safetensors else _CANONICAL[3]} too"
            if candidates is not gguf
            else "merge the parts: llama-gguf-split --merge FIRST OUT.gguf",
        )
    if not candidates:
        inside = _folders_with_weights(folder)
        raise CheckpointError(
            f"{where} holds no weights; its files are: {listed(names) or 'none'}"
            + (f"; there are weights in its folders {listed(inside)}" if inside else ""),
            f"pass {shown_path(folder / inside[0])}"
            + (", or another one of them" if len(inside) > 1 else "")
            if inside
            else f"pass a folder with {SAFETENSORS_FILE}, or a weights file",
        )
    if len(candidates) > 1:
        raise CheckpointError(
            f"{where} holds {len(candidates)} weights files and none is {SAFETENSORS_FILE}: "
            f"{listed(candidates)}",
            "pass one of them",
        )
    return candidates[0]


def _folders_with_weights(folder: Path) -> list[str]:
    """Names of the folders one level down that hold a weights file."""
    found = []
    for inner in sorted(islice(folder.iterdir(), MOST_FOLDERS)):
        try:
            names = [entry.name for entry in islice(inner.iterdir(), MOST_FOLDERS)]
        except OSError:  # a file, or a folder that is closed to us
            continue
        if any(PurePosixPath(name).suffix in _WEIGHTS for name in names):
            found.append(inner.name)
    return found


def _weight_map(index: Path) -> dict[str, str]:
    where = shown_path(index)
    weight_map = read_object(index, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{where} has no weight_map", "download it again")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_inside(name):
            raise CheckpointError(
                f"{where} places tensor {shown(tensor)} in {shown(name)}, "
                "which is not a file of the folder",
                "do not trust it; download it again",
            )
    return weight_map


def _is_inside(name: str) -> bool:
    """True for a bare file name, on every system."""
    path = PureWindowsPath(name)
    fits = 0 < len(name) <= LONGEST_NAME and name != ".."
    return fits and path.name == name and name.isprintable()


def check_shards(weights: Weights, names: Mapping[Path, Mapping[str, object]]) -> None:
    """Index -> file -> tensor, and back: every tensor is where the index says, and no other.

    ``names[file]`` are the tensors of a file. Raises CheckpointError.
    """
    if weights.weight_map is None or weights.index_file is None:
        return
    where = shown_path(weights.index_file)
    by_name = {path.name: tensors for path, tensors in names.items()}
    absent = [t for t, f in weights.weight_map.items() if t not in by_name[f]]
    if absent:
        raise CheckpointError(
            f"{where} lists tensors that their files do not hold: {listed(absent)}",
            "download the shards and the index again",
        )
    for path, tensors in names.items():
        unlisted = [t for t in tensors if weights.weight_map.get(t) != path.name]
        if unlisted:
            raise CheckpointError(
                f"{shown_path(path)} holds tensors that {weights.index_file.name} does not place "
                f"there: {listed(unlisted)}",
                "download the shards and the index again",
            )
