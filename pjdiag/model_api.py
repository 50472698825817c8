"""The Python API of models: a PJ-bias for one, a checkpoint as one, and one as a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pjdiag import checkpoint as checkpoints
from pjdiag.adapters import Reading, Sourced
from pjdiag.arguments import checked
from pjdiag.checkpoint import Checkpoint
from pjdiag.errors import AdapterError, UsageError
from pjdiag.terms import Rho, Sector

if TYPE_CHECKING:
    from torch import nn

ModelT = TypeVar("ModelT", bound="nn.Module")


@checked
def patch(
    model: ModelT,
    sectors: Collection[str] = tuple(Sector),
    max_order: int = 3,
    train_length: int | None = None,
    rho: str = Rho.LINEAR,
) -> ModelT:
    """Add a PJ-bias to every attention layer of a causal Hugging Face model, in place.

    ``b(d) = g_FJ sum_r C^FJ_r(d) + g_aff A(d) + g_LC sum_r C^LC_r(d)`` is added to the logits,
    with jet orders up to ``max_order`` and L = ``train_length`` tokens (default: the length that
    the model's configuration says it was trained at). Amplitudes and slopes are 0 at first, so
    the logits do not change, and every sector has a gradient. ``save_pretrained`` keeps the bias,
    ``load_model`` gives it back, and transformers' own ``from_pretrained`` loses it.

    Raises AdapterError for a model that cannot be patched, UsageError for an argument out of
    range, for an unknown train length, and for a model that is patched already.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
    ...     num_attention_heads=2, vocab_size=8, max_position_embeddings=512)
    >>> model = patch(LlamaForCausalLM(config), sectors=["affine"])
    >>> model.config.pjdiag["train_length"], model.config.pjdiag["sectors"]
    (512, ['affine'])
    """
    from pjdiag.models import patching
    from pjdiag.models.patch_settings import PatchSettings

    patching.require_patchable(model)
    if train_length is None:
        train_length = patch_length(model.config.to_dict()).value  # type: ignore[operator,union-attr]
    return patching.patch(model, PatchSettings(train_length, sectors, max_order, rho))


def patch_length(config: Mapping[str, Any]) -> Sourced[int]:
    """L in tokens for a PJ-bias, from a model's configuration.

    Raises UsageError where the configuration does not say.
    """
    from pjdiag.adapters.rope_fields import text_config
    from pjdiag.adapters.rope_fields import train_length as stated

    found = stated(text_config(config))
    if found.value is None:
        raise UsageError(
            "the model's configuration states no train length",
            "pass train_length=2048 (--train-length 2048)",
        )
    return Sourced(found.value, found.source)


@checked
def load_model(
    path: Checkpoint | str | os.PathLike[str],
    *,
    precision: Literal["float32", "bfloat16", "auto"] = "auto",
    allow_pickle: bool = False,
) -> nn.Module:
    """The model of a native, a PJ-RoPE research or a patched checkpoint, in evaluation mode.

    A patched Hugging Face folder gives the model of its own class with the PJ-bias attached; its
    weights have the type ``precision`` (``auto``: that of the file). No remote code is run.
    Raises CheckpointError where the checkpoint does not fit its configuration, AdapterError
    where it is of another kind.

    >>> import pjdiag
    >>> type(load_model(pjdiag.sample())).__name__
    'CausalLM'
    """
    from pjdiag.checkpoint import native, patched

    source = (
        path if isinstance(path, Checkpoint) else checkpoints.load(path, allow_pickle=allow_pickle)
    )
    if native.is_native(source) or native.is_research(source):
        return native.load_model(source)
    if patched.is_patched(source) or patched.states_patch(source):
        model: nn.Module = patched.load_patched(
            source, precision=precision, allow_pickle=allow_pickle
        )
        return model
    raise AdapterError(
        f"{source.path} is neither a native nor a patched checkpoint",
        "load a plain Hugging Face model with transformers, then pjdiag.patch(model)",
    )


@checked
def live(
    model: nn.Module,
    *,
    run: Callable[[Any, Any], object] | None = None,
    fresh: Callable[[], nn.Module] | None = None,
    train_length: int | None = None,
) -> Reading:
    """A model in memory as a reading, for ``kernel`` and every other diagnostic that applies.

    ``model`` is one of transformers, patched or not, one of ``load_model``, or any code whose
    attention is ``torch.nn.MultiheadAttention``. ``run`` is called with the model and token ids
    ``[B, T]`` (int64, -1 on padding) and calls it once; without it that is ``model(ids)``.
    ``fresh`` makes the model anew, with other weights, for the control; without it transformers
    does, or a copy is reset by its modules' own ``reset_parameters``. ``train_length`` is L in
    tokens, where the model does not tell.

    Raises AdapterError for a model that nothing here reads, UsageError for a length below 2.

    >>> from torch import nn
    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> reading = live(nn.Sequential(nn.Embedding(5, 8), layer))
    >>> reading.adapter, reading.layers[0].num_heads.value
    ('live_modules', 2)
    """
    from pjdiag.adapters import read
    from pjdiag.checkpoint.live import is_module, live_checkpoint

    if not is_module(model):
        raise UsageError(
            f"the model is {type(model).__name__}; expected a torch.nn.Module",
            "pass the model itself; a path needs no live()",
        )
    return read(live_checkpoint(model, run, fresh), train_length=train_length)
