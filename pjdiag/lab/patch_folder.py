"""A Hugging Face folder, patched: what ``pjdiag patch`` does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pjdiag.checkpoint import Checkpoint, load
from pjdiag.checkpoint.native import is_native, is_research
from pjdiag.checkpoint.patched import is_patched, states_patch
from pjdiag.errors import AdapterError, UsageError
from pjdiag.lab.folders import require_free, write_folder
from pjdiag.model_api import patch_length
from pjdiag.models.huggingface import loading
from pjdiag.models.patch_settings import PatchSettings
from pjdiag.models.patching import patch, patched_layers, require_patchable

CHECK_TOKENS = 32
"""Tokens of the run that compares the logits before and after."""
COMPANIONS = (
    "*token*.json",
    "*token*.model",
    "vocab*",
    "merges.txt",
    "spiece.model",
    "chat_template*",
    "*.tiktoken",
    "*processor_config.json",
    "LICENSE*",
    "NOTICE*",
)
"""Files beside the weights that belong to the model: its tokenizer, its terms."""


@dataclass(frozen=True)
class PatchedFolder:
    """What was written."""

    folder: Path
    layers: int
    """Attention layers with a PJ-bias."""
    heads: tuple[int, ...]
    """Different numbers of heads among them."""
    settings: PatchSettings
    length_source: str
    """Where L comes from."""
    parameters: int
    """Of the PJ-biases."""
    logit_change: float
    """Largest change of a logit, in a run of ``CHECK_TOKENS`` tokens."""
    dtype: str
    """Of the weights; the PJ-bias is float32."""


def patch_folder(
    source: Path,
    out: Path,
    *,
    sectors: Sequence[str],
    max_order: int = 3,
    train_length: int | None = None,
    rho: str = "linear",
    allow_pickle: bool = False,
) -> PatchedFolder:
    """Patch the model in ``source`` and write it with its tokenizer to ``out``.

    Weights keep their type. ``out`` is written whole or not at all. Raises UsageError where it is
    not empty, where ``source`` has a PJ-bias or is a GGUF file, and what ``pjdiag.patch`` raises.
    """
    require_free(out)
    checkpoint = load(source, allow_pickle=allow_pickle)
    _require_plain(checkpoint)
    _require_writable(checkpoint)
    model = loading.load(
        checkpoint.path, precision="auto", allow_pickle=allow_pickle, as_saved=True
    )
    require_patchable(model)
    found = patch_length(checkpoint.config) if train_length is None else None
    length = train_length if found is None else found.value
    settings = PatchSettings(length, sectors, max_order, rho)  # type: ignore[arg-type]
    before = _logits(model)
    patch(model, settings)
    change = float((_logits(model) - before).abs().max())

    def write(folder: Path) -> None:
        with loading.quiet():
            model.save_pretrained(folder)
        _copy_companions(loading.find(checkpoint.path).folder, folder)

    write_folder(out, write)
    biases = [bias for _, bias in patched_layers(model)]
    return PatchedFolder(
        folder=out,
        layers=len(biases),
        heads=tuple(sorted({len(bias.kernel().omega) for bias in biases})),
        settings=settings,
        length_source="--train-length" if found is None else found.source,
        parameters=sum(value.numel() for bias in biases for value in bias.parameters()),
        logit_change=change,
        dtype=str(model.dtype).removeprefix("torch."),
    )


def _require_plain(checkpoint: Checkpoint) -> None:
    where = checkpoint.path
    if is_native(checkpoint) or is_research(checkpoint):
        raise UsageError(
            f"{where} is a PJ-RoPE checkpoint of its own kind, no Hugging Face model",
            "pass the folder of a Hugging Face model",
        )
    if is_patched(checkpoint) or states_patch(checkpoint):
        raise UsageError(f"{where} is patched already", "train it further with pjdiag.load_model")
    if "model_type" not in checkpoint.config:
        raise AdapterError(
            f"{where} has no config.json with a model_type, so transformers cannot build it",
            "pass the folder of a Hugging Face model",
        )


def _require_writable(checkpoint: Checkpoint) -> None:
    """transformers runs a GGUF file and writes none."""
    place = loading.find(checkpoint.path)
    if place.gguf_file is not None:
        where = f"{str(place.folder)!r}, gguf_file={place.gguf_file!r}"
        raise UsageError(
            f"{place.folder / place.gguf_file} is a GGUF file; expected a folder with safetensors, "
            "the form that a patched model is written in",
            "save it as safetensors first, in Python: from transformers import "
            f"AutoModelForCausalLM; m = AutoModelForCausalLM.from_pretrained({where}); "
            "m.hf_quantizer = None; vars(m.config).pop('quantization_config', None); "
            "m.save_pretrained('NEW_FOLDER')",
        )


@torch.no_grad()
def _logits(model: Any) -> torch.Tensor:
    vocabulary = model.get_input_embeddings().weight.shape[0]
    tokens = torch.arange(CHECK_TOKENS)[None] * 7919 % vocabulary
    try:
        logits: torch.Tensor = model(input_ids=tokens, use_cache=False).logits
    except AttributeError as error:
        raise AdapterError(
            f"{type(model).__name__} predicts no next token", "pass a causal language model"
        ) from error
    return logits.double()


def _copy_companions(source: Path, folder: Path) -> None:
    for pattern in COMPANIONS:
        for path in sorted(source.glob(pattern)):
            if path.is_file() and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
