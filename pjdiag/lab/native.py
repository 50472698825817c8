"""Native checkpoints: written whole or not at all, and read back as models."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjdiag.errors import CheckpointError, OutputError
from pjdiag.models.config import ModelConfig

if TYPE_CHECKING:
    from pjdiag.checkpoint import Checkpoint
    from pjdiag.models.causal_lm import CausalLM

METADATA_KEY = "pjdiag"


def save_model(model: CausalLM, path: Path, recipe: Mapping[str, Any] | None = None) -> None:
    """Write a native checkpoint: one safetensors file with the metadata key ``pjdiag``.

    Raises OutputError where the file cannot be written; an older file is then left as it was.
    """
    from safetensors.torch import save_file

    metadata = {METADATA_KEY: json.dumps(model.config.to_metadata(recipe), sort_keys=True)}
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def load_model(checkpoint: Checkpoint) -> CausalLM:
    """The model of a native or a PJ-RoPE research checkpoint, in evaluation mode.

    Raises CheckpointError where the checkpoint is of another format or does not fit its own
    configuration.
    """
    from pjdiag.models.causal_lm import CausalLM

    config = model_config(checkpoint)
    tensors = {name: checkpoint.read(name) for name in checkpoint.headers}
    return CausalLM.from_tensors(config, tensors)


def model_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration that a native or a PJ-RoPE research checkpoint states.

    Raises CheckpointError where it states none.
    """
    native = checkpoint.metadata.get(METADATA_KEY)
    if native is not None:
        return ModelConfig.from_metadata(_json_object(native))
    container = checkpoint.container
    if isinstance(container, Mapping) and "model_config" in container:
        return ModelConfig.from_research(container)
    raise CheckpointError(
        "this is neither a native nor a PJ-RoPE research checkpoint",
        "pass a file with `pjdiag` metadata, or a research .pt file with its model_config",
    )


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
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path} cannot be written: {reason}", "check the folder") from error


def _json_object(value: Any) -> Mapping[str, Any]:
    try:
        loaded = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise CheckpointError(
            f"the pjdiag metadata is not JSON: {error}", "write it again"
        ) from error
    if not isinstance(loaded, Mapping):
        raise CheckpointError("the pjdiag metadata is not a JSON object", "write it again")
    return loaded
