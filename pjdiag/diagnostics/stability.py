"""Scale stability: what becomes of a kernel far beyond its training length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pjdiag.adapters.protocol import Reading
from pjdiag.diagnostics.heads import (
    LayerKernel,
    overflow,
    sound_heads,
    unwarned_overflow,
    without_tables,
)
from pjdiag.diagnostics.lags import check_lengths
from pjdiag.diagnostics.outcome import (
    check_train_length,
    outcome,
    require_train_length,
    table_outcome,
)
from pjdiag.diagnostics.progress import Progress, Steps, no_progress
from pjdiag.diagnostics.rotary_only import rotary_only
from pjdiag.diagnostics.scopes import Group, HeadItem, groups, model_row
from pjdiag.diagnostics.stability_figures import (
    amplitude_figures,
    far_condition_number,
    kernel_figures,
    phase_figures,
)
from pjdiag.errors import UsageError
from pjdiag.position import variants
from pjdiag.position.coordinates import phase
from pjdiag.position.kernel import PositionKernel, envelope, gated_components, mass
from pjdiag.position.variants import VARIANTS, order_amplitudes
from pjdiag.results import Result, Row, Skipped
from pjdiag.terms import DIAGNOSTICS, Sector

SHORTEST = 4
DEFAULT_LENGTHS = (1024, 4096, 32768)
VARIANT_CYCLES = 17

LARGEST = ("bias_max", "norm_max", "norm_final", "amplitude_max", "condition_number")
"""Figures whose aggregate over heads is the largest; ``non_finite`` is the sum, others the mean."""
FIGURES = tuple(column.name for column in DIAGNOSTICS["stability"])[3:]

Figures = dict[str, float]


@unwarned_overflow
def stability(
    reading: Reading,
    lengths: Sequence[int] | None = None,
    *,
    progress: Progress = no_progress,
) -> Result:
    """How the checkpoint's own kernels scale over the lags 0..T-1, in float64.

    Rows per length and sector, and for the whole kernel (sector null): size of the bias in
    logits, the attention prior of the last row, and for jet sectors the growth and
    quantisation error of the gated amplitudes ``g alpha_r |zeta_r| env_r(d)``, the far phases,
    and the condition number of the far design. Aggregates are means over heads; ``bias_max``,
    the norms and the condition number the largest, ``non_finite`` the sum. ``lengths`` in
    tokens, default L, 4 L and 32,768. Raises UsageError for a length below 2.
    """
    train_length = require_train_length(reading)
    windows = _checked(lengths if lengths is not None else [train_length, 4 * train_length, 32768])
    sound = sound_heads(reading, spectra=False)
    steps = Steps(progress, sum(len(layer.heads) for layer in sound.kernels) * sum(windows))
    rows: list[Row] = []
    problems = without_tables(sound, "has no amplitudes or phases that could grow or freeze")
    problems += rotary_only(reading)
    for window in windows:
        found = [entry for layer in sound.kernels for entry in _layer_items(layer, window, steps)]
        for sector in (None, *Sector):
            items = [item for name, item in found if name == sector and item.value]
            rows += [_row(group, sector, window) for group in groups(items)]
        problems += _problems(found, window, problems)
    return outcome(
        reading,
        "stability",
        rows,
        (*sound.skipped, *problems),
        lengths=list(windows),
    )


def stability_variants(
    lengths: Sequence[int] | None = None, train_length: int = variants.TRAIN_LENGTH
) -> Result:
    """The same figures for the eight coordinates of ``position.variants``, no checkpoint needed.

    One frequency ``w = 2 pi 17 / L``, jet orders 0..3, damping 0.1; the kernel is
    ``A[:, 3] cos(w phase)``. ``lengths`` in tokens, default 1,024, 4,096 and 32,768.
    """
    windows = _checked(lengths if lengths is not None else DEFAULT_LENGTHS)
    check_train_length(train_length)
    omega = 2 * math.pi * VARIANT_CYCLES / train_length
    rows: list[Row] = []
    for window in windows:
        lags = np.arange(window, dtype=np.float64)
        for variant in VARIANTS.values():
            amplitudes = order_amplitudes(
                variant, lags, train_length, variants.MAX_ORDER, variants.DAMPING
            )
            phases = variant.phase(lags, train_length)
            kernel = amplitudes[:, -1] * np.cos(omega * phases)
            figures = {
                **kernel_figures(kernel),
                **_jet_figures(amplitudes, phases, omega),
            }
            rows.append(model_row(variant=variant.name, sector=None, eval_length=window, **figures))
    return table_outcome(
        "stability",
        rows,
        train_length,
        lengths=list(windows),
        omega=omega,
        max_order=variants.MAX_ORDER,
        damping=variants.DAMPING,
    )


def _checked(lengths: Sequence[int]) -> tuple[int, ...]:
    """Windows whose far half has a phase increment."""
    windows = check_lengths(lengths)
    if windows[0] < SHORTEST:
        raise UsageError(
            f"length is {windows[0]}; the far half of a window needs at least {SHORTEST} tokens",
            "pass --length 32768",
        )
    return windows


def _layer_items(
    layer: LayerKernel, window: int, steps: Steps
) -> Iterator[tuple[Sector | None, HeadItem[Figures]]]:
    """Figures of each head, by sector; empty figures where the kernel overflows."""
    for position, head in enumerate(layer.heads):
        steps.advance(window)
        single = layer.kernel.head(position)
        for sector, figures in _head_figures(single, window):
            yield sector, HeadItem(layer.layer, head, layer.mechanism, figures)


def _head_figures(kernel: PositionKernel, window: int) -> Iterator[tuple[Sector | None, Figures]]:
    lags = np.arange(window, dtype=np.float64)
    whole = np.zeros(window)
    for sector in kernel.sectors:
        function = gated_components(kernel, sector, lags)[0].sum(axis=0)
        whole = whole + function
        if not np.isfinite(function).all():
            yield sector, {}
        elif sector == Sector.AFFINE:
            yield sector, kernel_figures(function)
        else:
            amplitudes = (mass(kernel, sector)[:, :, None] * envelope(kernel, sector, lags))[0].T
            turning = lags if sector == Sector.FJ else phase(lags, kernel.train_length)
            jets = _jet_figures(amplitudes, turning, abs(float(kernel.omega[0])))
            yield sector, {**kernel_figures(function), **jets}
    yield None, kernel_figures(whole) if np.isfinite(whole).all() else {}


def _jet_figures(amplitudes: np.ndarray, phases: np.ndarray, omega: float) -> Figures:
    return {
        **amplitude_figures(amplitudes),
        **phase_figures(phases, omega),
        "condition_number": far_condition_number(amplitudes, phases, omega),
    }


def _row(group: Group[Figures], sector: Sector | None, window: int) -> Row:
    figures = {name: _combined(name, group.values) for name in FIGURES}
    return group.row(
        variant="checkpoint",
        sector=None if sector is None else sector.value,
        eval_length=window,
        **figures,
    )


def _combined(name: str, heads: Sequence[Mapping[str, float]]) -> Any:
    values = [figures[name] for figures in heads if name in figures]
    if not values:
        return None
    if name == "non_finite":
        return int(sum(values))
    return float(max(values) if name in LARGEST else np.mean(values))


def _problems(
    found: Sequence[tuple[Sector | None, HeadItem[Figures]]],
    window: int,
    known: Sequence[Skipped],
) -> list[Skipped]:
    entries = [
        overflow(item.layer, item.head, f"the kernel at {window} tokens")
        for sector, item in found
        if sector is None and not item.value
    ]
    named = {(entry.layer, entry.head) for entry in known}
    return [entry for entry in entries if (entry.layer, entry.head) not in named]
