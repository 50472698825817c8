"""``load``: a path becomes a checkpoint whose tensors are read when asked for."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pjdiag.arguments import checked, require_path
from pjdiag.checkpoint import detect
from pjdiag.checkpoint.config import read_object
from pjdiag.checkpoint.detect import Kind
from pjdiag.checkpoint.folder import (
    CONFIG_FILE,
    SAFETENSORS_FILE,
    TORCH_FILE,
    Weights,
    check_shards,
    find_weights,
)
from pjdiag.checkpoint.links import confined
from pjdiag.checkpoint.lora import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_FILES,
    adapter_error,
    is_adapter,
    merged,
)
from pjdiag.checkpoint.quantised import find_quantised
from pjdiag.checkpoint.safetensors_file import SafetensorsFile
from pjdiag.checkpoint.source import Checkpoint, Place, TensorHeader
from pjdiag.checkpoint.text import listed, near, shown_path
from pjdiag.checkpoint.unwrap import plain_names
from pjdiag.errors import CheckpointError

if TYPE_CHECKING:
    from pjdiag.checkpoint.torch_file import TorchFile

Store: TypeAlias = "SafetensorsFile | TorchFile"


@checked
def load(
    path: str | os.PathLike[str],
    *,
    allow_pickle: bool = False,
    merge_base: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """The checkpoint at ``path``: a safetensors, GGUF or torch file, or a model folder.

    Only headers and config are read. A torch pickle is opened only with ``allow_pickle``, and
    then with ``weights_only=True``. With ``merge_base``, a model, ``path`` is a LoRA adapter of
    it, and its weights are read as ``W0 + (alpha/r) B A``. Raises CheckpointError,
    MissingDependencyError.

    >>> import tempfile
    >>> from pathlib import Path
    >>> header = b'{"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "tiny.safetensors")
    ...     _ = file.write_bytes(len(header).to_bytes(8, "little") + header + bytes([0, 60] * 2))
    ...     load(file).read("w").tolist()
    [1.0, 1.0]
    """
    require_path(path, "the checkpoint", ", or a Checkpoint")
    where = Path(path)
    try:
        if merge_base is not None:
            return _load_adapter(where, load(merge_base, allow_pickle=allow_pickle), allow_pickle)
        if _is_folder(where):
            return _load_folder(where, allow_pickle)
        return _load_file(where, allow_pickle)
    except FileNotFoundError as error:
        raise _missing(Path(error.filename or where)) from error
    except OSError as error:
        raise CheckpointError(
            f"{shown_path(error.filename or path)} cannot be read: {error.strerror or error}",
            "check the path and its permissions",
        ) from error


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except ValueError as error:  # a path with a null character
        raise CheckpointError(f"{shown_path(path)} is no path: {error}", "check it") from error


def _missing(path: Path) -> CheckpointError:
    if path.is_symlink():
        return CheckpointError(
            f"{shown_path(path)} is a link to a file that does not exist", "download the file"
        )
    from pjdiag.samples import instead_of, meant_by, sample_names  # needed here only

    missing = f"{shown_path(path)} does not exist"
    if (shipped := instead_of(path)) is not None:
        others = "" if shipped.stem in ("model", path.stem) else ", or another file beside it"
        return CheckpointError(
            f"{missing}; it is the name of a sample", f"pass {shown_path(shipped)}{others}"
        )
    samples = near(meant_by(path), sample_names())
    hint = "check the path"
    if not path.parent.is_dir():
        missing += ", nor does its folder"
    elif close := _neighbours(path):
        hint += f"; near it: {listed(close)}"
    if samples and (nearest := instead_of(Path(samples[0]))) is not None:
        hint += f"; samples with such a name: {listed(samples)}, the first is {shown_path(nearest)}"
    return CheckpointError(missing, hint)


def _neighbours(path: Path) -> list[str]:
    """Names beside a missing path that look like its own."""
    try:
        return near(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:  # the folder may be closed to us; then there is nothing to suggest
        return []


def _load_file(path: Path, allow_pickle: bool) -> Checkpoint:
    # Only the usual names say that the config.json beside them is theirs.
    config = path.with_name(CONFIG_FILE) if path.name in (SAFETENSORS_FILE, TORCH_FILE) else None
    return _assemble(path, Weights((path,)), config, allow_pickle)


def _load_folder(folder: Path, allow_pickle: bool) -> Checkpoint:
    return _assemble(folder, find_weights(folder), folder / CONFIG_FILE, allow_pickle)


def _load_adapter(path: Path, base: Checkpoint, allow_pickle: bool) -> Checkpoint:
    is_folder = _is_folder(path)
    folder = path if is_folder else path.parent
    names = [name for name in ADAPTER_FILES if (folder / name).exists()]
    if is_folder and not names:
        raise CheckpointError(
            f"{shown_path(path)} holds no {ADAPTER_FILES[0]}", "pass the adapter's folder"
        )
    file = confined(folder, folder / names[0]) if is_folder else path
    adapter = _assemble(path, Weights((file,)), None, allow_pickle, adapter=True)
    return merged(base, adapter, read_object(confined(folder, folder / ADAPTER_CONFIG_FILE)))


def _kind(path: Path) -> Kind:
    if not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe would wait for ever.
        raise CheckpointError(f"{shown_path(path)} is not a regular file", "pass a weights file")
    return detect.identify(path)


def _open(path: Path, allow_pickle: bool) -> Store:
    kind = _kind(path)
    if kind == Kind.SAFETENSORS:
        return SafetensorsFile(path)
    if kind == Kind.GGUF:
        raise CheckpointError(f"{shown_path(path)} is a GGUF file among shards", "pass it alone")
    # Safetensors users need none of this.
    from pjdiag.checkpoint.torch_file import TorchFile, check_archive

    mapped = kind == Kind.TORCH_ZIP and check_archive(path)
    if not allow_pickle:
        raise CheckpointError(
            f"{shown_path(path)} is a torch pickle; it is not opened without permission",
            "pass --allow-pickle if you trust where it comes from",
        )
    return TorchFile(path, mapped=mapped)


def _assemble(
    path: Path,
    weights: Weights,
    config: Path | None,
    allow_pickle: bool,
    *,
    adapter: bool = False,
) -> Checkpoint:
    if len(weights.files) == 1 and _kind(weights.files[0]) == Kind.GGUF:
        from pjdiag.checkpoint.gguf_checkpoint import gguf_checkpoint
        from pjdiag.checkpoint.gguf_file import GgufFile

        return gguf_checkpoint(path, GgufFile(weights.files[0]))
    if config is not None and not os.path.lexists(config):
        config = None
    config_values = read_object(confined(config.parent, config)) if config is not None else {}
    stores = {file: _open(file, allow_pickle) for file in weights.files}
    check_shards(weights, {file: store.headers for file, store in stores.items()})
    places = {name: Place(store, name) for store in stores.values() for name in store.headers}
    if not places:
        raise CheckpointError(f"{shown_path(path)} holds no tensors", "pass a file with weights")
    names = plain_names(places)
    headers = {name: _renamed(places[original], name) for name, original in names.items()}
    placed = {name: places[original] for name, original in names.items()}
    quantised = find_quantised(headers, placed, config_values)
    if is_adapter(headers) and not adapter:
        raise adapter_error(path, weights.files[0].parent)
    metadata: dict[str, str] = {}
    container: dict[str, Any] = {}
    warnings = list(weights.warnings)
    for store in stores.values():
        if isinstance(store, SafetensorsFile):
            metadata |= store.metadata
        else:
            container |= store.container
            warnings += store.warnings
    unread = [
        name
        for name, header in headers.items()
        if not places[names[name]].store.decodes(header.dtype)
    ]
    if unread:
        kinds = listed(sorted({headers[name].dtype for name in unread}))
        warnings.append(f"tensors of dtype {kinds} cannot be read: {listed(unread)}")
    return Checkpoint(
        path=path,
        format=_format(path, stores),
        headers=headers | quantised.headers,
        places=placed | quantised.places,
        files=(*stores, *(file for file in (weights.index_file, config) if file is not None)),
        config=config_values,
        metadata=metadata,
        container=container,
        unreadable=quantised.unreadable,
        warnings=tuple(warnings),
    )


def _renamed(place: Place, name: str) -> TensorHeader:
    return replace(place.store.headers[place.original_name], name=name)


def _format(path: Path, stores: Mapping[Path, Store]) -> str:
    if path not in stores:
        return "folder"
    return "safetensors" if isinstance(stores[path], SafetensorsFile) else "torch"
