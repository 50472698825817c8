"""Native checkpoints: written whole or not at all, and read back as models."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from pjdiag.checkpoint.native import METADATA_KEY, load_model
from pjdiag.errors import OutputError

if TYPE_CHECKING:
    from pjdiag.models.causal_lm import CausalLM

__all__ = ["load_model", "save_model", "write_atomically"]


def save_model(model: CausalLM, path: Path, recipe: Mapping[str, Any] | None = None) -> None:
    """Write a native checkpoint: one safetensors file with the metadata key ``pjdiag``.

    Raises OutputError where the file cannot be written; an older file is then left as it was.
    """
    from safetensors.torch import save_file

    metadata = {METADATA_KEY: json.dumps(model.config.to_metadata(recipe), sort_keys=True)}
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in place.

    Raises OutputError where that fails; nothing is left behind.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{path} cannot be written: {reason}", "check the folder") from error
