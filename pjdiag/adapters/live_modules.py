"""Layers of a live model of no known architecture: one for each ``nn.MultiheadAttention``.

Where positions enter is in the model's code. What its attention does with them is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pjdiag.adapters.protocol import UNKNOWN, Layer, Match, MultiplicativeSpectrum, Sourced
from pjdiag.checkpoint import Checkpoint
from pjdiag.checkpoint.live import LiveCheckpoint
from pjdiag.terms import Mechanism

FORMAT = "torch.nn.MultiheadAttention"
REASON = f"{FORMAT} in memory: where positions enter is in the model's code, and is not known"


class LiveModules:
    """Reads the modules themselves: tensors alone do not tell their heads."""

    name = "live_modules"
    description = f"live models with {FORMAT}, of no other architecture"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """A live model with such modules that carries no model type."""
        if not isinstance(checkpoint, LiveCheckpoint) or "model_type" in checkpoint.config:
            return None
        if checkpoint.metadata or not _modules(checkpoint):
            return None
        return Match(100, f"a model in memory with {FORMAT}")

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """Not known."""
        del checkpoint
        return UNKNOWN

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer]:
        """Every module in the model's order, those that attend to another sequence included."""
        del train_length, eval_length
        found = _modules(checkpoint)
        notes = _numbering([name for name, _ in found])
        for index, (_, module) in enumerate(found):
            unknown: Any = UNKNOWN
            heads = Sourced(module.num_heads, "the module")
            dim = Sourced(module.head_dim, "the module")
            yield Layer(
                index=index,
                num_heads=heads,
                num_kv_heads=heads,
                head_dim=dim,
                scale=Sourced(module.head_dim**-0.5, f"format: {FORMAT}"),
                window=unknown,
                parts=(_unknown_part(),),
                causal=unknown,
                warnings=(REASON, notes[index]),
            )


def live_modules(checkpoint: Checkpoint) -> tuple[LiveModules, Match] | None:
    """This adapter where it fits ``checkpoint``; files never have it."""
    match = LiveModules().matches(checkpoint)
    return None if match is None else (LiveModules(), match)


def _numbering(names: list[str]) -> list[str]:
    """Which modules the layers are; one text for neighbours that differ in a number alone.

    >>> _numbering(["layers.0.self_attn", "layers.1.self_attn", ""])[1:]
    ['layers 0-1 are layers.*.self_attn', 'layer 2 is the model itself']
    """
    notes: list[str] = []
    starred = [re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", name) for name in names]
    for star, group in groupby(range(len(names)), key=starred.__getitem__):
        layers = list(group)
        if len(layers) > 1:
            note = f"layers {layers[0]}-{layers[-1]} are {star}"
        else:
            note = f"layer {layers[0]} is {names[layers[0]] or 'the model itself'}"
        notes += [note] * len(layers)
    return notes


def _modules(checkpoint: Checkpoint) -> list[tuple[str, Any]]:
    from pjdiag.models.multihead import multihead_modules

    found: list[tuple[str, Any]] = []
    if isinstance(checkpoint, LiveCheckpoint):
        found += multihead_modules(checkpoint.module)
    return found


def _unknown_part() -> MultiplicativeSpectrum:
    unknown: Any = Sourced(None, REASON)
    return MultiplicativeSpectrum(
        mechanism=Mechanism.UNKNOWN,
        inv_freq=unknown,
        rotary_dim=unknown,
        rope_layout=unknown,
        rope_theta=unknown,
        rope_type=unknown,
        attention_factor=unknown,
        unread_reason=REASON,
    )
