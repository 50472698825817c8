"""What a PJ-RoPE checkpoint, native or from the research code, says about its model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pjdiag.checkpoint.source import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.models.config import ModelConfig

if TYPE_CHECKING:
    from pjdiag.models.causal_lm import CausalLM

METADATA_KEY = "pjdiag"
SMALL = 2**26
"""Values that a model may allocate for a tensor before it is found to be missing."""


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
    _check_sizes(checkpoint, config)
    tensors = {name: checkpoint.read(name) for name in checkpoint.headers}
    return CausalLM.from_tensors(config, tensors)


def _check_sizes(checkpoint: Checkpoint, config: ModelConfig) -> None:
    """Sizes that the configuration states, before a model of these sizes is allocated."""
    width = config.embed_dim
    for name, expected in (
        ("embedding.weight", (config.vocab_size, width)),
        ("blocks.0.mlp.0.weight", (config.mlp_ratio * width, width)),
        (f"blocks.{config.layers - 1}.attn.qkv.weight", (3 * width, width)),
    ):
        header = checkpoint.headers.get(name)
        if header is None and math.prod(expected) < SMALL:
            continue  # the model itself says what else is missing
        if header is None or header.shape != expected:
            found = "is missing" if header is None else f"has shape {list(header.shape)}"
            raise CheckpointError(
                f"tensor {name} {found}; the configuration asks for {list(expected)}",
                "correct the configuration, or write the checkpoint again",
            )


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
