"""RoPE of a layer as a part: its frequencies, and how to read its channel masses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from pjdiag.adapters.projections import rotary_pairs
from pjdiag.adapters.protocol import ChannelSpectrum, Loaded, MultiplicativeSpectrum, Sourced
from pjdiag.adapters.rope_fields import RopeFields
from pjdiag.position.transforms import RotaryTransform
from pjdiag.terms import Mechanism


def rotary_part(
    rope: RopeFields,
    layout: str,
    scale: float,
    read: Callable[[], Loaded],
    approximate: str = "",
    unread_reason: str = "",
) -> MultiplicativeSpectrum:
    """RoPE with the frequencies of ``rope`` over pairs of ``layout``.

    ``read`` returns the layer's projections; ``scale`` is the factor on its logits. With an
    ``unread_reason`` the masses are not read.
    """
    return MultiplicativeSpectrum(
        mechanism=Mechanism.ROPE,
        inv_freq=rope.inv_freq,
        rotary_dim=rope.rotary_dim,
        rope_layout=Sourced(layout, "architecture"),
        rope_theta=rope.theta,
        rope_type=rope.rope_type,
        attention_factor=rope.attention_factor,
        read=None if unread_reason else partial(_spectrum, read, rope, layout, scale),
        unread_reason=unread_reason,
        approximate=approximate,
    )


def backwards(part: MultiplicativeSpectrum, head_dim: int) -> MultiplicativeSpectrum:
    """The part for a class whose later tokens turn by a negative angle."""
    frequencies, layout = part.inv_freq.value, part.rope_layout.value
    if frequencies is None or layout is None:
        return part
    turned = RotaryTransform(
        head_dim, -np.asarray(frequencies), layout, part.attention_factor.value
    )
    return replace(part, transform=partial(Loaded, turned))


def _spectrum(read: Callable[[], Loaded], rope: RopeFields, layout: str, scale: float) -> Loaded:
    loaded = read()
    pairs = rotary_pairs(layout, rope.rotary_dim.value)
    frequencies = rope.inv_freq.value
    made: ChannelSpectrum = loaded.value.spectrum(
        pairs,
        None if frequencies is None else np.asarray(frequencies),
        scale * rope.attention_factor.value**2,
    )
    return Loaded(made, loaded.bad)
