"""PJ-RoPE checkpoints: the native format and the published research code's torch files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from pjdiag.adapters import (
    AdditiveKernel,
    ChannelSpectrum,
    Layer,
    Loaded,
    Match,
    MultiplicativeSpectrum,
    Sourced,
)
from pjdiag.checkpoint import Checkpoint
from pjdiag.checkpoint.native import is_native, is_research, model_config
from pjdiag.errors import CheckpointError
from pjdiag.models.config import ModelConfig
from pjdiag.models.methods import PJ_ROTARY_SHEAR
from pjdiag.position.channel_mass import jet_mass
from pjdiag.position.rotary import frequencies, inverse_frequencies, pj_rotary_frequencies
from pjdiag.position.transforms import JordanTransform, PJRotaryTransform, PolarTransform
from pjdiag.terms import Mechanism
from pjdiag_plugins.checked import check_shapes, not_finite, read_by_head
from pjdiag_plugins.pj_kernel import RawBias, bias_part

PJ_TENSOR = re.compile(r"blocks\.\d+\.attn\.pj_bias\.\w+")
BLOCK = re.compile(r"blocks\.(\d{1,9})\.")
FROM_METHOD = "method"
NEEDS_DATA = (
    "PoPE's softplus leaves no bilinear form: its mass needs data, `pjdiag spectrum --data`"
)


class PJRopeAdapter:
    """Reads SPEC formats 1 and 2: one small causal language model, whatever its method."""

    name = "pjrope"
    description = "PJ-RoPE: native safetensors and the research code's torch files"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """A ``pjdiag`` metadata key, or the research container, or PJ-bias tensors."""
        if is_native(checkpoint):
            return Match(100, "safetensors metadata key pjdiag")
        if is_research(checkpoint):
            return Match(100, "research container with model_config")
        if any(PJ_TENSOR.fullmatch(name) for name in checkpoint.headers):
            return Match(10, "tensor names of a PJ-bias")
        return None

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from the metadata, or from ``model_config.train_len``."""
        field = "train_length" if is_native(checkpoint) else "train_len"
        length = model_config(checkpoint).train_length
        return Sourced(length, f"{_source(checkpoint)}: {field}")

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer]:
        """Every block's attention, in order."""
        config, source = model_config(checkpoint), _source(checkpoint)
        _check_layer_count(checkpoint, config)
        length = config.train_length if train_length is None else train_length
        for index in range(config.layers):
            yield _layer(checkpoint, config, source, index, length, eval_length)


def _check_layer_count(checkpoint: Checkpoint, config: ModelConfig) -> None:
    found = {int(match[1]) for name in checkpoint.headers if (match := BLOCK.match(name))}
    if found and max(found) >= config.layers:
        raise CheckpointError(
            f"there are tensors of block {max(found)}; the configuration states "
            f"{config.layers} layers",
            "correct the configuration, or write the checkpoint again",
        )


def _source(checkpoint: Checkpoint) -> str:
    return "metadata" if is_native(checkpoint) else "model_config"


def _layer(
    checkpoint: Checkpoint,
    config: ModelConfig,
    source: str,
    index: int,
    train_length: int,
    eval_length: int | None,
) -> Layer:
    attention = f"blocks.{index}.attn"
    check_shapes(
        checkpoint,
        {f"{attention}.qkv.weight": (3 * config.embed_dim, config.embed_dim)},
    )
    parts: list[AdditiveKernel | MultiplicativeSpectrum] = []
    if config.position_method.rotary is not None:
        parts.append(_rotary_part(checkpoint, config, source, index, train_length, eval_length))
    if config.sectors:
        parts.append(_bias_part(checkpoint, config, f"{attention}.pj_bias", train_length))
    return Layer(
        index=index,
        num_heads=Sourced(config.num_heads, f"{source}: num_heads"),
        num_kv_heads=Sourced(config.num_heads, "format: every head has its own keys"),
        head_dim=Sourced(config.head_dim, f"{source}: embed_dim / num_heads"),
        scale=Sourced(1 / math.sqrt(config.head_dim), "format: 1/sqrt(head_dim)"),
        window=Sourced(None, "format: full causal attention"),
        parts=tuple(parts),
    )


def _bias_part(
    checkpoint: Checkpoint, config: ModelConfig, prefix: str, train_length: int
) -> AdditiveKernel:
    return bias_part(
        checkpoint,
        RawBias(
            prefix,
            config.sectors,
            config.num_heads,
            config.max_order,
            train_length,
            config.rho,
            config.slope_form,
        ),
    )


def _rotary_part(
    checkpoint: Checkpoint,
    config: ModelConfig,
    source: str,
    index: int,
    train_length: int,
    eval_length: int | None,
) -> MultiplicativeSpectrum:
    mechanism = config.position_method.rotary or Mechanism.NONE
    like = np.zeros(0)
    length = train_length if eval_length is None else eval_length
    layout, factor, rope_type, max_order = None, 1.0, mechanism.value, 0
    unread = ""
    if mechanism == Mechanism.ROPE:
        rule = config.position_method.rope_rule
        at = frequencies(config.head_dim, config.rope_base, train_length, length, rule, like)
        inv_freq = at.inv_freq * at.position_scale
        layout, factor, rope_type = config.position_method.layout, at.attention_factor, rule.value
    elif mechanism == Mechanism.PJ_ROTARY:
        inv_freq, max_order = pj_rotary_frequencies(config.head_dim, config.rope_base, like), 1
    elif mechanism == Mechanism.JORDAN:
        blocks = config.head_dim // (2 * (config.max_order + 1))
        inv_freq = inverse_frequencies(config.head_dim, config.rope_base, like)[:blocks]
        max_order = config.max_order
        shape = (config.num_heads, blocks)
        prefix = f"blocks.{index}.attn.positioner"
        check_shapes(checkpoint, {f"{prefix}.raw_{n}": shape for n in ("damping", "shear")})
    else:
        inv_freq = config.rope_base ** (-np.arange(config.head_dim) / config.head_dim)
        unread = NEEDS_DATA
    read = partial(_read_spectrum, checkpoint, config, index, inv_freq, factor)
    stated = f"at {length} tokens, from rope_base"
    return MultiplicativeSpectrum(
        mechanism=mechanism,
        inv_freq=Sourced(tuple(inv_freq.tolist()), stated),
        rotary_dim=Sourced(config.head_dim, "format: every channel"),
        rope_layout=Sourced(layout, "format" if layout else "not pairs of RoPE"),
        rope_theta=Sourced(config.rope_base, f"{source}: rope_base"),
        rope_type=Sourced(rope_type, f"{source}: {FROM_METHOD}"),
        attention_factor=Sourced(factor, f"at {length} tokens"),
        max_order=max_order,
        read=None if unread else read,
        unread_reason=unread,
        transform=None
        if mechanism == Mechanism.ROPE
        else partial(_read_transform, checkpoint, config, index, inv_freq, train_length),
    )


def _read_transform(
    checkpoint: Checkpoint,
    config: ModelConfig,
    index: int,
    inv_freq: np.ndarray,
    train_length: int,
) -> Loaded:
    """What PJ-rotary, Jordan blocks or PoPE do to queries and keys."""
    head_dim, prefix = config.head_dim, f"blocks.{index}.attn.positioner"
    mechanism = config.position_method.rotary
    if mechanism == Mechanism.PJ_ROTARY:
        return Loaded(PJRotaryTransform(head_dim, inv_freq, PJ_ROTARY_SHEAR, train_length))
    if mechanism == Mechanism.JORDAN:
        shape = (config.num_heads, inv_freq.shape[0])
        damping, shear = (
            read_by_head(checkpoint, f"{prefix}.raw_{name}", shape) for name in ("damping", "shear")
        )
        block = np.logaddexp(0.0, damping.value) / train_length, shear.value / train_length
        made = JordanTransform(head_dim, inv_freq, *block, config.max_order + 1)
        return Loaded(made, (*damping.bad, *shear.bad))
    delta = read_by_head(checkpoint, f"{prefix}.bias", (config.num_heads, head_dim))
    return Loaded(PolarTransform(head_dim, inv_freq, delta.value), delta.bad)


def _read_spectrum(
    checkpoint: Checkpoint,
    config: ModelConfig,
    index: int,
    inv_freq: np.ndarray,
    attention_factor: float,
) -> Loaded:
    """Channel masses from the query and key rows, the gain of the input norm folded in."""
    name, gain_name = f"blocks.{index}.attn.qkv.weight", f"blocks.{index}.norm1.weight"
    width, heads = config.embed_dim, config.num_heads
    check_shapes(checkpoint, {gain_name: (width,)})
    rows = checkpoint.read_rows(name, 0, 2 * width).astype(np.float64)
    gain = checkpoint.read(gain_name).astype(np.float64)
    queries, keys = rows.reshape(2, heads, -1)
    bad = not_finite(name, np.concatenate([queries, keys], axis=1))
    bad += not_finite(gain_name, np.broadcast_to(gain, (heads, width)))
    mechanism = config.position_method.rotary
    order, shear = 1, np.ones((heads, inv_freq.shape[0]))
    if mechanism == Mechanism.PJ_ROTARY:
        order, shear = 2, PJ_ROTARY_SHEAR * shear
    elif mechanism == Mechanism.JORDAN:
        shear_name = f"blocks.{index}.attn.positioner.raw_shear"
        order, shear = config.max_order + 1, checkpoint.read(shear_name).astype(np.float64)
        bad += not_finite(shear_name, shear)
    shape = (heads, inv_freq.shape[0], order, 2, width)
    # PJ-rotary couples its two channels the other way round than a Jordan block.
    turn = slice(None, None, -1 if mechanism == Mechanism.PJ_ROTARY else 1)
    scale = attention_factor**2 / math.sqrt(config.head_dim)
    with np.errstate(invalid="ignore", over="ignore"):
        q, k = (np.reshape(side, shape)[:, :, turn] * gain for side in (queries, keys))
        amplitude = jet_mass(q, k, shear, scale)
    return Loaded(ChannelSpectrum(inv_freq, amplitude), tuple(bad))
