"""Jordan-RoPE tensors without their config: what they could be, and no guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pjdiag.adapters import Layer, MultiplicativeSpectrum, Sourced
from pjdiag.checkpoint import Checkpoint
from pjdiag.terms import Mechanism

UNDETERMINED = "undetermined"
CANDIDATES = (
    ("positioner.real_jordan.raw_gamma", ("direct_sum",)),
    ("positioner.raw_jet_base", ("jordan_jetmixfull*",)),
    ("positioner.raw_jet_coefficients", ("jordan_jetmix*",)),
    ("positioner.raw_eta", ("jordan_no_gamma",)),
    ("positioner.raw_gamma", ("damped_rope",)),
)
"""The first name that is there decides; both raw_gamma and raw_eta have a list of their own."""
JORDAN = ("real_jordan", "jordan_rope", "jordan_raw_tau", "jordan_m<k>", "jordan_exact*")
PLAIN = ("rope", "nope", "alibi", "rope_alibi")


def undetermined_layers(checkpoint: Checkpoint, blocks: Sequence[int]) -> Iterator[Layer]:
    """One layer per block, of unknown mechanism; heads only where a tensor tells them."""
    for index in blocks:
        prefix = f"blocks.{index}.attn."
        if f"{prefix}qkv.weight" in checkpoint.headers:
            yield _layer(checkpoint, index, prefix)


def _layer(checkpoint: Checkpoint, index: int, prefix: str) -> Layer:
    reason = _reason(checkpoint, prefix)
    heads, head_dim = _sizes(checkpoint, prefix)
    unknown: Sourced[Any] = Sourced(None, reason)
    part = MultiplicativeSpectrum(
        mechanism=Mechanism.UNKNOWN,
        inv_freq=unknown,
        rotary_dim=unknown,
        rope_layout=unknown,
        rope_theta=unknown,
        rope_type=Sourced(UNDETERMINED, reason),
        attention_factor=unknown,
        unread_reason=f"{UNDETERMINED}: {reason}",
    )
    return Layer(
        index=index,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        scale=Sourced(head_dim.value**-0.5, "format: 1/sqrt(head_dim)")
        if head_dim.value
        else _unknown(),
        window=Sourced(None, "format: full causal attention"),
        parts=(part,),
    )


def _reason(checkpoint: Checkpoint, prefix: str) -> str:
    """What these tensors could be."""
    names = checkpoint.headers
    both = all(f"{prefix}positioner.raw_{name}" in names for name in ("gamma", "eta"))
    fitting = next((found for name, found in CANDIDATES if prefix + name in names), PLAIN)
    methods = JORDAN if both else fitting
    also = "" if methods is PLAIN else ", each with or without _alibi"
    return f"no config; the tensors fit {', '.join(methods)}{also}"


def _sizes(checkpoint: Checkpoint, prefix: str) -> tuple[Sourced[int], Sourced[int]]:
    """Heads and head_dim, where a raw parameter has one row per head."""
    width = checkpoint.headers[f"{prefix}qkv.weight"].shape[-1]
    for raw in ("raw_gamma", "raw_eta", "real_jordan.raw_gamma"):
        header = checkpoint.headers.get(f"{prefix}positioner.{raw}")
        if header is not None and len(header.shape) == 2 and header.shape[0]:
            heads = header.shape[0]
            if width % heads == 0:
                return Sourced(heads, f"rows of {raw}"), Sourced(width // heads, "width / heads")
    return _unknown(), _unknown()


def _unknown() -> Sourced[Any]:
    """A number that nothing tells; rows carry null."""
    return Sourced(None, f"{UNDETERMINED}: no config")
