"""Hugging Face models that pjdiag patched: what their configuration says, and their model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from pjdiag.checkpoint.native import is_native
from pjdiag.checkpoint.source import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.models.patch_settings import CONFIG_KEY, PatchSettings

BIAS_TENSOR = re.compile(r"(?P<module>.+)\.pj_bias\.(?P<name>\w+)")

LAYER = re.compile(r"\.(\d+)\.")
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
SIZES = (
    "hidden_size",
    "n_embd",
    "intermediate_size",
    "n_inner",
    "vocab_size",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
)


def is_patched(checkpoint: Checkpoint) -> bool:
    """Whether this is a Hugging Face model whose weights hold a PJ-bias."""
    hugging_face = "model_type" in checkpoint.config and not is_native(checkpoint)
    return hugging_face and bool(bias_tensors(checkpoint))


def states_patch(checkpoint: Checkpoint) -> bool:
    """Whether ``config.json`` of a Hugging Face model speaks of a PJ-bias."""
    return "model_type" in checkpoint.config and CONFIG_KEY in checkpoint.config


def patch_settings(checkpoint: Checkpoint) -> PatchSettings:
    """What ``config.json`` says of the PJ-bias. Raises CheckpointError where it says nothing."""
    if CONFIG_KEY not in checkpoint.config:
        raise CheckpointError(
            f"the weights hold a PJ-bias, and config.json has no {CONFIG_KEY}: its train length, "
            "sectors and slope form are not known",
            f"write {CONFIG_KEY} into config.json, as the model was patched",
        )
    return PatchSettings.from_config(checkpoint.config[CONFIG_KEY])


def bias_tensors(checkpoint: Checkpoint) -> dict[str, dict[str, str]]:
    """Attention module -> raw parameter -> tensor name, for every PJ-bias in the weights."""
    found: dict[str, dict[str, str]] = {}
    for name in checkpoint.headers:
        match = BIAS_TENSOR.fullmatch(name)
        if match:
            found.setdefault(match["module"], {})[match["name"]] = name
    return found


def load_patched(
    checkpoint: Checkpoint,
    *,
    precision: Literal["float32", "bfloat16", "auto"] = "auto",
    allow_pickle: bool = False,
) -> Any:
    """The patched model with its PJ-bias, on the CPU, in evaluation mode; no remote code.

    The weights have the type ``precision`` (``auto``: that of the file); the PJ-bias is float32.
    Raises CheckpointError, AdapterError or MissingDependencyError, each saying what was found.
    """
    settings = patch_settings(checkpoint)
    from pjdiag.models.huggingface import loading
    from pjdiag.models.patching import reattach

    raw = {
        module: {part: _tensor(checkpoint, name) for part, name in parts.items()}
        for module, parts in bias_tensors(checkpoint).items()
    }
    if not raw:
        raise CheckpointError(
            f"config.json has {CONFIG_KEY}, but the weights hold no PJ-bias: it was lost when the "
            "model was loaded without pjdiag and saved again",
            "take the weights of the patched model",
        )
    _check_sizes(checkpoint)
    model = loading.load(
        checkpoint.path, precision=precision, allow_pickle=allow_pickle, as_saved=True
    )
    return reattach(model, settings, raw)


def _check_sizes(checkpoint: Checkpoint) -> None:
    """Raises CheckpointError where the configuration states more than the weights can hold.

    Transformers would build it all first: a count of layers out of range never comes to an end.
    """
    layers = [int(found[1]) + 1 for name in checkpoint.headers if (found := LAYER.search(name))]
    largest = max((math.prod(header.shape) for header in checkpoint.headers.values()), default=0)
    limits = dict.fromkeys(SIZES, largest) | dict.fromkeys(COUNTS, max(layers, default=0))
    text = (checkpoint.config, checkpoint.config.get("text_config"))
    for part in text:
        if not isinstance(part, Mapping):
            continue
        for name, most in limits.items():
            value = part.get(name)
            if isinstance(value, int | float) and value > most:
                stated = f"{value:.0f}" if value < 10**18 else "enormous"
                raise CheckpointError(
                    f"config: {name} is {stated}; the weights have room for at most {most}",
                    "check that config.json belongs to these weights",
                )


def _tensor(checkpoint: Checkpoint, name: str) -> Any:
    import torch

    return torch.from_numpy(checkpoint.read(name)).float()
