"""PoPE, recognised by its tensors: frequencies and a phase offset per head beside q and k.

Two spellings: ``inv_freqs[D]`` with ``bias[H,D]``, and ``inv_freq[D]`` with
``learned_bias[H,1,D]``. A polar module serves the attention modules under its parent, or the one
it lies in. No config is needed: the head count is the offset's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pjdiag.adapters import (
    Layer,
    Loaded,
    Match,
    MultiplicativeSpectrum,
    SkippedLayer,
    Sourced,
)
from pjdiag.adapters.config_fields import ConfigFields
from pjdiag.checkpoint import Checkpoint
from pjdiag.position.direct_sum import DirectSumTransform
from pjdiag.position.transforms import PolarTransform, PositionTransform
from pjdiag.terms import Mechanism
from pjdiag_plugins.checked import REAL_DTYPES, not_finite
from pjdiag_plugins.pope_modules import Attention, Polar, Sizes, attentions, polars, serving, sizes

NEEDS_DATA = "PoPE's softplus leaves no bilinear form: its mass needs data"
FIT = 1e-5
"""Relative error of frequencies that float32 rounding explains."""
X_TRANSFORMERS = "attn_layers.polar_pos_emb"


class PoPEAdapter:
    """Reads SPEC format 4: any model with the tensors of a polar embedding."""

    name = "pope"
    description = "PoPE: inv_freqs and bias beside q and k, or the x-transformers form"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """The tensors of a polar embedding; a config beside it cannot say that there is one."""
        found = polars(checkpoint.headers)
        if not found:
            return None
        return Match(60, f"tensors of a polar embedding: {found[0].frequencies}")

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L where a config states one; the tensors do not."""
        fields = ConfigFields(checkpoint.config, {})
        return fields.count("max_position_embeddings", "n_positions", "max_seq_len", "seq_len")

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every attention module, in the order of its numbers."""
        del train_length, eval_length  # frequencies are as stored
        modules = polars(checkpoint.headers)
        for index, attention in enumerate(attentions(checkpoint.headers)):
            polar = serving(attention, modules)
            if isinstance(polar, str):
                yield SkippedLayer(index, polar)
            else:
                yield _layer(checkpoint, index, attention, polar)


def _layer(
    checkpoint: Checkpoint, index: int, attention: Attention, polar: Polar
) -> Layer | SkippedLayer:
    unread = [
        f"tensor {name} holds {checkpoint.headers[name].dtype} values"
        for name in (polar.frequencies, polar.offset)
        if checkpoint.headers[name].dtype not in REAL_DTYPES
    ]
    found = sizes(attention, polar)
    if unread or isinstance(found, str):
        return SkippedLayer(index, unread[0] if isinstance(found, Sizes) else str(found))
    inv_freq = checkpoint.read(polar.frequencies).astype(np.float64)
    if not np.isfinite(inv_freq).all():
        return SkippedLayer(index, f"{polar.frequencies} holds values that are NaN or infinite")
    theta, misfit = fitted_theta(inv_freq)
    stored = f"as stored in {polar.frequencies}"
    part = MultiplicativeSpectrum(
        mechanism=Mechanism.POPE,
        inv_freq=Sourced(tuple(inv_freq.tolist()), stored),
        rotary_dim=Sourced(polar.channels, "one frequency per channel"),
        rope_layout=Sourced(None, "not pairs of RoPE"),
        rope_theta=Sourced(theta, misfit or f"fitted to {polar.frequencies}: theta^(-i/D)"),
        rope_type=Sourced(Mechanism.POPE.value, f"tensors {polar.frequencies} and {polar.offset}"),
        attention_factor=Sourced(1.0, "not used"),
        unread_reason=NEEDS_DATA,
        transform=partial(_read_transform, checkpoint, polar, found, inv_freq),
    )
    return Layer(
        index=index,
        num_heads=found.num_heads,
        num_kv_heads=found.num_kv_heads,
        head_dim=found.head_dim,
        scale=_scale(polar, found.head_dim.value),
        window=Sourced(None, "the tensors state none"),
        parts=(part,),
        causal=Sourced(True, "assumed: the tensors do not say"),
        warnings=(f"{polar.frequencies}: {misfit}",) if misfit else (),
    )


def fitted_theta(inv_freq: np.ndarray) -> tuple[float | None, str]:
    """The theta of ``theta^(-i/D)`` and "", or None and how the frequencies miss it.

    >>> fitted_theta(np.asarray([1.0, 0.1, 0.01, 0.001]))
    (10000.0, '')
    >>> fitted_theta(np.asarray([1.0, 0.1, 0.02, 0.001]))
    (None, 'the frequencies fit no theta^(-i/D): channel 2 is 0.02 rad/token, expected 0.01')
    """
    count = inv_freq.shape[0]
    if count < 2 or not (inv_freq > 0).all():
        reason = "one frequency fits any theta" if count < 2 else "a frequency is not above 0"
        return None, reason
    exponents = np.arange(count) / count
    theta = float(f"{inv_freq[-1] ** (-count / (count - 1)):.5g}")
    expected = theta**-exponents
    errors = np.abs(inv_freq / expected - 1)
    if errors.max() <= FIT * math.log(max(theta, math.e)):
        return theta, ""
    worst = int(np.argmax(errors))
    return None, (
        f"the frequencies fit no theta^(-i/D): channel {worst} is {inv_freq[worst]:.5g} "
        f"rad/token, expected {expected[worst]:.5g}"
    )


def _scale(polar: Polar, head_dim: int) -> Sourced[Any]:
    if polar.module.endswith(X_TRANSFORMERS):
        return Sourced(head_dim**-0.5, "x-transformers: 1/sqrt(head_dim)")
    return Sourced(None, "unknown: a polar module leaves the scale to its model")


def _read_transform(
    checkpoint: Checkpoint, polar: Polar, found: Sizes, inv_freq: np.ndarray
) -> Loaded:
    """The ``PolarTransform`` of all heads; channels without a frequency stay as they are."""
    offset = checkpoint.read(polar.offset).astype(np.float64).reshape(-1, polar.channels)
    heads = found.num_heads.value
    delta = np.repeat(offset, heads // offset.shape[0], axis=0)
    bad = tuple(not_finite(polar.offset, delta))
    turn = PolarTransform(polar.channels, inv_freq, delta)
    rest = found.head_dim.value - polar.channels
    if not rest:
        return Loaded(turn, bad)
    return Loaded(DirectSumTransform(found.head_dim.value, turn, PositionTransform(rest)), bad)
