"""What a PJ-RoPE checkpoint, native or from the research code, says about its model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pjdiag.checkpoint.source import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.models.config import ModelConfig

if TYPE_CHECKING:
    from pjdiag.models.causal_lm import CausalLM

METADATA_KEY = "pjdiag"


def is_native(checkpoint: Checkpoint) -> bool:
    """Whether the safetensors metadata has the key ``pjdiag``."""
    return METADATA_KEY in checkpoint.metadata


def is_research(checkpoint: Checkpoint) -> bool:
    """Whether a torch container states a ``model_config``, as the research code writes it."""
    return "model_config" in checkpoint.container


def model_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration that a native or a research checkpoint states.

    Raises CheckpointError where it states none, or one that cannot be used.
    """
    if is_native(checkpoint):
        return ModelConfig.from_metadata(_stated(checkpoint.metadata[METADATA_KEY]))
    if is_research(checkpoint):
        return ModelConfig.from_research(checkpoint.container)
    raise CheckpointError(
        "the checkpoint states no method and no train length; the mechanism is in the "
        "configuration, not in the tensors",
        "pass the research code's .pt file, or a safetensors file with the metadata key pjdiag",
    )


def load_model(checkpoint: Checkpoint) -> CausalLM:
    """The model of a native or a PJ-RoPE research checkpoint, in evaluation mode.

    Raises CheckpointError where the checkpoint is of another format or does not fit its own
    configuration.
    """
    from pjdiag.models.causal_lm import CausalLM  # reading a configuration needs no torch

    config = model_config(checkpoint)
    tensors = {name: checkpoint.read(name) for name in checkpoint.headers}
    return CausalLM.from_tensors(config, tensors)


def _stated(text: str) -> Mapping[str, object]:
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            "the metadata key pjdiag does not hold JSON", "write the checkpoint again"
        ) from error
    if not isinstance(stated, Mapping):
        raise CheckpointError(
            "the metadata key pjdiag holds no JSON object", "write the checkpoint again"
        )
    return stated
