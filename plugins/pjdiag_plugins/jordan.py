"""The Jordan-RoPE research code's torch files: ``{model, config}``.

The mechanism stands in the config, not in the tensors: RoPE, ALiBi, both and neither leave the
same keys. Without a config the answer is "undetermined".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pjdiag.adapters import (
    AdditiveKernel,
    BadTensor,
    ChannelSpectrum,
    Layer,
    Loaded,
    Match,
    MultiplicativeSpectrum,
    Reading,
    SkippedLayer,
    Sourced,
)
from pjdiag.adapters.projections import LinearProjections, Side
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import AdapterError, CheckpointError
from pjdiag.position.alibi import alibi_kernel, slopes
from pjdiag.position.channel_mass import jet_mass
from pjdiag.position.direct_sum import DirectSumTransform
from pjdiag.position.rotary import inverse_frequencies
from pjdiag.position.transforms import JordanTransform, PositionTransform, RotaryTransform
from pjdiag.terms import Mechanism, Sector
from pjdiag_plugins.checked import check_shapes, not_finite, read_by_head
from pjdiag_plugins.jordan_methods import METHOD_FIELD, JordanConfig, Kind, jordan_config
from pjdiag_plugins.jordan_undetermined import undetermined_layers

if TYPE_CHECKING:
    from pjdiag.models.pre_norm_lm import PreNormLM

SIGNATURE = ("blocks.0.attn.qkv.weight", "blocks.0.attn.proj.weight", "blocks.0.ff.net.2.weight")
BLOCK = re.compile(r"blocks\.(\d{1,9})\.")
BOUNDED = "bounded shear time: the sizes are those of the first positions"
FREE_JETS = "free jet coefficients: the score is no function of the lag, the sizes are nominal"


class JordanAdapter:
    """Reads SPEC format 3: a small causal language model with Jordan-RoPE or a baseline."""

    name = "jordan"
    description = "Jordan-RoPE: the research code's torch files"

    def matches(self, checkpoint: Checkpoint) -> Match | None:
        """A config with ``position_method``, or the tensor names of the research code."""
        if stated_config(checkpoint) is not None:
            return Match(100, f"config with {METHOD_FIELD}")
        names = checkpoint.headers
        if all(name in names for name in SIGNATURE) and "blocks.0.norm1.bias" not in names:
            return Match(10, "tensor names of the Jordan-RoPE research code")
        return None

    def train_length(self, checkpoint: Checkpoint) -> Sourced[int | None]:
        """L from ``train_context``."""
        stated = stated_config(checkpoint)
        if stated is None:
            return Sourced(None, "undetermined: there is no config")
        return Sourced(jordan_config(stated).train_context, "config: train_context")

    def running_model(self, reading: Reading) -> PreNormLM:
        """The whole model, for diagnostics on data. Raises AdapterError without a config."""
        from pjdiag_plugins.jordan_model import jordan_model

        if stated_config(reading.checkpoint) is None:
            raise AdapterError(
                "the mechanism of this checkpoint is not in its tensors, so it cannot be run",
                "pass the research code's own file, with its config",
            )
        return jordan_model(reading)

    def layers(
        self, checkpoint: Checkpoint, train_length: int | None, eval_length: int | None
    ) -> Iterator[Layer | SkippedLayer]:
        """Every block's attention, in order."""
        del eval_length  # no frequency of this code depends on the length
        stated = stated_config(checkpoint)
        found = sorted(
            {int(match[1]) for name in checkpoint.headers if (match := BLOCK.match(name))}
        )
        if stated is None:
            yield from undetermined_layers(checkpoint, found)
            return
        config = jordan_config(stated)
        if found and found[-1] >= config.layers:
            raise CheckpointError(
                f"there are tensors of block {found[-1]}; config: n_layers states {config.layers}",
                "correct the config, or write the checkpoint again",
            )
        length = config.train_context if train_length is None else train_length
        for index in range(config.layers):
            yield _layer(checkpoint, config, index, length)


def stated_config(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """The config of the research code, from the torch file or a config.json beside it."""
    for found in (checkpoint.container.get("config"), checkpoint.config):
        if isinstance(found, Mapping) and METHOD_FIELD in found:
            return found
    return None


def _layer(checkpoint: Checkpoint, config: JordanConfig, index: int, length: int) -> Layer:
    width = config.width
    qkv = f"blocks.{index}.attn.qkv.weight"
    check_shapes(checkpoint, {qkv: (3 * width, width)})
    parts: list[AdditiveKernel | MultiplicativeSpectrum] = []
    if config.form.kind != Kind.NONE:
        parts.append(_rotary_part(checkpoint, config, index, length))
    if config.form.alibi:
        parts.append(_alibi_part(config, length))
    return Layer(
        index=index,
        num_heads=Sourced(config.num_heads, "config: n_heads"),
        num_kv_heads=Sourced(config.num_heads, "format: every head has its own keys"),
        head_dim=Sourced(config.head_dim, "config: d_model / n_heads"),
        scale=Sourced(1 / math.sqrt(config.head_dim), "format: 1/sqrt(head_dim)"),
        window=Sourced(None, "format: full causal attention"),
        parts=tuple(parts),
        projections=partial(_projections, checkpoint, config, index),
    )


def _alibi_part(config: JordanConfig, length: int) -> AdditiveKernel:
    values = slopes(config.num_heads)
    return AdditiveKernel(
        mechanism=Mechanism.ALIBI,
        sectors=(Sector.AFFINE,),
        max_order=0,
        read=lambda: Loaded(alibi_kernel(np.asarray(values), length)),
        slopes=Sourced(values, "format: the standard slopes"),
    )


def _rotary_part(
    checkpoint: Checkpoint, config: JordanConfig, index: int, length: int
) -> MultiplicativeSpectrum:
    form = config.form
    rope = form.kind == Kind.ROPE
    rotary, blocks = _frequencies(config)
    inv_freq = np.concatenate([rotary, blocks])
    approximate = FREE_JETS if form.jet_max is not None else ""
    if not approximate and form.shear_bound is not None and not rope:
        approximate = BOUNDED
    return MultiplicativeSpectrum(
        mechanism=Mechanism.ROPE if rope else Mechanism.JORDAN,
        inv_freq=Sourced(tuple(inv_freq.tolist()), "from config: theta"),
        rotary_dim=Sourced(config.head_dim, "format: every channel"),
        rope_layout=Sourced("interleaved" if rope else None, "format" if rope else "Jordan blocks"),
        rope_theta=Sourced(config.theta, "config: theta"),
        rope_type=Sourced("default" if rope else config.method, f"config: {METHOD_FIELD}"),
        attention_factor=Sourced(1.0, "format: not used"),
        max_order=0 if rope else form.order - 1,
        read=partial(_read_spectrum, checkpoint, config, index, length),
        transform=None if rope else partial(_read_transform, checkpoint, config, index),
        approximate=approximate,
    )


def _frequencies(config: JordanConfig) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies of the rotary pairs, and of the Jordan blocks."""
    form, nothing = config.form, np.zeros(0)
    if form.kind == Kind.ROPE:
        return inverse_frequencies(config.head_dim, config.theta, nothing), nothing
    if form.kind == Kind.DIRECT_SUM:
        half = config.head_dim // 2
        return inverse_frequencies(half, config.theta, nothing), np.zeros(half // 4)
    count = config.head_dim // (2 * form.order)
    omega = inverse_frequencies(config.head_dim, config.theta, nothing)[:count]
    return nothing, omega if form.turning else np.zeros(count)


def _read_blocks(checkpoint: Checkpoint, config: JordanConfig, index: int) -> Loaded:
    """The ``JordanTransform`` of the blocks, from the raw parameters."""
    form, (_, omega) = config.form, _frequencies(config)
    summed = form.kind == Kind.DIRECT_SUM
    prefix = f"blocks.{index}.attn.positioner" + (".real_jordan" if summed else "")
    shape = (config.num_heads, omega.shape[0])
    damping = shear = np.zeros(shape)
    jets, bad = None, list[BadTensor]()
    with np.errstate(over="ignore", invalid="ignore"):
        if form.damped:
            raw = read_by_head(checkpoint, f"{prefix}.raw_gamma", shape)
            damping, bad = np.logaddexp(0.0, raw.value) + form.damping_min, [*bad, *raw.bad]
        if form.sheared:
            raw = read_by_head(checkpoint, f"{prefix}.raw_eta", shape)
            shear, bad = form.shear_max * np.tanh(raw.value), [*bad, *raw.bad]
        if form.jet_max is not None:
            raw = _read_jets(checkpoint, config, prefix, shape)
            jets, bad = raw.value, [*bad, *raw.bad]
    made = JordanTransform(
        2 * form.order * omega.shape[0],
        omega,
        damping,
        shear,
        form.order,
        shear_scale=form.shear_scale,
        bound=form.shear_bound,
        jet_coefficients=jets,
        max_exponent=form.max_exponent,
    )
    return Loaded(made, tuple(bad))


def _read_jets(
    checkpoint: Checkpoint, config: JordanConfig, prefix: str, shape: tuple[int, ...]
) -> Loaded:
    """Free jet coefficients, ``[m, H, B]``."""
    form = config.form
    name = f"{prefix}.raw_jet_coefficients"
    check_shapes(checkpoint, {name: (form.order - 1, *shape)})
    raw = checkpoint.read(name).astype(np.float64)
    bad = not_finite(name, np.swapaxes(raw, 0, 1))
    base = np.ones((1, *shape))
    if form.jet_base:
        first = read_by_head(checkpoint, f"{prefix}.raw_jet_base", shape)
        base, bad = (form.jet_max or 1.0) * np.tanh(first.value)[None], [*bad, *first.bad]
    return Loaded(np.concatenate([base, (form.jet_max or 1.0) * np.tanh(raw)]), tuple(bad))


def _read_transform(checkpoint: Checkpoint, config: JordanConfig, index: int) -> Loaded:
    blocks = _read_blocks(checkpoint, config, index)
    if config.form.kind != Kind.DIRECT_SUM:
        return blocks
    rotary, _ = _frequencies(config)
    turn = RotaryTransform(2 * rotary.shape[0], rotary, "interleaved")
    whole: PositionTransform = DirectSumTransform(config.head_dim, turn, blocks.value)
    return Loaded(whole, blocks.bad)


def _read_rows(checkpoint: Checkpoint, config: JordanConfig, index: int) -> Loaded:
    """Query and key rows ``[2, H, D, E]`` and the gain ``[E]`` of the norm in front of them."""
    attention, norm = f"blocks.{index}.attn.qkv.weight", f"blocks.{index}.norm1.weight"
    width, heads = config.width, config.num_heads
    check_shapes(checkpoint, {norm: (width,)})
    rows = checkpoint.read_rows(attention, 0, 2 * width).astype(np.float64)
    rows = rows.reshape(2, heads, config.head_dim, width)
    gain = checkpoint.read(norm).astype(np.float64)
    bad = not_finite(attention, np.swapaxes(rows, 0, 1))
    bad += not_finite(norm, np.broadcast_to(gain, (heads, width)))
    return Loaded((rows, gain), tuple(bad))


def _projections(checkpoint: Checkpoint, config: JordanConfig, index: int) -> Loaded:
    loaded = _read_rows(checkpoint, config, index)
    (queries, keys), gain = loaded.value
    return Loaded(LinearProjections(Side(queries), Side(keys), gain), loaded.bad)


def _read_spectrum(checkpoint: Checkpoint, config: JordanConfig, index: int, length: int) -> Loaded:
    """Masses ``[H, C, m]`` of the rotary pairs and the Jordan blocks, in this order."""
    loaded = _read_rows(checkpoint, config, index)
    rows, gain = loaded.value
    rotary, omega = _frequencies(config)
    heads, width, split = config.num_heads, config.width, 2 * rotary.shape[0]
    scale, order, bad = 1 / math.sqrt(config.head_dim), config.form.order, loaded.bad
    amplitudes = []
    with np.errstate(over="ignore", invalid="ignore"):
        if split:
            q, k = (rows[:, :, :split] * gain).reshape(2, heads, -1, 1, 2, width)
            even = jet_mass(q, k, np.ones((heads, rotary.shape[0])), scale)
            blank = 0 if config.form.kind == Kind.ROPE else order - 1
            amplitudes.append(np.pad(even, ((0, 0), (0, 0), (0, blank))))
        if omega.shape[0]:
            blocks = _read_blocks(checkpoint, config, index)
            bad = (*bad, *blocks.bad)
            coupled = (rows[:, :, split:] * gain).reshape(2, heads, -1, order, 2, width)
            amplitudes.append(_block_mass(blocks.value, coupled, length, scale))
    amplitude = np.concatenate(amplitudes, axis=1)
    return Loaded(ChannelSpectrum(np.concatenate([rotary, omega]), amplitude), bad)


def _block_mass(block: JordanTransform, rows: np.ndarray, length: int, scale: float) -> np.ndarray:
    """Masses ``[H, B, m]``; free coefficients stand in for the powers of the shear."""
    (q, k), per_length = rows, block.shear_scale * length
    if block.jet_coefficients is None:
        found: np.ndarray = jet_mass(q, k, block.shear * per_length, scale)
        return found
    powers = np.asarray([per_length**p for p in range(block.block_order)])[:, None, None]
    sizes = np.abs(block.jet_coefficients / block.jet_coefficients[:1]) * powers
    mixed: np.ndarray = np.moveaxis(sizes, 0, -1) * jet_mass(q, k, np.ones_like(sizes[0]), scale)
    return mixed
