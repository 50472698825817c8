"""A torch pickle: only with permission, only as data, never by running what it names."""

from __future__ import annotations

import re
import warnings as python_warnings
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from pjdiag.checkpoint import dtypes
from pjdiag.checkpoint.mapped import Stamp
from pjdiag.checkpoint.source import TensorHeader
from pjdiag.checkpoint.text import listed, shown, shown_path
from pjdiag.checkpoint.unwrap import unwrap
from pjdiag.errors import CheckpointError, MissingDependencyError, pip_install

_SAVE_AGAIN = "save the weights alone: torch.save(model.state_dict(), FILE), or as safetensors"
_FORBIDDEN = re.compile(r"GLOBAL (\S+) (?:was not an allowed|whose module)")
_EXPANDED_LIMIT = 2**20


def check_archive(path: Path) -> bool:
    """Looks into the zip of a torch file without unpacking; True where it can be mapped.

    Raises CheckpointError where it is damaged, is no torch file, or would unpack to more bytes
    than it has: ``torch.save`` never compresses.
    """
    where = shown_path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise CheckpointError(
            f"{where} is a truncated or damaged torch file: {error}", "download or save it again"
        ) from error
    names = {Path(member.filename).name for member in members}
    if "constants.pkl" in names:
        raise CheckpointError(f"{where} is a TorchScript archive, not weights", _SAVE_AGAIN)
    if "data.pkl" not in names:
        raise CheckpointError(
            f"{where} is a zip archive but no torch file; it holds {listed(sorted(names))}",
            "pass a safetensors file, a torch file, or a model folder",
        )
    size, unpacked = path.stat().st_size, sum(member.file_size for member in members)
    if unpacked > size:
        raise CheckpointError(
            f"{where} has {size} bytes but would unpack to {unpacked}",
            "do not trust it; " + _SAVE_AGAIN,
        )
    return all(member.compress_type == zipfile.ZIP_STORED for member in members)


def import_torch(path: Path) -> ModuleType:
    """The torch package. Raises MissingDependencyError."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            f"{shown_path(path)} is a torch pickle, and torch cannot be imported: {error}",
            f"{pip_install('torch')}, or convert the file to safetensors elsewhere",
        ) from error
    return torch


def _load(torch: ModuleType, path: Path, mapped: bool) -> Any:
    try:
        with python_warnings.catch_warnings(), path.open("rb") as stream:
            python_warnings.simplefilter("ignore")
            # A path with this suffix would be handed to the safetensors package.
            mapped = mapped and not path.name.endswith(".safetensors")
            source = path if mapped else stream
            return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a hostile pickle can make torch raise anything
        where = shown_path(path)
        forbidden = _FORBIDDEN.search(str(error))
        if forbidden:
            raise CheckpointError(
                f"{where} asks for {shown(forbidden[1])}, which is code and not data; refused",
                _SAVE_AGAIN,
            ) from error
        raise CheckpointError(
            f"{where} cannot be read as torch weights ({type(error).__name__}: {_reason(error)})",
            "download it again, or " + _SAVE_AGAIN,
        ) from error


def _reason(error: Exception) -> str:
    text = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    return shown(text.split("\n", 1)[0])


class TorchFile:
    """A torch file's state dict, unwrapped; tensors become arrays when they are read."""

    def __init__(self, path: Path, *, mapped: bool) -> None:
        """Loads with ``weights_only=True``. Raises CheckpointError, MissingDependencyError."""
        self._torch = torch = import_torch(path)
        where = shown_path(path)
        self.path = path
        self._stamp = Stamp.of(path.stat()) if mapped else None
        found = unwrap(_load(torch, path, mapped), self._is_plain, where)
        self._state = found.state
        self.container = found.container
        self.warnings = found.warnings
        self.headers = {
            name: TensorHeader(name, _dtype(tensor), tuple(tensor.shape))
            for name, tensor in found.state.items()
        }
        limit = max(path.stat().st_size, _EXPANDED_LIMIT)
        for name, tensor in found.state.items():
            if tensor.numel() * tensor.element_size() > limit:
                raise CheckpointError(
                    f"{where}: tensor {shown(name)} of shape {tuple(tensor.shape)} is larger "
                    "than the file",
                    "do not trust it; " + _SAVE_AGAIN,
                )

    def _is_plain(self, value: Any) -> bool:
        torch = self._torch
        return (
            isinstance(value, torch.Tensor)
            and value.layout == torch.strided
            and value.device.type == "cpu"
        )

    def decodes(self, dtype: str) -> bool:
        """Whether tensors of this type can become an array."""
        return dtypes.is_readable(dtype)

    def read(self, name: str, rows: slice | None = None) -> npt.NDArray[Any]:
        """A fresh array of the tensor, or of rows ``start:stop`` of its first axis."""
        torch = self._torch
        if self._stamp is not None:
            self._stamp.check(self.path)  # a map over a file that became shorter would kill us
        tensor = self._state[name].detach()
        if rows is not None:
            tensor = tensor[rows]
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
            tensor = tensor.to(torch.float32)
        array: npt.NDArray[Any] = np.array(tensor.resolve_conj().resolve_neg().numpy())
        return array


def _dtype(tensor: Any) -> str:
    return dtypes.short_name(str(tensor.dtype).removeprefix("torch."))
