"""The Python API: the commands' nouns as functions that return a ``Result``."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pjdiag import adapters
from pjdiag import checkpoint as checkpoints
from pjdiag.adapters import Reading
from pjdiag.checkpoint import Checkpoint
from pjdiag.diagnostics.progress import Announce, Progress, no_announcement, no_progress
from pjdiag.errors import AdapterError, UsageError
from pjdiag.results import Result
from pjdiag.terms import DEFAULT_PRECISIONS, LagWeights, Rho, Sector

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

ModelT = TypeVar("ModelT", bound="nn.Module")
Source = Reading | Checkpoint | str | os.PathLike[str]
"""What a diagnostic accepts: a reading, an open checkpoint, or a path."""


def read(
    source: Source,
    *,
    allow_pickle: bool = False,
    merge_base: str | os.PathLike[str] | None = None,
    train_length: int | None = None,
    eval_length: int | None = None,
    strict: bool = False,
    min_coverage: float = 0.0,
) -> Reading:
    """A checkpoint's layers in effective values; a reading passes through unchanged.

    With ``merge_base``, a model, ``source`` is the path of a LoRA adapter of it. Raises
    CheckpointError, AdapterError, UsageError or InconclusiveError, each saying what was found and
    what to do next.
    """
    if isinstance(source, Reading):
        return source
    if not isinstance(source, Checkpoint):
        source = checkpoints.load(source, allow_pickle=allow_pickle, merge_base=merge_base)
    return adapters.read(
        source,
        train_length=train_length,
        eval_length=eval_length,
        strict=strict,
        min_coverage=min_coverage,
    )


def inspect(source: Source) -> Result:
    """Mechanism, heads and frequencies of each layer: ``diagnostics.inspection.inspect``."""
    from pjdiag.diagnostics.inspection import inspect as measure

    return measure(read(source))


def mass(source: Source) -> Result:
    """Effective mass by sector and jet order: ``diagnostics.mass.mass``."""
    from pjdiag.diagnostics.mass import mass as measure

    return measure(read(source))


def spectrum(
    source: Source,
    data: str | os.PathLike[str] | None = None,
    length: int | None = None,
    *,
    windows: int = 2,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
) -> Result:
    """Mass of the rotary channels by wavelength: ``diagnostics.spectrum.spectrum``."""
    from pjdiag.diagnostics.spectrum import spectrum as measure

    return measure(
        read(source, allow_pickle=allow_pickle),
        data,
        length,
        windows=windows,
        allow_pickle=allow_pickle,
        progress=progress,
    )


def energy(
    source: Source,
    lengths: Sequence[int] | None = None,
    lag_weights: LagWeights = LagWeights.UNIFORM,
    *,
    centred: bool = False,
) -> Result:
    """Functional energy over windows and lag buckets: ``diagnostics.energy.energy``."""
    from pjdiag.diagnostics.energy import energy as measure

    return measure(read(source), lengths, lag_weights, centred=centred)


def loo(
    source: Source,
    *,
    order: int | None = None,
    lengths: Sequence[int] | None = None,
    target: Callable[[np.ndarray], np.ndarray] | None = None,
    progress: Progress = no_progress,
) -> Result:
    """Leave one order or sector out: ``diagnostics.leave_one_out.leave_one_out``."""
    from pjdiag.diagnostics.leave_one_out import leave_one_out as measure

    return measure(read(source), order=order, lengths=lengths, target=target, progress=progress)


def probe(
    source: Source,
    lengths: Sequence[int] | None = None,
    *,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    with_affine: bool = False,
    decision: bool = True,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Result:
    """Resolution of position codes: ``diagnostics.retrieval.probe``."""
    from pjdiag.diagnostics.retrieval import probe as measure

    return measure(
        read(source),
        lengths,
        precisions=precisions,
        with_affine=with_affine,
        decision=decision,
        seed=seed,
        progress=progress,
    )


def stability(
    source: Source, lengths: Sequence[int] | None = None, *, progress: Progress = no_progress
) -> Result:
    """Scale stability of the kernels: ``diagnostics.stability.stability``."""
    from pjdiag.diagnostics.stability import stability as measure

    return measure(read(source), lengths, progress=progress)


def verify(
    source: Source,
    lengths: Sequence[int] | None = None,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Result:
    """Exactness of transforms, and parity with the model: ``diagnostics.verification.verify``."""
    from pjdiag.diagnostics.verification import verify as measure

    return measure(read(source), lengths, seed=seed, progress=progress)


def kernel(
    source: Source,
    data: str | os.PathLike[str],
    length: int | None = None,
    *,
    windows: int = 2,
    skip_first: int = 4,
    controls: bool = True,
    causal: bool | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
) -> Result:
    """What each head does with the lag, on data: ``diagnostics.measured_kernel.kernel``."""
    from pjdiag.diagnostics.measured_kernel import kernel as measure

    return measure(
        read(source, allow_pickle=allow_pickle),
        data,
        length,
        windows=windows,
        skip_first=skip_first,
        controls=controls,
        causal=causal,
        seed=seed,
        allow_pickle=allow_pickle,
        progress=progress,
    )


def nll(
    source: Source,
    data: str | os.PathLike[str],
    lengths: Sequence[int] | None = None,
    *,
    attention: bool = False,
    stride: int | None = None,
    windows: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
) -> Result:
    """Loss by context length and position in the window: ``diagnostics.nll.nll``."""
    from pjdiag.diagnostics.nll import nll as measure

    return measure(
        read(source),
        data,
        lengths,
        attention=attention,
        stride=stride,
        windows=windows,
        batch=batch,
        seed=seed,
        progress=progress,
        announce=announce,
    )


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


def patch_length(config: Mapping[str, Any]) -> adapters.Sourced[int]:
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
    return adapters.Sourced(found.value, found.source)


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
