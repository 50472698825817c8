"""The Jordan-RoPE research code's model, run from what its file states and the adapter reads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pjdiag.adapters import AdditiveKernel, Layer, MultiplicativeSpectrum, Reading
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import CheckpointError
from pjdiag.position.kernel import PositionKernel, bias
from pjdiag.position.transforms import PositionTransform, RotaryTransform
from pjdiag_plugins.checked import check_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from pjdiag.models.pre_norm_lm import PreNormBlock, PreNormLM


def jordan_model(reading: Reading) -> PreNormLM:
    """The model in float64. Raises CheckpointError where a tensor is missing or does not fit."""
    from pjdiag.models.pre_norm_lm import PreNormLM

    checkpoint = reading.checkpoint
    width = checkpoint.headers["embed.weight"].shape[-1]
    check_shapes(checkpoint, {"norm.weight": (width,)})
    head = checkpoint.headers.get("lm_head.weight")
    if head is not None and head.shape != checkpoint.headers["embed.weight"].shape:
        raise CheckpointError(
            f"lm_head.weight has shape {list(head.shape)}; expected that of the embedding, to "
            "which it is tied",
            "write the checkpoint again",
        )
    return PreNormLM(
        _tensor(checkpoint, "embed.weight"),
        [_block(checkpoint, layer, width) for layer in reading.layers],
        _tensor(checkpoint, "norm.weight"),
    )


def _block(checkpoint: Checkpoint, layer: Layer, width: int) -> PreNormBlock:
    from pjdiag.models.pre_norm_lm import PreNormBlock

    prefix = f"blocks.{layer.index}."
    hidden = checkpoint.headers[f"{prefix}ff.net.0.weight"].shape[0]
    check_shapes(
        checkpoint,
        {
            f"{prefix}norm1.weight": (width,),
            f"{prefix}norm2.weight": (width,),
            f"{prefix}attn.qkv.weight": (3 * width, width),
            f"{prefix}attn.proj.weight": (width, width),
            f"{prefix}ff.net.0.weight": (hidden, width),
            f"{prefix}ff.net.2.weight": (width, hidden),
        },
    )
    kernels = [part.kernel for part in layer.parts if isinstance(part, AdditiveKernel)]
    return PreNormBlock(
        norms=tuple(_tensor(checkpoint, f"{prefix}norm{n}.weight") for n in (1, 2)),  # type: ignore[arg-type]
        qkv=_tensor(checkpoint, f"{prefix}attn.qkv.weight"),
        mixing=_tensor(checkpoint, f"{prefix}attn.proj.weight"),
        feed_forward=tuple(_tensor(checkpoint, f"{prefix}ff.net.{n}.weight") for n in (0, 2)),  # type: ignore[arg-type]
        heads=layer.num_heads.value,
        scale=layer.scale.value,
        transform=_transform(layer),
        bias=partial(_bias, kernels[0]) if kernels else None,
    )


def _transform(layer: Layer) -> PositionTransform:
    head_dim = layer.head_dim.value
    for part in layer.parts:
        if isinstance(part, MultiplicativeSpectrum):
            if part.transform is not None:
                own: PositionTransform = part.transform().value
                return own
            return RotaryTransform(head_dim, part.inv_freq.value, str(part.rope_layout.value))
    return PositionTransform(head_dim)


def _bias(kernel: PositionKernel, lags: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(bias(kernel, lags.numpy()))


def _tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    import torch

    return torch.from_numpy(checkpoint.read(name)).double()
