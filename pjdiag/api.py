"""The Python API: the commands' nouns as functions that return a ``Result``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from pjdiag import adapters
from pjdiag import checkpoint as checkpoints
from pjdiag.adapters import Reading
from pjdiag.arguments import checked
from pjdiag.checkpoint import Checkpoint
from pjdiag.diagnostics.progress import Announce, Progress, no_announcement, no_progress
from pjdiag.results import Result
from pjdiag.terms import DEFAULT_PRECISIONS, LagWeights

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from pjdiag.diagnostics.in_model_contexts import RetrievalTask
    from pjdiag.diagnostics.ledger import Ledger
    from pjdiag.diagnostics.model_loo import InModel
    from pjdiag.diagnostics.token_data import Data

Source: TypeAlias = "Reading | Checkpoint | str | os.PathLike[str] | nn.Module"
"""What a diagnostic accepts: a reading, an open checkpoint, a path, or a model in memory."""


@checked
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
    if isinstance(source, Checkpoint):
        checkpoint = source
    elif (live := _live(source)) is not None:
        checkpoint = live
    else:
        path: Any = source  # whatever is no path is refused there
        checkpoint = checkpoints.load(path, allow_pickle=allow_pickle, merge_base=merge_base)
    return adapters.read(
        checkpoint,
        train_length=train_length,
        eval_length=eval_length,
        strict=strict,
        min_coverage=min_coverage,
    )


def _live(source: object) -> Checkpoint | None:
    """A model in memory as a checkpoint; None for anything else, which needs no torch."""
    if isinstance(source, str | os.PathLike):
        return None
    from pjdiag.checkpoint.live import is_module, live_checkpoint

    return live_checkpoint(source) if is_module(source) else None


@checked
def inspect(source: Source) -> Result:
    """Mechanism, heads and frequencies of each layer: ``diagnostics.inspection.inspect``."""
    from pjdiag.diagnostics.inspection import inspect as measure

    return measure(read(source))


@checked
def mass(source: Source) -> Result:
    """Effective mass by sector and jet order: ``diagnostics.mass.mass``."""
    from pjdiag.diagnostics.mass import mass as measure

    return measure(read(source))


@checked
def spectrum(
    source: Source,
    data: Data | None = None,
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


@checked
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


@checked
def loo(
    source: Source,
    data: Data | None = None,
    *,
    order: int | None = None,
    lengths: Sequence[int] | None = None,
    target: Callable[[np.ndarray], np.ndarray] | None = None,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    **in_model: Unpack[InModel],
) -> Result:
    """Leave one order, sector or band out of the kernel, or with ``data`` of the running model.

    Without data ``diagnostics.leave_one_out.leave_one_out``; with data
    ``diagnostics.model_loo.model_leave_one_out``, whose other arguments are ``in_model``.
    """
    from pjdiag.diagnostics import leave_one_out

    reading = read(source, allow_pickle=allow_pickle)
    shared: Any = {"order": order, "lengths": lengths, "progress": progress}
    if data is None:
        leave_one_out.require_static(in_model)
        return leave_one_out.leave_one_out(reading, target=target, **shared)
    from pjdiag.diagnostics.model_loo import model_leave_one_out as measure

    leave_one_out.require_no_target(target)
    given: Any = {name: value for name, value in in_model.items() if value is not None}
    return measure(reading, data, allow_pickle=allow_pickle, **shared, **given)


@checked
def probe(
    source: Source,
    lengths: Sequence[int] | None = None,
    *,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    with_affine: bool = False,
    decision: bool = True,
    seed: int = 0,
    in_model: RetrievalTask | None = None,
    data: Data | None = None,
    batch: int | None = None,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Result:
    """Resolution of position codes: ``diagnostics.retrieval.probe``.

    With ``in_model``, retrieval by the running model: ``diagnostics.in_model.in_model``, to which
    ``data``, ``batch``, ``announce`` and ``ledger`` belong.
    """
    reading = read(source, allow_pickle=allow_pickle)
    if in_model is not None:
        from pjdiag.diagnostics.in_model import in_model as measure_in_model

        return measure_in_model(
            reading,
            in_model,
            lengths,
            data,
            batch=batch,
            seed=seed,
            allow_pickle=allow_pickle,
            progress=progress,
            announce=announce,
            ledger=ledger,
        )
    from pjdiag.diagnostics.retrieval import probe as measure

    return measure(
        reading,
        lengths,
        precisions=precisions,
        with_affine=with_affine,
        decision=decision,
        seed=seed,
        progress=progress,
    )


@checked
def stability(
    source: Source, lengths: Sequence[int] | None = None, *, progress: Progress = no_progress
) -> Result:
    """Scale stability of the kernels: ``diagnostics.stability.stability``."""
    from pjdiag.diagnostics.stability import stability as measure

    return measure(read(source), lengths, progress=progress)


@checked
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


@checked
def kernel(
    source: Source,
    data: Data,
    length: int | None = None,
    *,
    windows: int = 2,
    skip_first: int = 4,
    controls: bool = True,
    causal: bool | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
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
        announce=announce,
        ledger=ledger,
    )


@checked
def nll(
    source: Source,
    data: Data,
    lengths: Sequence[int] | None = None,
    *,
    attention: bool = False,
    stride: int | None = None,
    windows: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = no_progress,
    announce: Announce = no_announcement,
    ledger: Ledger | None = None,
) -> Result:
    """Loss by context length and position in the window: ``diagnostics.nll.nll``."""
    from pjdiag.diagnostics.nll import nll as measure

    return measure(
        read(source, allow_pickle=allow_pickle),
        data,
        lengths,
        attention=attention,
        stride=stride,
        windows=windows,
        batch=batch,
        seed=seed,
        allow_pickle=allow_pickle,
        progress=progress,
        announce=announce,
        ledger=ledger,
    )
