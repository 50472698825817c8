"""An adapter for a made-up family of ALiBi models: the smallest that is complete."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pjdiag.adapters import AdditiveKernel, Layer, Loaded, Match, SkippedLayer, Sourced
from pjdiag.checkpoint import Checkpoint
from pjdiag.position.alibi import alibi_kernel, slopes
from pjdiag.terms import Mechanism, Sector


class ToyAlibiAdapter:
    """Reads folders whose config.json says ``"model_type": "toy_alibi"``."""

    name = "toy_alibi"
    description = "Toy ALiBi models"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """From configuration and headers alone; no tensor is read here."""
        if checkpoint.config.get("model_type") == "toy_alibi":
            return Match(50, "config.json: model_type")
        return None

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L, and the field it comes from."""
        return Sourced(checkpoint.config.get("seq_length"), "config.json: seq_length")

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every layer; one that cannot be read is said to be skipped, and why."""
        heads, width = checkpoint.config["n_head"], checkpoint.config["hidden_size"]
        for index in range(checkpoint.config["n_layer"]):
            if f"layers.{index}.attn.qkv.weight" not in checkpoint.headers:
                yield SkippedLayer(index, "has no attention")
                continue
            yield Layer(
                index=index,
                num_heads=Sourced(heads, "config.json: n_head"),
                num_kv_heads=Sourced(heads, "format: every head has its own keys"),
                head_dim=Sourced(width // heads, "config.json: hidden_size / n_head"),
                scale=Sourced(1 / math.sqrt(width // heads), "format: 1/sqrt(head_dim)"),
                window=Sourced(None, "format: full causal attention"),
                parts=(bias(heads, train_length or 1),),
            )


def bias(heads: int, train_length: int) -> AdditiveKernel:
    """The bias of one layer. ``read`` is called when a figure needs the values."""
    standard = slopes(heads)
    return AdditiveKernel(
        mechanism=Mechanism.ALIBI,
        sectors=(Sector.AFFINE,),
        max_order=0,
        read=lambda: Loaded(alibi_kernel(np.asarray(standard), train_length)),
        slopes=Sourced(standard, "format: the standard slopes"),
    )
